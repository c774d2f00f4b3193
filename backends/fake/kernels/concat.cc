// concat: inputs one behind the other along one axis.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {

void concat(const Description& d, const Pointers& p) {
  const Tensor& out = d.tensors[d.input_count];
  const auto axis = static_cast<size_t>(d.attrs<anyhal_attrs_concat>().axis);
  const uint64_t unit = unit_bytes(out.dtype);
  int64_t start = 0;
  for (size_t n = 0; n < d.input_count; ++n) {
    const Tensor& x = d.tensors[n];
    uint8_t* to = p[d.input_count] + start * out.strides[axis] * static_cast<int64_t>(unit);
    for_each<2>(x.dims, {&x.strides, &out.strides},
                [&](const auto& at) { std::memcpy(to + at[1] * unit, p[n] + at[0] * unit, unit); });
    start += x.dims[axis];
  }
}

}  // namespace hal::fake::kernels
