// matmul: the product by its definition, summed in double or in 64-bit integers.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {

void matmul(const Description& d, const Pointers& p) {
  const Tensor &a = d.tensors[0], &b = d.tensors[1], &out = d.tensors[2];
  const size_t rank = out.dims.size(), row = rank - 2, column = rank - 1;
  const int64_t depth = a.dims[column];
  const int64_t step_a = a.strides[column] * static_cast<int64_t>(unit_bytes(a.dtype));
  const int64_t step_b = b.strides[row] * static_cast<int64_t>(unit_bytes(b.dtype));
  const auto rows = without(a.strides, column, 0), columns = without(b.strides, row, 0);
  const bool floats = family(a.dtype) == Family::kFloat;
  for_each<3>(out.dims, {&rows, &columns, &out.strides}, [&](const auto& at) {
    const uint8_t* x = p[0] + at[0] * static_cast<int64_t>(unit_bytes(a.dtype));
    const uint8_t* y = p[1] + at[1] * static_cast<int64_t>(unit_bytes(b.dtype));
    uint8_t* to = p[2] + at[2] * static_cast<int64_t>(unit_bytes(out.dtype));
    double real = 0;
    uint64_t whole = 0;
    for (int64_t k = 0; k < depth; ++k, x += step_a, y += step_b) {
      if (floats) {
        real += load_float(a.dtype, x) * load_float(b.dtype, y);
      } else {
        whole += static_cast<uint64_t>(load_int(a.dtype, x)) *
                 static_cast<uint64_t>(load_int(b.dtype, y));
      }
    }
    if (floats) {
      store_float(out.dtype, to, real);
    } else {
      store_int(out.dtype, to, static_cast<int64_t>(whole));
    }
  });
}

}  // namespace hal::fake::kernels
