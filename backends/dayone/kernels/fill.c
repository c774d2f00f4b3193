/* fill: one value -> every element of out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "../dayone.h"

refusal check_fill(const anyhal_plan* plan) {
  if (plan->t[0].rank != 0) return wrong("the value must have no dims");
  if (!is_stored(plan->t[1].dtype) || plan->t[0].dtype != plan->t[1].dtype) return bad_dtype();
  return fits;
}

/* A fill is a copy whose source has stride 0 everywhere. */
RUN(fill) {
  (void)workspace, (void)error;
  tensor value = plan->t[1];
  memset(value.strides, 0, sizeof value.strides);
  move(&value, data[0], &plan->t[1], data[1]);
  return ANYHAL_STATUS_OK;
}
