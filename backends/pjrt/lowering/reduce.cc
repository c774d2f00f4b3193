// reduce: halves and small integers are summed wide; max and min keep NaN whatever XLA's default.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "../rows.h"

namespace hal::pjrt {
namespace {

// The least (or greatest) value of an integer dtype, as a literal.
std::string limit(uint32_t dtype, bool least) {
  const uint32_t bits = 8 * bytes_of(dtype);
  if (!is_signed(dtype))
    return least ? "0" : std::to_string(std::numeric_limits<uint64_t>::max() >> (64 - bits));
  const int64_t top = std::numeric_limits<int64_t>::max() >> (64 - bits);
  return std::to_string(least ? -top - 1 : top);
}

Value extreme(Text& text, const Value& x, bool largest, const std::vector<int64_t>& axes) {
  const char* op = largest ? "maximum" : "minimum";
  if (!is_float(x.dtype))
    return text.reduce(op, x, text.constant(limit(x.dtype, largest), x.dtype), axes);
  const Value found = text.reduce(op, x, text.infinity(largest, x.dtype), axes);
  const Value lost =
      text.reduce("or", text.compare("NE", x, x), text.constant("false", ANYHAL_DTYPE_BOOL), axes);
  return text.select(lost, text.nan(x.dtype, found.dims), found);
}

Value reduced(Text& text, int32_t fn, const Value& x, const std::vector<int64_t>& axes) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_MAX:
    case ANYHAL_REDUCE_FN_MIN:
      return extreme(text, x, fn == ANYHAL_REDUCE_FN_MAX, axes);
    case ANYHAL_REDUCE_FN_ANY:
      return text.reduce("or", x, text.constant("false", x.dtype), axes);
    case ANYHAL_REDUCE_FN_ALL:
      return text.reduce("and", x, text.constant("true", x.dtype), axes);
    case ANYHAL_REDUCE_FN_PROD:
      return text.reduce("multiply", x, text.number(1, x.dtype), axes);
    default:
      return text.reduce("add", x, text.number(0, x.dtype), axes);
  }
}

}  // namespace

Value lower_reduce(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const anyhal_tensor_desc& out = sdk::output(desc);
  const auto attrs = sdk::attributes<anyhal_attrs_reduce>(desc);
  std::vector<int64_t> axes;
  int64_t many = 1;
  for (size_t d = 0; d < in[0].dims.size(); ++d)
    if (attrs.axes >> d & 1) axes.push_back(static_cast<int64_t>(d)), many *= in[0].dims[d];
  const bool adds = attrs.fn == ANYHAL_REDUCE_FN_SUM || attrs.fn == ANYHAL_REDUCE_FN_PROD;
  uint32_t compute = wide_of(in[0].dtype);
  if (adds && sdk::kSigned.has(compute)) compute = ANYHAL_DTYPE_I64;
  if (adds && sdk::kUnsigned.has(compute)) compute = ANYHAL_DTYPE_U64;
  Value found = reduced(text, attrs.fn, text.convert(in[0], compute), axes);
  if (attrs.fn == ANYHAL_REDUCE_FN_MEAN)
    found = text.binary("divide", found, text.number_like(static_cast<double>(many), found));
  return text.reshape(text.convert(found, out.dtype), Dims(out.dims, out.dims + out.rank));
}

}  // namespace hal::pjrt
