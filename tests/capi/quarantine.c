/* On a device whose f32 products are in quarantine: refused there, and another device is chosen.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

int main(int argc, char** argv) {
  hal_device* device;
  hal_queue* queue;
  hal_decision decision = {sizeof decision, 0, NULL, 0};
  char text[4096];
  if (argc < 2) return 2;
  GOOD(hal_select_backend(argv[1], &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  hal_tensor a = matrix(queue, 8, 8), b = matrix(queue, 8, 8), c = matrix(queue, 8, 8);
  BAD(UNSUPPORTED, POLICY, hal_matmul(queue, &a, &b, &c, error));
  GOOD(hal_unary(queue, &a, HAL_UNARY_FN_NEG, &c, error));
  const hal_tensor* operands[] = {&a, &b, &c};
  GOOD(hal_explain(HAL_OP_MATMUL, operands, 2, 3, NULL, 0, &decision, text, sizeof text, NULL,
                   error));
  HOLDS(decision.device == NULL && decision.reason == HAL_REASON_POLICY);
  HOLDS(strstr(text, "policy: matmul f32 was wrong"));
  a.buffer = b.buffer = c.buffer = NULL;
  GOOD(hal_explain(HAL_OP_MATMUL, operands, 2, 3, NULL, 0, &decision, text, sizeof text, NULL,
                   error));
  HOLDS(decision.device && decision.device != device);
  printf("ok\n");
  return 0;
}
