// softmax: of each row along one axis, in double, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {

void softmax(const Description& d, const Pointers& p) {
  const Tensor &x = d.tensors[0], &out = d.tensors[1];
  const auto axis = static_cast<size_t>(d.attrs<anyhal_attrs_softmax>().axis);
  const int64_t width = x.dims[axis];
  std::vector<double> row(static_cast<size_t>(width));
  for_each<2>(without(x.dims, axis, width == 0 ? 0 : 1), {&x.strides, &out.strides},
              [&](const auto& at) {
                double top = -HUGE_VAL, sum = 0;
                for (int64_t i = 0; i < width; ++i) {
                  const int64_t from = at[0] + i * x.strides[axis];
                  row[i] = load_float(x.dtype, p[0] + from * unit_bytes(x.dtype));
                  if (std::isnan(row[i]) || row[i] > top) top = row[i];
                }
                for (double& value : row) sum += value = std::exp(value - top);
                for (int64_t i = 0; i < width; ++i) {
                  const int64_t to = at[1] + i * out.strides[axis];
                  store_float(out.dtype, p[1] + to * unit_bytes(out.dtype), row[i] / sum);
                }
              });
}

}  // namespace hal::fake::kernels
