/* where: cond ? a : b.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "../dayone.h"

refusal check_where(const anyhal_plan* plan) {
  if (plan->t[0].dtype != ANYHAL_DTYPE_BOOL || !is_plain(plan->t[1].dtype)) return bad_dtype();
  return check_elementwise(plan, 1);
}

anyhal_status run_where(const anyhal_plan* plan, char* const* data, char* workspace,
                        anyhal_error* error) {
  (void)workspace, (void)error;
  const tensor* t = plan->t;
  const uint32_t bytes = element_bytes(t[1].dtype);
  nest n = nest_of((const tensor*[]){&t[0], &t[1], &t[2], &t[3]}, data, 4);
  if (n.empty) return ANYHAL_STATUS_OK;
  do {
    const int64_t* s = n.row_strides;
    for (int64_t i = 0; i < n.row; ++i) {
      const int64_t k = n.p[0][i * s[0]] ? 1 : 2;
      memmove(n.p[3] + i * s[3] * bytes, n.p[k] + i * s[k] * bytes, bytes);
    }
  } while (nest_next(&n));
  return ANYHAL_STATUS_OK;
}
