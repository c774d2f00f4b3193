// gather: out[a..., i..., b...] = x[a..., indices[i...], b...], in units of UNIT bytes.
// SPDX-License-Identifier: Apache-2.0
__kernel void gather(In x, ulong x_at, In indices, ulong indices_at, Out out, ulong out_at,
                     const Walk walk, ulong count, long axis_stride, __global const Fault* fault) {
  const ulong i = get_global_id(0);
  if (i >= count || fault->set) return;
  const long index = LOAD(INDEX)(indices + indices_at, place(&walk, 1, i));
  ((__global UNIT*)(out + out_at))[place(&walk, 2, i)] =
      ((__global const UNIT*)(x + x_at))[place(&walk, 0, i) + index * axis_stride];
}
