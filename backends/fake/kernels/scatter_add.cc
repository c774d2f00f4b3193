// scatter_add: adds slices of updates to the rows that indices name.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {
namespace {

void add(uint32_t dtype, uint8_t* to, const uint8_t* from) {
  if (family(dtype) == Family::kFloat)
    return store_float(dtype, to, load_float(dtype, to) + load_float(dtype, from));
  store_int(dtype, to,
            static_cast<int64_t>(static_cast<uint64_t>(load_int(dtype, to)) +
                                 static_cast<uint64_t>(load_int(dtype, from))));
}

}  // namespace

void scatter_add(const Description& d, const Pointers& p) {
  const Tensor &target = d.tensors[0], &indices = d.tensors[1], &updates = d.tensors[2];
  const Tensor& out = d.tensors[3];
  const auto axis = static_cast<size_t>(d.attrs<anyhal_attrs_scatter_add>().axis);
  const uint64_t unit = unit_bytes(out.dtype), index_unit = unit_bytes(indices.dtype);
  for_each<1>(indices.dims, {&indices.strides}, [&](const auto& at) {
    const int64_t index = load_int(indices.dtype, p[1] + at[0] * index_unit);
    if (index < 0 || index >= out.dims[axis]) index_fault(d, index, out.dims[axis]);
  });
  if (p[0] != p[3]) {
    for_each<2>(out.dims, {&target.strides, &out.strides}, [&](const auto& at) {
      std::memcpy(p[3] + at[1] * unit, p[0] + at[0] * unit, unit);
    });
  }
  std::vector<int64_t> along_out(out.strides.begin(),
                                 out.strides.begin() + static_cast<long>(axis));
  std::vector<int64_t> along_indices(axis, 0);
  along_out.resize(axis + indices.dims.size(), 0);
  along_indices.insert(along_indices.end(), indices.strides.begin(), indices.strides.end());
  along_out.insert(along_out.end(), out.strides.begin() + static_cast<long>(axis) + 1,
                   out.strides.end());
  along_indices.resize(updates.dims.size(), 0);
  for_each<3>(updates.dims, {&along_out, &along_indices, &updates.strides}, [&](const auto& at) {
    const int64_t index = load_int(indices.dtype, p[1] + at[1] * index_unit);
    add(out.dtype, p[3] + (at[0] + index * out.strides[axis]) * unit, p[2] + at[2] * unit);
  });
}

}  // namespace hal::fake::kernels
