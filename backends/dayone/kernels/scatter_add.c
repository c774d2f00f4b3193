/* scatter_add: out = target, then out[a..., indices[i...], b...] += updates[a..., i..., b...].
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "../dayone.h"

refusal check_scatter_add(const anyhal_plan* plan) {
  const tensor *target = &plan->t[0], *indices = &plan->t[1], *updates = &plan->t[2];
  const tensor* out = &plan->t[3];
  if (!is_number(target->dtype) || !is_index(indices->dtype) || updates->dtype != target->dtype ||
      out->dtype != target->dtype)
    return bad_dtype();
  if (plan->axes >= target->rank) return wrong("the axis is outside the operand");
  if (!same_dims(target, out) || !replaces_axis(updates, target, indices, (uint32_t)plan->axes))
    return wrong("the dims of the updates or the output do not fit");
  return fits;
}

/* Sums of 16-bit floats would round at every step, so they are kept as f32 in the workspace. */
static bool needs_sums(uint32_t dtype) {
  return dtype == ANYHAL_DTYPE_F16 || dtype == ANYHAL_DTYPE_BF16;
}

uint64_t scatter_add_workspace(const anyhal_plan* plan) {
  if (!needs_sums(plan->t[3].dtype)) return 0;
  uint64_t bytes = sizeof(float);
  for (uint32_t d = 0; d < plan->t[3].rank; ++d) bytes *= (uint64_t)plan->t[3].dims[d];
  return bytes;
}

static void add_row(uint32_t dtype, const char* update, int64_t update_stride, uint32_t sum_dtype,
                    char* sum, int64_t sum_stride, int64_t count) {
  double x[CHUNK], y[CHUNK];
  int64_t a[CHUNK], b[CHUNK];
  if (is_float(dtype)) {
    load_f64(dtype, update, update_stride, count, x);
    load_f64(sum_dtype, sum, sum_stride, count, y);
    for (int64_t i = 0; i < count; ++i) y[i] += x[i];
    store_f64(sum_dtype, sum, sum_stride, count, y);
  } else {
    load_i64(dtype, update, update_stride, count, a);
    load_i64(sum_dtype, sum, sum_stride, count, b);
    for (int64_t i = 0; i < count; ++i) b[i] = (int64_t)((uint64_t)a[i] + (uint64_t)b[i]);
    store_i64(sum_dtype, sum, sum_stride, count, b);
  }
}

/* Converts between out's dtype and the sums. */
static void convert(const tensor* from, char* source, const tensor* to, char* target) {
  nest n = nest_of((const tensor*[]){from, to}, (char*[]){source, target}, 2);
  if (n.empty) return;
  do {
    for (int64_t i = 0; i < n.row; i += CHUNK) {
      double values[CHUNK];
      const int64_t count = least(CHUNK, n.row - i);
      load_f64(from->dtype, n.p[0] + i * n.row_strides[0] * element_bytes(from->dtype),
               n.row_strides[0], count, values);
      store_f64(to->dtype, n.p[1] + i * n.row_strides[1] * element_bytes(to->dtype),
                n.row_strides[1], count, values);
    }
  } while (nest_next(&n));
}

RUN(scatter_add) {
  const tensor *target = &plan->t[0], *indices = &plan->t[1], *updates = &plan->t[2];
  const uint32_t axis = (uint32_t)plan->axes;
  nest walk = index_walk(indices, data[1], updates, data[2], axis);
  anyhal_status status = check_indices(plan, walk, target->dims[axis], error);
  if (status != ANYHAL_STATUS_OK) return status;
  tensor sums = plan->t[3];
  char* base = data[3];
  if (needs_sums(sums.dtype)) {
    int64_t step = 1;
    for (uint32_t d = sums.rank; d-- > 0; step *= sums.dims[d]) sums.strides[d] = step;
    sums.dtype = ANYHAL_DTYPE_F32;
    base = workspace;
    convert(target, data[0], &sums, base);
  } else {
    move(target, data[0], &sums, base);
  }
  const tensor from = without(updates, axis, indices->rank), to = without(&sums, axis, 1);
  const int64_t from_bytes = element_bytes(from.dtype), to_bytes = element_bytes(to.dtype);
  while (!walk.empty) {
    int64_t index;
    load_i64(indices->dtype, walk.p[0], 1, 1, &index);
    char* bin = base + index * sums.strides[axis] * to_bytes;
    nest n = nest_of((const tensor*[]){&from, &to}, (char*[]){walk.p[1], bin}, 2);
    if (n.empty) break;
    do {
      for (int64_t i = 0; i < n.row; i += CHUNK)
        add_row(from.dtype, n.p[0] + i * n.row_strides[0] * from_bytes, n.row_strides[0], to.dtype,
                n.p[1] + i * n.row_strides[1] * to_bytes, n.row_strides[1],
                least(CHUNK, n.row - i));
    } while (nest_next(&n));
    if (!nest_next(&walk)) break;
  }
  if (needs_sums(plan->t[3].dtype)) convert(&sums, base, &plan->t[3], data[3]);
  return ANYHAL_STATUS_OK;
}
