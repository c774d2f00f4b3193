// where: one of two elements, chosen by a condition.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {

void where(const Description& d, const Pointers& p) {
  const Tensor &c = d.tensors[0], &a = d.tensors[1], &b = d.tensors[2], &out = d.tensors[3];
  const uint64_t unit = unit_bytes(out.dtype);
  for_each<4>(out.dims, {&c.strides, &a.strides, &b.strides, &out.strides}, [&](const auto& at) {
    const uint8_t* from = p[0][at[0]] != 0 ? p[1] + at[1] * unit : p[2] + at[2] * unit;
    std::memcpy(p[3] + at[3] * unit, from, unit);
  });
}

}  // namespace hal::fake::kernels
