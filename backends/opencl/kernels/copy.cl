// copy and fill: units of UNIT bytes from one place to another; a fill reads with strides of 0.
// SPDX-License-Identifier: Apache-2.0
__kernel void copy(In x, ulong x_at, Out out, ulong out_at, const Walk walk, ulong count) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  ((__global UNIT*)(out + out_at))[PLACE(walk, 1, i)] =
      ((__global const UNIT*)(x + x_at))[PLACE(walk, 0, i)];
}
