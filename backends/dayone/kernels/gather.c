/* gather: out[a..., i..., b...] = x[a..., indices[i...], b...]; `axes` is the axis.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../dayone.h"

/* Whether `t` has the dims of `whole` with dim `axis` replaced by those of `indices`. */
bool replaces_axis(const tensor* t, const tensor* whole, const tensor* indices, uint32_t axis) {
  if (t->rank + 1 != whole->rank + indices->rank) return false;
  for (uint32_t d = 0; d < t->rank; ++d) {
    const int64_t want = d < axis                   ? whole->dims[d]
                         : d < axis + indices->rank ? indices->dims[d - axis]
                                                    : whole->dims[d + 1 - indices->rank];
    if (t->dims[d] != want) return false;
  }
  return true;
}

/* `t` without `count` dims from `axis` on. */
tensor without(const tensor* t, uint32_t axis, uint32_t count) {
  tensor part = *t;
  for (uint32_t d = axis; d + count < t->rank; ++d) {
    part.dims[d] = t->dims[d + count];
    part.strides[d] = t->strides[d + count];
  }
  part.rank -= count;
  return part;
}

/* Walks the indices (p[0]) and the place that each belongs to (p[1]). */
nest index_walk(const tensor* indices, char* data, const tensor* t, char* place, uint32_t axis) {
  nest n = {.operands = 2, .p = {data, place}};
  for (uint32_t d = 0; d < indices->rank; ++d)
    nest_add(&n, indices->dims[d],
             (int64_t[]){indices->strides[d] * element_bytes(indices->dtype),
                         t->strides[axis + d] * element_bytes(t->dtype)});
  return n;
}

/* Looks at every index before anything is written: a refused call leaves no trace. */
anyhal_status check_indices(const anyhal_plan* plan, nest walk, int64_t limit,
                            anyhal_error* error) {
  if (walk.empty) return ANYHAL_STATUS_OK;
  do {
    int64_t index;
    load_i64(plan->t[1].dtype, walk.p[0], 1, 1, &index);
    if (index < 0 || index >= limit)
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "index %lld is outside [0, %lld), and negative indices do not "
                  "wrap; correct the indices (nothing was written)",
                  (long long)index, (long long)limit);
  } while (nest_next(&walk));
  return ANYHAL_STATUS_OK;
}

refusal check_gather(const anyhal_plan* plan) {
  const tensor *x = &plan->t[0], *indices = &plan->t[1], *out = &plan->t[2];
  if (!is_index(indices->dtype) || out->dtype != x->dtype) return bad_dtype();
  if (!is_stored(x->dtype) && block_elements(x->dtype) == 1) return bad_dtype();
  if (plan->axes >= x->rank) return wrong("the axis is outside the operand");
  if (!replaces_axis(out, x, indices, (uint32_t)plan->axes))
    return wrong("the output's dims do not fit");
  if (block_elements(x->dtype) > 1 && plan->axes + 1 == x->rank)
    return refuse(ANYHAL_REASON_LAYOUT, "gathering along the last axis would cut blocks");
  return fits;
}

RUN(gather) {
  (void)workspace;
  const tensor *x = &plan->t[0], *indices = &plan->t[1], *out = &plan->t[2];
  const uint32_t axis = (uint32_t)plan->axes;
  nest walk = index_walk(indices, data[1], out, data[2], axis);
  anyhal_status status = check_indices(plan, walk, x->dims[axis], error);
  if (status != ANYHAL_STATUS_OK || walk.empty) return status;
  const tensor from = without(x, axis, 1), to = without(out, axis, indices->rank);
  do {
    int64_t index;
    load_i64(indices->dtype, walk.p[0], 1, 1, &index);
    move(&from, data[0] + index * x->strides[axis] * element_bytes(x->dtype), &to, walk.p[1]);
  } while (nest_next(&walk));
  return ANYHAL_STATUS_OK;
}
