// scatter_add: adds slices of updates to the rows that indices name.
// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>

#include "kernels.hh"

namespace hal::fake::kernels {
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
  const bool floats = family(out.dtype) == Family::kFloat;
  std::unordered_map<int64_t, double> sums;  // rounded once, however many updates meet
  for_each<3>(updates.dims, {&along_out, &along_indices, &updates.strides}, [&](const auto& at) {
    const int64_t index = load_int(indices.dtype, p[1] + at[1] * index_unit);
    const int64_t place = at[0] + index * out.strides[axis];
    uint8_t* to = p[3] + place * unit;
    const uint8_t* from = p[2] + at[2] * unit;
    if (floats) {
      sums.try_emplace(place, load_float(out.dtype, to)).first->second +=
          load_float(out.dtype, from);
    } else {
      store_int(out.dtype, to,
                static_cast<int64_t>(static_cast<uint64_t>(load_int(out.dtype, to)) +
                                     static_cast<uint64_t>(load_int(out.dtype, from))));
    }
  });
  for (const auto& [place, sum] : sums) store_float(out.dtype, p[3] + place * unit, sum);
}

}  // namespace hal::fake::kernels
