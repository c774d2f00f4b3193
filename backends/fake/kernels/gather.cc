// gather: slices of x chosen by indices along one axis.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {

void gather(const Description& d, const Pointers& p) {
  const Tensor &x = d.tensors[0], &indices = d.tensors[1], &out = d.tensors[2];
  const auto axis = static_cast<size_t>(d.attrs<anyhal_attrs_gather>().axis);
  const uint64_t unit = unit_bytes(x.dtype), index_unit = unit_bytes(indices.dtype);
  for_each<1>(indices.dims, {&indices.strides}, [&](const auto& at) {
    const int64_t index = load_int(indices.dtype, p[1] + at[0] * index_unit);
    if (index < 0 || index >= x.dims[axis]) index_fault(d, index, x.dims[axis]);
  });
  // Strides of x and of the indices along the dims of out: x[:axis] + indices + x[axis + 1:].
  std::vector<int64_t> along_x(x.strides.begin(), x.strides.begin() + static_cast<long>(axis));
  std::vector<int64_t> along_indices(axis, 0);
  along_x.resize(axis + indices.dims.size(), 0);
  along_indices.insert(along_indices.end(), indices.strides.begin(), indices.strides.end());
  along_x.insert(along_x.end(), x.strides.begin() + static_cast<long>(axis) + 1, x.strides.end());
  along_indices.resize(out.dims.size(), 0);
  for_each<3>(out.dims, {&along_x, &along_indices, &out.strides}, [&](const auto& at) {
    const int64_t index = load_int(indices.dtype, p[1] + at[1] * index_unit);
    std::memcpy(p[2] + at[2] * unit, p[0] + (at[0] + index * x.strides[axis]) * unit, unit);
  });
}

}  // namespace hal::fake::kernels
