/* When a hostile library does what it does.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef HOSTILE_DEEDS_H_
#define HOSTILE_DEEDS_H_

#define AT_OPEN 1
#define AT_INIT 2
#define AT_LIST 3
#define AT_EXIT 4

void hostile_deed(int when);
extern const char hostile_lie[]; /* what the setting "lie" is where none is given */

#endif
