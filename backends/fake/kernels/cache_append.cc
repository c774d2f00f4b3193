// cache_append: writes rows into a cache in place, behind each batch entry's position.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {

void cache_append(const Description& d, const Pointers& p) {
  const Tensor &update = d.tensors[1], &position = d.tensors[2], &out = d.tensors[3];
  const uint64_t unit = unit_bytes(out.dtype);
  const int64_t room = out.dims[2] - update.dims[2];
  std::vector<int64_t> rows(static_cast<size_t>(update.dims[0]));
  for (int64_t b = 0; b < update.dims[0]; ++b) {
    const int64_t at = position.dims.empty() ? 0 : b * position.strides[0];
    rows[b] = load_int(position.dtype, p[2] + at * unit_bytes(position.dtype));
    if (rows[b] < 0 || rows[b] > room) index_fault(d, rows[b], room + 1);
  }
  const std::vector<int64_t> counter = {1, 0, 0, 0};  // counts the batch entry
  for_each<3>(update.dims, {&update.strides, &out.strides, &counter}, [&](const auto& at) {
    std::memcpy(p[3] + (at[1] + rows[at[2]] * out.strides[2]) * unit, p[1] + at[0] * unit, unit);
  });
}

}  // namespace hal::fake::kernels
