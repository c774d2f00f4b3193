// cast: floats round once, float to integer saturates, block formats are decoded.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "../rows.h"

namespace hal::pjrt {
namespace {

constexpr sdk::Dtypes kDecoded =
    sdk::dtypes(ANYHAL_DTYPE_Q4_0, ANYHAL_DTYPE_Q4_1, ANYHAL_DTYPE_Q8_0);

// Bytes [..., from, to) of each block, as they are or as one number per two bytes.
Value bytes(Text& text, const Value& blocks, int64_t from, int64_t to) {
  Dims start(blocks.dims.size(), 0), stop = blocks.dims, step(blocks.dims.size(), 1);
  start.back() = from, stop.back() = to;
  return text.slice(blocks, start, stop, step);
}

Value half(Text& text, const Value& blocks, int64_t at, uint32_t compute) {
  Dims dims = blocks.dims;
  dims.pop_back();
  const Value number = text.bitcast(bytes(text, blocks, at, at + 2), ANYHAL_DTYPE_F16, dims);
  dims.push_back(1);
  return text.convert(text.reshape(number, dims), compute);
}

// Low nibbles, then high ones, along the last dim.
Value nibbles(Text& text, const Value& packed) {
  const Value low = text.binary("and", packed, text.number_like(15, packed));
  const Value high = text.binary("shift_right_logical", packed, text.number_like(4, packed));
  return text.concatenate({low, high}, packed.dims.size() - 1);
}

Value along(Text& text, const Value& scale, const Value& like) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < like.dims.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  return text.broadcast(scale, like.dims, axes);
}

Value decoded(Text& text, const Value& in, uint32_t dtype, uint32_t compute) {
  Value blocks = in;
  blocks.dtype = ANYHAL_DTYPE_U8;
  const int64_t size = blocks.dims.back();
  if (dtype == ANYHAL_DTYPE_Q8_0) {
    const Value codes = text.bitcast(bytes(text, blocks, 2, size), ANYHAL_DTYPE_I8,
                                     bytes(text, blocks, 2, size).dims);
    const Value wide = text.convert(codes, compute);
    return text.binary("multiply", wide, along(text, half(text, blocks, 0, compute), wide));
  }
  const bool minimum = dtype == ANYHAL_DTYPE_Q4_1;
  Value codes = text.convert(nibbles(text, bytes(text, blocks, minimum ? 4 : 2, size)), compute);
  if (!minimum) codes = text.binary("subtract", codes, text.number_like(8, codes));
  const Value scaled =
      text.binary("multiply", codes, along(text, half(text, blocks, 0, compute), codes));
  if (!minimum) return scaled;
  return text.binary("add", scaled, along(text, half(text, blocks, 2, compute), codes));
}

// Two elements in a byte, the first in the low nibble.
Value unpacked(Text& text, const Value& in, bool with_sign) {
  Value packed = in;
  packed.dtype = ANYHAL_DTYPE_U8;
  Value pairs = nibbles(text, packed);
  if (!with_sign) return pairs;
  const Value wide = text.convert(pairs, ANYHAL_DTYPE_I32);
  const Value negative = text.compare("GE", wide, text.number_like(8, wide));
  return text.select(negative, text.binary("subtract", wide, text.number_like(16, wide)), wide);
}

Value float_to_int(Text& text, const Value& in, uint32_t dtype) {
  const Value x = text.convert(in, wide_of(in.dtype));
  const uint32_t bits = 8 * bytes_of(dtype);
  const double end = std::ldexp(1.0, static_cast<int>(is_signed(dtype) ? bits - 1 : bits));
  const double low = is_signed(dtype) ? -end : 0;
  const std::string most =
      is_signed(dtype) ? std::to_string(std::numeric_limits<int64_t>::max() >> (64 - bits))
                       : std::to_string(std::numeric_limits<uint64_t>::max() >> (64 - bits));
  const std::string least = is_signed(dtype)
                                ? std::to_string((std::numeric_limits<int64_t>::min)() >> (64 - bits))
                                : "0";
  const Value above = text.compare("GE", x, text.number_like(end, x));
  const Value below = text.compare("LE", x, text.number_like(low, x));
  const Value none = text.compare("NE", x, x);
  const Value outside = text.binary("or", text.binary("or", above, below), none);
  const Value inside = text.convert(text.select(outside, text.number_like(0, x), x), dtype);
  Value out = text.select(above, text.constant(most, dtype, x.dims), inside);
  out = text.select(below, text.constant(least, dtype, x.dims), out);
  return text.select(none, text.number_like(0, out), out);
}

}  // namespace

sdk::Answer cast_fits(const anyhal_op_desc& desc) {
  const uint32_t from = sdk::operand(desc, 0).dtype, to = sdk::operand(desc, 1).dtype;
  if (!sdk::kPlain.has(to))
    return sdk::no(ANYHAL_REASON_DTYPE, "8-bit floats and packed integers are not made here", 1);
  if (sdk::kBlocks.has(from) && (!kDecoded.has(from) || !is_float(to)))
    return sdk::no(ANYHAL_REASON_DTYPE, "this format is not decoded here", 0);
  return sdk::yes();
}

Value lower_cast(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const anyhal_tensor_desc& out = sdk::output(desc);
  const uint32_t from = sdk::operand(desc, 0).dtype, to = out.dtype;
  const Dims dims(out.dims, out.dims + out.rank);
  Value x = in[0];
  if (sdk::kBlocks.has(from)) {
    x = text.reshape(decoded(text, x, from, wide_of(to)), dims);
  } else if (sdk::kPacked.has(from)) {
    x = text.reshape(unpacked(text, x, from == ANYHAL_DTYPE_I4), dims);
  }
  if (to == ANYHAL_DTYPE_BOOL)
    return x.dtype == to ? x : text.compare("NE", x, text.number_like(0, x));
  if (is_float(x.dtype) && !is_float(to)) return float_to_int(text, x, to);
  return text.convert(x, to);
}

}  // namespace hal::pjrt
