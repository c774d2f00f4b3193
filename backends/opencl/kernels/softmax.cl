// softmax: exp(x - max(x)) over their sum, along one axis; a group for each slice.
// SPDX-License-Identifier: Apache-2.0
typedef VALUE(X) T;

T folded(__local T* partial, T mine, bool sums) {
  const uint item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);  // whoever still reads the last result
  partial[item] = mine;
  for (uint half_size = GROUP / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_size) {
      const T a = partial[item], b = partial[item + half_size];
      partial[item] = sums ? a + b : b > a ? b : a;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return partial[0];
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void softmax(
    In x, ulong x_at, Out out, ulong out_at, const Walk slices, long size, long x_stride,
    long out_stride) {
  __local T partial[GROUP];
  const ulong i = get_group_id(0);
  const long from = place(&slices, 0, i), to = place(&slices, 1, i);
  T top = (T)(-INFINITY);
  for (long j = get_local_id(0); j < size; j += GROUP) {
    const T v = LOAD(X)(x + x_at, from + j * x_stride);
    top = v > top ? v : top;
  }
  top = folded(partial, top, false);
  // -inf - -inf and inf - inf are NaN, which is the rule for both kinds of slice.
  T total = 0;
  for (long j = get_local_id(0); j < size; j += GROUP)
    total += exp(LOAD(X)(x + x_at, from + j * x_stride) - top);
  total = folded(partial, total, true);
  for (long j = get_local_id(0); j < size; j += GROUP)
    STORE(X)(out + out_at, to + j * out_stride,
             DIVIDE(exp(LOAD(X)(x + x_at, from + j * x_stride) - top), total));
}
