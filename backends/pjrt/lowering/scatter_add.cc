// scatter_add: one position outside the axis, and no update is made.
// SPDX-License-Identifier: Apache-2.0
#include "positions.h"

namespace hal::pjrt {

Value lower_scatter_add(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const int64_t axis = sdk::attributes<anyhal_attrs_scatter_add>(desc).axis;
  const int64_t bound = in[0].dims[static_cast<size_t>(axis)];
  const Inside inside = check_positions(text, in[1], bound);
  if (in[0].count() == 0 || in[2].count() == 0) return in[0];
  const uint32_t compute = wide_of(in[0].dtype);
  // XLA drops updates past the end.
  const Value at = text.select(text.broadcast(inside.all, in[1].dims, {}), in[1],
                               text.number_like(static_cast<double>(bound), in[1]));
  const Value sum =
      text.scatter_add(text.convert(in[0], compute), at, text.convert(in[2], compute), axis);
  return text.convert(sum, in[0].dtype);
}

}  // namespace hal::pjrt
