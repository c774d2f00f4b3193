// where: a select of units of UNIT bytes; what is not chosen is not looked at.
// SPDX-License-Identifier: Apache-2.0
__kernel void where(In condition, ulong condition_at, In a, ulong a_at, In b, ulong b_at, Out out,
                    ulong out_at, const Walk walk, ulong count) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const bool chosen = condition[condition_at + PLACE(walk, 0, i)] != 0;
  const UNIT x = ((__global const UNIT*)(a + a_at))[PLACE(walk, 1, i)];
  const UNIT y = ((__global const UNIT*)(b + b_at))[PLACE(walk, 2, i)];
  ((__global UNIT*)(out + out_at))[PLACE(walk, 3, i)] = chosen ? x : y;
}
