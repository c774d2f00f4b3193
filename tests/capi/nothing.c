/* Reads no bytes of what a call that fails late has made: the reader is told.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

int main(void) {
  hal_device* device;
  hal_queue* queue;
  GOOD(hal_select_backend("fake", &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  const hal_tensor x = matrix(queue, 1, 4), sum = matrix(queue, 1, 4);
  fill(queue, &x, 1);
  GOOD(hal_binary(queue, &x, &x, HAL_BINARY_FN_ADD, &sum, error));
  BAD(EXECUTION_FAILED, NONE, hal_buffer_read(queue, sum.buffer, 0, NULL, 0, error));
  printf("ok\n");
  return 0;
}
