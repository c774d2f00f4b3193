/* copy: x -> out, any strides; a transpose or a broadcast is a copy.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../dayone.h"

refusal check_copy(const anyhal_plan* plan) { return check_elementwise(plan, 0); }

RUN(copy) {
  (void)workspace, (void)error;
  move(&plan->t[0], data[0], &plan->t[1], data[1]);
  return ANYHAL_STATUS_OK;
}
