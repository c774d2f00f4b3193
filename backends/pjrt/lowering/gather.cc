// gather: XLA clamps positions outside the axis; here they are noted, and what they read is poison
// (NaN, or -1, which is no position), so that whatever follows refuses it too.
// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "positions.h"

namespace hal::pjrt {
namespace {

Value poison_like(Text& text, const Value& x) {
  if (is_float(x.dtype)) return text.nan(x.dtype, x.dims);
  if (is_signed(x.dtype)) return text.number(-1, x.dtype, x.dims);
  return text.number_like(0, x);
}

}  // namespace

Value lower_gather(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const anyhal_tensor_desc& out = sdk::output(desc);
  const int64_t axis = sdk::attributes<anyhal_attrs_gather>(desc).axis;
  Dims dims(out.dims, out.dims + out.rank);
  if (in[0].dims.size() > sdk::operand(desc, 0).rank) {  // bytes of a block format
    dims.back() = in[0].dims[in[0].dims.size() - 2];
    dims.push_back(in[0].dims.back());
  }
  const int64_t bound = in[0].dims[static_cast<size_t>(axis)];
  const Inside inside = check_positions(text, in[1], bound);
  Value empty{"", in[0].dtype, dims};
  if (bound == 0) return poison_like(text, empty);
  const Value found =
      text.gather(in[0], text.select(inside.each, in[1], text.number_like(0, in[1])), axis);
  std::vector<int64_t> axes(in[1].dims.size());
  std::iota(axes.begin(), axes.end(), axis);
  return text.select(text.broadcast(inside.each, found.dims, axes), found,
                     poison_like(text, found));
}

}  // namespace hal::pjrt
