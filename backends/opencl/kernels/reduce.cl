// reduce: FN of X over whole axes into Y. Short folds take an item each, long ones a group.
// SPDX-License-Identifier: Apache-2.0
typedef VALUE(X) T;
typedef SUM Acc;

#define fn_sum_step(s, x) ((s) + (Acc)(x))
#define fn_mean_step(s, x) ((s) + (Acc)(x))
#define fn_prod_step(s, x) ((s) * (Acc)(x))
#define fn_max_step(s, x) ((s) != (s) || !((x) != (x) || (x) > (s)) ? (s) : (x))
#define fn_min_step(s, x) ((s) != (s) || !((x) != (x) || (x) < (s)) ? (s) : (x))
#define fn_any_step(s, x) ((s) | (x))
#define fn_all_step(s, x) ((s) & (x))
#define STEP(s, x) FN(s, x)
#ifdef MEAN
#define FINISH(s) DIVIDE(s, (Acc)folded)  // 0 / 0 = NaN over nothing
#else
#define FINISH(s) (s)
#endif

// kept: x and out over the dims that stay; axes: x over the others.
__kernel void reduce_item(In x, ulong x_at, Out out, ulong out_at, const Walk kept,
                          const Walk axes, ulong count, ulong folded) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const long from = place(&kept, 0, i);
  Acc s = START;
  for (ulong j = 0; j < folded; ++j) s = STEP(s, LOAD(X)(x + x_at, from + place(&axes, 0, j)));
  STORE(Y)(out + out_at, place(&kept, 1, i), (VALUE(Y))FINISH(s));
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void reduce_group(
    In x, ulong x_at, Out out, ulong out_at, const Walk kept, const Walk axes, ulong count,
    ulong folded) {
  __local Acc partial[GROUP];
  const uint item = get_local_id(0);
  const ulong i = get_group_id(0);
  const long from = place(&kept, 0, i);
  Acc s = START;
  for (ulong j = item; j < folded; j += GROUP)
    s = STEP(s, LOAD(X)(x + x_at, from + place(&axes, 0, j)));
  partial[item] = s;
  for (uint half_size = GROUP / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_size) partial[item] = STEP(partial[item], partial[item + half_size]);
  }
  if (item == 0) STORE(Y)(out + out_at, place(&kept, 1, i), (VALUE(Y))FINISH(partial[0]));
}
