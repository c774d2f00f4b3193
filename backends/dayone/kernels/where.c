/* where: cond ? a : b.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../dayone.h"

refusal check_where(const anyhal_plan* plan) {
  if (plan->t[0].dtype != ANYHAL_DTYPE_BOOL || !is_stored(plan->t[1].dtype)) return bad_dtype();
  return check_elementwise(plan, 1);
}

static void select(const anyhal_plan* plan, lane* v, int64_t count) {
  (void)plan;
  /* A lane's bits are moved as they are, whichever of its types they have. */
  for (int64_t i = 0; i < count; ++i) v[3].z[i] = v[0].z[i] ? v[1].z[i] : v[2].z[i];
}

RUN(where) {
  (void)workspace, (void)error;
  each_chunk(plan, data, select);
  return ANYHAL_STATUS_OK;
}
