// scatter_add: each element of out collects the updates whose index names it, in their order, so
// that the result is the same from run to run. SPDX-License-Identifier: Apache-2.0
typedef SUM Acc;

// Walk `places`: target, out and updates over the dims of out; `list`: indices and updates over
// those of the indices.
__kernel void scatter_add(In target, ulong target_at, In indices, ulong indices_at, In updates,
                          ulong updates_at, Out out, ulong out_at, const Walk places,
                          const Walk list, ulong count, ulong length, ulong inner, long bins,
                          __global const Fault* fault) {
  const ulong i = get_global_id(0);
  if (i >= count || fault->set) return;
  const long bin = (long)(i / inner % (ulong)bins);
  const long from = place(&places, 2, i);
  Acc sum = (Acc)LOAD(X)(target + target_at, place(&places, 0, i));
  for (ulong j = 0; j < length; ++j) {
    if (LOAD(INDEX)(indices + indices_at, place(&list, 0, j)) != bin) continue;
    sum += (Acc)LOAD(X)(updates + updates_at, from + place(&list, 1, j));
  }
  STORE(X)(out + out_at, place(&places, 1, i), (VALUE(X))sum);
}
