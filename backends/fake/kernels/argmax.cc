// argmax: the lowest index of the largest element; NaN is the largest.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {
namespace {

bool greater(uint32_t dtype, const uint8_t* a, const uint8_t* b) {
  if (family(dtype) == Family::kFloat) {
    const double x = load_float(dtype, a), y = load_float(dtype, b);
    return std::isnan(x) ? !std::isnan(y) : x > y;
  }
  if (family(dtype) == Family::kSigned) return load_int(dtype, a) > load_int(dtype, b);
  return static_cast<uint64_t>(load_int(dtype, a)) > static_cast<uint64_t>(load_int(dtype, b));
}

}  // namespace

void argmax(const Description& d, const Pointers& p) {
  const Tensor &x = d.tensors[0], &out = d.tensors[1];
  const auto axis = static_cast<size_t>(d.attrs<anyhal_attrs_argmax>().axis);
  const uint64_t unit = unit_bytes(x.dtype);
  for_each<2>(out.dims, {&x.strides, &out.strides}, [&](const auto& at) {
    int64_t best = 0;
    for (int64_t i = 1; i < x.dims[axis]; ++i)
      if (greater(x.dtype, p[0] + (at[0] + i * x.strides[axis]) * unit,
                  p[0] + (at[0] + best * x.strides[axis]) * unit))
        best = i;
    store_int(out.dtype, p[1] + at[1] * unit_bytes(out.dtype), best);
  });
}

}  // namespace hal::fake::kernels
