// cast: floats round once, float to integer saturates, block formats are decoded.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "../rows.h"

namespace hal::pjrt {
namespace {

// Bytes [..., from, to) of each block.
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

Value shifted(Text& text, const Value& x, const char* op, int by) {
  return text.binary(op, x, text.number_like(by, x));
}

// [..., n, m] from [..., n * m].
Value folded(Text& text, const Value& x, const Dims& last) {
  Dims dims(x.dims.begin(), x.dims.end() - 1);
  dims.insert(dims.end(), last.begin(), last.end());
  return text.reshape(x, dims);
}

// 8 scales of 6 bits: 0 to 3 have a byte, 4 to 7 a nibble and the upper two bits above those.
Value six_bits(Text& text, const Value& first, const Value& nibble, const Value& above) {
  const Value low = text.binary("and", first, text.number_like(63, first));
  const Value top = shifted(text, shifted(text, above, "shift_right_logical", 6), "shift_left", 4);
  return text.concatenate({low, text.binary("or", nibble, top)}, low.dims.size() - 1);
}

Value decoded_q4_k(Text& text, const Value& blocks, uint32_t compute) {
  const Value a = bytes(text, blocks, 4, 8), b = bytes(text, blocks, 8, 12),
              c = bytes(text, blocks, 12, 16);
  const Value scales = six_bits(text, a, text.binary("and", c, text.number_like(15, c)), a);
  const Value minima = six_bits(text, b, shifted(text, c, "shift_right_logical", 4), b);
  const Value packed = folded(text, bytes(text, blocks, 16, 144), {4, 1, 32});
  const Value low = text.binary("and", packed, text.number_like(15, packed));
  const Value high = shifted(text, packed, "shift_right_logical", 4);
  Value codes = text.concatenate({low, high}, packed.dims.size() - 2);
  Dims dims(blocks.dims.begin(), blocks.dims.end() - 1);
  dims.insert(dims.end(), {8, 32});
  codes = text.convert(text.reshape(codes, dims), compute);
  const auto group = [&](const Value& six, int64_t at) {
    const Value wide = text.convert(six, compute);
    const Value product =
        text.binary("multiply", wide, along(text, half(text, blocks, at, compute), wide));
    return along(text, folded(text, product, {8, 1}), codes);
  };
  return text.binary("subtract", text.binary("multiply", codes, group(scales, 0)),
                     group(minima, 2));
}

Value decoded_q6_k(Text& text, const Value& blocks, uint32_t compute) {
  // [half, quarter, 32]: quarters 0 and 1 are low nibbles, 2 and 3 high ones.
  const Value low = folded(text, bytes(text, blocks, 0, 128), {2, 2, 32});
  const size_t axis = low.dims.size() - 2;
  const Value nibble = text.concatenate({text.binary("and", low, text.number_like(15, low)),
                                         shifted(text, low, "shift_right_logical", 4)},
                                        axis);
  const Value upper = folded(text, bytes(text, blocks, 128, 192), {2, 1, 32});
  std::vector<Value> tops;
  for (int quarter = 0; quarter < 4; ++quarter) {
    const Value two = shifted(text, upper, "shift_right_logical", 2 * quarter);
    tops.push_back(
        shifted(text, text.binary("and", two, text.number_like(3, two)), "shift_left", 4));
  }
  Value codes = text.binary("or", nibble, text.concatenate(tops, axis));
  Dims dims(blocks.dims.begin(), blocks.dims.end() - 1);
  dims.insert(dims.end(), {16, 16});
  codes = text.convert(text.reshape(codes, dims), compute);
  codes = text.binary("subtract", codes, text.number_like(32, codes));
  const Value small = bytes(text, blocks, 192, 208);
  const Value scales = text.convert(text.bitcast(small, ANYHAL_DTYPE_I8, small.dims), compute);
  const Value by =
      text.binary("multiply", scales, along(text, half(text, blocks, 208, compute), scales));
  return text.binary("multiply", codes, along(text, folded(text, by, {16, 1}), codes));
}

Value decoded(Text& text, const Value& in, uint32_t dtype, uint32_t compute) {
  Value blocks = in;
  blocks.dtype = ANYHAL_DTYPE_U8;
  if (dtype == ANYHAL_DTYPE_Q4_K) return decoded_q4_k(text, blocks, compute);
  if (dtype == ANYHAL_DTYPE_Q6_K) return decoded_q6_k(text, blocks, compute);
  const int64_t size = blocks.dims.back();
  if (dtype == ANYHAL_DTYPE_Q8_0) {
    const Value codes = bytes(text, blocks, 2, size);
    const Value wide = text.convert(text.bitcast(codes, ANYHAL_DTYPE_I8, codes.dims), compute);
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

// Toward zero, the ends for what lies outside, 0 for NaN. `bits` of a packed integer are 4.
Value float_to_int(Text& text, const Value& in, uint32_t dtype, uint32_t bits, bool with_sign) {
  const Value x = text.convert(in, wide_of(in.dtype));
  const double end = std::ldexp(1.0, static_cast<int>(with_sign ? bits - 1 : bits));
  const std::string most =
      with_sign ? std::to_string(std::numeric_limits<int64_t>::max() >> (64 - bits))
                : std::to_string(std::numeric_limits<uint64_t>::max() >> (64 - bits));
  const std::string least =
      with_sign ? std::to_string(std::numeric_limits<int64_t>::min() >> (64 - bits)) : "0";
  const Value above = text.compare("GE", x, text.number_like(end, x));
  const Value below = text.compare("LE", x, text.number_like(with_sign ? -end : 0, x));
  const Value none = text.compare("NE", x, x);
  const Value outside = text.binary("or", text.binary("or", above, below), none);
  const Value inside = text.convert(text.select(outside, text.number_like(0, x), x), dtype);
  Value out = text.select(above, text.constant(most, dtype, x.dims), inside);
  out = text.select(below, text.constant(least, dtype, x.dims), out);
  return text.select(none, text.number_like(0, out), out);
}

// Two elements into each byte, the first into the low nibble.
Value packed(Text& text, const Value& x, bool with_sign) {
  const Value whole = is_float(x.dtype) ? float_to_int(text, x, ANYHAL_DTYPE_I32, 4, with_sign)
                                        : text.convert(x, ANYHAL_DTYPE_I32);
  const Value four = text.binary("and", whole, text.number_like(15, whole));
  const Value pairs = folded(text, four, {x.dims.back() / 2, 2});
  const Value first = bytes(text, pairs, 0, 1), second = bytes(text, pairs, 1, 2);
  return text.convert(text.binary("or", first, shifted(text, second, "shift_left", 4)),
                      ANYHAL_DTYPE_U8);
}

// By the bits, since arithmetic takes denormals for 0.
Value is_not_zero(Text& text, const Value& x) {
  if (!is_float(x.dtype)) return text.compare("NE", x, text.number_like(0, x));
  const Value bits = text.bitcast(x, bits_of(x.dtype), x.dims);
  const Value shifted_out = shifted(text, bits, "shift_left", 1);
  return text.compare("NE", shifted_out, text.number_like(0, bits));
}

// Denormal f32 numbers are normal f64 ones: their bits count steps of 2^-149.
Value f32_to_f64(Text& text, const Value& x) {
  const Value bits = text.bitcast(x, ANYHAL_DTYPE_U32, x.dims);
  const Value size = text.binary("and", bits, text.constant("2147483647", bits.dtype, bits.dims));
  const Value small = text.compare("LT", size, text.number_like(1 << 23, bits));
  const Value steps = text.binary("multiply", text.convert(size, ANYHAL_DTYPE_F64),
                                  text.number(std::ldexp(1.0, -149), ANYHAL_DTYPE_F64, x.dims));
  const Value negative = text.compare("NE", bits, size);
  const Value exact = text.select(negative, text.unary("negate", steps), steps);
  return text.select(small, exact, text.convert(x, ANYHAL_DTYPE_F64));
}

uint32_t number8(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F8_E4M3FN:
      return kF8E4M3FN;
    case ANYHAL_DTYPE_F8_E5M2:
      return kF8E5M2;
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
      return kF8E4M3FNUZ;
    default:
      return kF8E5M2FNUZ;
  }
}

// f64 to f32 so that a second rounding cannot err: where bits are lost, the last one is odd.
Value round_to_odd(Text& text, const Value& x) {
  const Value near = text.convert(x, ANYHAL_DTYPE_F32);
  const Value back = text.convert(near, ANYHAL_DTYPE_F64);
  const Value bits = text.bitcast(near, ANYHAL_DTYPE_U32, near.dims);
  const Value one = text.number_like(1, bits);
  const Value even = text.compare("EQ", text.binary("and", bits, one), text.number_like(0, bits));
  const Value lost = text.compare("NE", back, x);
  const Value number = text.compare("EQ", x, x);
  const Value more = text.compare("GT", text.unary("abs", x), text.unary("abs", back));
  const Value odd =
      text.select(more, text.binary("add", bits, one), text.binary("subtract", bits, one));
  const Value moves = text.binary("and", text.binary("and", even, lost), number);
  return text.bitcast(text.select(moves, odd, bits), ANYHAL_DTYPE_F32, near.dims);
}

// The largest finite number, and the half step above it from which on there is no number.
struct Top {
  double largest, edge;
};
Top top_of(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F8_E4M3FN:
      return {448, 464};
    case ANYHAL_DTYPE_F8_E5M2:
    case ANYHAL_DTYPE_F8_E5M2FNUZ:
      return {57344, 61440};
    default:
      return {240, 248};
  }
}

Value to_number8(Text& text, const Value& in, uint32_t dtype, bool saturates) {
  Value x = in;
  if (!is_float(x.dtype)) x = text.convert(x, ANYHAL_DTYPE_F64);
  x = x.dtype == ANYHAL_DTYPE_F64 ? round_to_odd(text, x) : text.convert(x, ANYHAL_DTYPE_F32);
  const Top top = top_of(dtype);
  const Value none = text.compare("NE", x, x);
  // The half step goes to the even code, which is 448 in e4m3fn and above the last one elsewhere.
  const char* beyond = dtype == ANYHAL_DTYPE_F8_E4M3FN ? "GT" : "GE";
  const Value past = text.compare(beyond, text.unary("abs", x), text.number_like(top.edge, x));
  const Value negative = text.compare("LT", x, text.number_like(0, x));
  const Value largest =
      text.select(negative, text.number_like(-top.largest, x), text.number_like(top.largest, x));
  Value kept = text.select(past, largest, x);
  kept = text.select(none, text.number_like(0, x), kept);
  const uint32_t number = number8(dtype);
  Value code = text.bitcast(text.convert(kept, number), ANYHAL_DTYPE_U8, x.dims);
  const bool fnuz = number == kF8E4M3FNUZ || number == kF8E5M2FNUZ;
  const Value sign = text.select(negative, text.number_like(128, code), text.number_like(0, code));
  if (!saturates) {
    // e5m2 has an infinity; in the others the way out is their NaN.
    Value out = fnuz ? text.number_like(0x80, code) : text.number_like(0x7f, code);
    if (number == kF8E5M2) out = text.binary("or", text.number_like(0x7c, code), sign);
    code = text.select(past, out, code);
  }
  return text.select(none, text.number_like(fnuz ? 0x80 : 0x7f, code), code);
}

}  // namespace

sdk::Answer cast_fits(const anyhal_op_desc& desc) {
  const uint32_t from = sdk::operand(desc, 0).dtype, to = sdk::operand(desc, 1).dtype;
  const int32_t overflow = sdk::attributes<anyhal_attrs_cast>(desc).overflow;
  if (sdk::kBlocks.has(to) || (sdk::kBlocks.has(from) && !is_float(to)))
    return sdk::no(ANYHAL_REASON_DTYPE, "block formats become floats and are not made", 1);
  const bool stated = overflow == ANYHAL_OVERFLOW_SATURATE || overflow == ANYHAL_OVERFLOW_NONFINITE;
  if (!stated && overflow != ANYHAL_OVERFLOW_UNSTATED)
    return sdk::no(ANYHAL_REASON_ATTRIBUTE, "no such choice of what lies past an 8-bit float");
  if (sdk::kF8.has(to) != stated)
    return sdk::invalid("what lies past an 8-bit float is stated there and only there");
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
  } else if (sdk::kF8.has(from)) {
    x.dtype = ANYHAL_DTYPE_U8;
    x = text.convert(text.bitcast(x, number8(from), x.dims), ANYHAL_DTYPE_F32);
  }
  if (to == ANYHAL_DTYPE_BOOL) return x.dtype == to ? x : is_not_zero(text, x);
  if (sdk::kPacked.has(to)) return packed(text, x, to == ANYHAL_DTYPE_I4);
  if (sdk::kF8.has(to))
    return to_number8(
        text, x, to, sdk::attributes<anyhal_attrs_cast>(desc).overflow == ANYHAL_OVERFLOW_SATURATE);
  if (is_float(x.dtype) && !is_float(to))
    return float_to_int(text, x, to, 8 * bytes_of(to), is_signed(to));
  if (to == ANYHAL_DTYPE_F64 && x.dtype == ANYHAL_DTYPE_BF16) x = text.convert(x, ANYHAL_DTYPE_F32);
  if (to == ANYHAL_DTYPE_F64 && x.dtype == ANYHAL_DTYPE_F32) return f32_to_f64(text, x);
  if (x.dtype == ANYHAL_DTYPE_F64 && sdk::kHalves.has(to)) x = round_to_odd(text, x);
  return text.convert(x, to);
}

}  // namespace hal::pjrt
