/* Selects argv[1], empties the library's file argv[2] in place, and computes all the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

int main(int argc, char** argv) {
  hal_device* device;
  hal_queue* queue;
  if (argc < 3) return 2;
  GOOD(hal_select_backend(argv[1], &device, error));
  FILE* file = fopen(argv[2], "wb");
  HOLDS(file && !fclose(file));
  GOOD(hal_queue_create(device, &queue, error));
  hal_tensor a = matrix(queue, 8, 8), b = matrix(queue, 8, 8), c = matrix(queue, 8, 8);
  fill(queue, &a, 1), fill(queue, &b, 2);
  GOOD(hal_matmul(queue, &a, &b, &c, error));
  GOOD(hal_unary(queue, &c, HAL_UNARY_FN_EXP, &c, error));
  GOOD(hal_queue_release(queue, error));
  printf("ok\n");
  return 0;
}
