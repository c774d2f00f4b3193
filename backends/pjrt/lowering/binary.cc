// binary: halves are computed in f32 and rounded once; integers never trap.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "../rows.h"

namespace hal::pjrt {
namespace {

// Functions that XLA has under one name, for every dtype that the registry allows.
const char* plain(int32_t fn) {
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return "add";
    case ANYHAL_BINARY_FN_SUBTRACT:
      return "subtract";
    case ANYHAL_BINARY_FN_MULTIPLY:
      return "multiply";
    case ANYHAL_BINARY_FN_LOGICAL_AND:
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return "and";
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return "or";
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return "xor";
    default:
      return nullptr;
  }
}

const char* direction(int32_t fn) {
  switch (fn) {
    case ANYHAL_BINARY_FN_EQUAL:
      return "EQ";
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      return "NE";
    case ANYHAL_BINARY_FN_LESS:
      return "LT";
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return "LE";
    case ANYHAL_BINARY_FN_GREATER:
      return "GT";
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
      return "GE";
    default:
      return nullptr;
  }
}

// XLA's own may lose a NaN on the right.
Value extreme(Text& text, const char* op, const Value& a, const Value& b) {
  const Value found = text.binary(op, a, b);
  if (!is_float(a.dtype)) return found;
  const Value right = text.select(text.compare("NE", b, b), b, found);
  return text.select(text.compare("NE", a, a), a, right);
}

Value differ_in_sign(Text& text, const Value& a, const Value& b) {
  const Value zero = text.number_like(0, a);
  return text.map("xor", {text.compare("LT", a, zero), text.compare("LT", b, zero)},
                  ANYHAL_DTYPE_BOOL);
}

// Whether the quotient rounded toward zero lies above the true one.
Value rounded_up(Text& text, const Value& b, const Value& rest) {
  const Value zero = text.number_like(0, b);
  return text.binary("and", text.compare("NE", rest, zero), differ_in_sign(text, rest, b));
}

Value integer_division(Text& text, const Value& a, const Value& b, bool wants_rest) {
  const Value zero = text.number_like(0, b), one = text.number_like(1, b);
  const Value none = text.compare("EQ", b, zero);
  const Value by = text.select(none, one, b);
  const Value rest = text.binary("remainder", a, by);
  const Value up = rounded_up(text, by, rest);
  Value found = wants_rest ? text.select(up, text.binary("add", rest, by), rest)
                           : text.binary("divide", a, by);
  if (!wants_rest) found = text.select(up, text.binary("subtract", found, one), found);
  return text.select(none, zero, found);
}

Value copysign(Text& text, const Value& a, const Value& b);

// With the sign of b.
Value float_remainder(Text& text, const Value& a, const Value& b) {
  const Value rest = text.binary("remainder", a, b);
  const Value zero = text.compare("EQ", rest, text.number_like(0, rest));
  const Value moved = text.select(differ_in_sign(text, rest, b), text.binary("add", rest, b), rest);
  return text.select(zero, copysign(text, text.number_like(0, rest), b), moved);
}

// The quotient of what is left without the remainder is a whole number but for its rounding.
Value float_floor_divide(Text& text, const Value& a, const Value& b) {
  const Value zero = text.number_like(0, a), one = text.number_like(1, a);
  const Value quotient = text.divide(a, b);
  const Value rest = text.binary("remainder", a, b);
  const Value up =
      text.binary("and", text.compare("NE", rest, zero), differ_in_sign(text, rest, b));
  Value whole = text.divide(text.binary("subtract", a, rest), b);
  whole = text.select(up, text.binary("subtract", whole, one), whole);
  Value found = text.unary("floor", whole);
  const Value over =
      text.compare("GT", text.binary("subtract", whole, found), text.number_like(0.5, a));
  found = text.select(over, text.binary("add", found, one), found);
  found = text.select(text.compare("EQ", whole, zero), copysign(text, zero, quotient), found);
  return text.select(text.compare("EQ", b, zero), quotient, found);
}

// By squaring, one bit of the exponent after the other; a negative one leaves only units.
// A subnormal number as the zero of its sign, as is declared.
Value flushed(Text& text, const Value& x) {
  const double least = x.dtype == ANYHAL_DTYPE_F64 ? 0x1p-1022 : 0x1p-126;
  const Value small = text.compare("LT", text.unary("abs", x), text.number_like(least, x));
  return text.select(small, text.binary("multiply", x, text.number_like(0, x)), x);
}

// Of subnormal operands XLA makes neither their power nor that of zeros.
Value float_power(Text& text, const Value& a, const Value& b) {
  return text.binary("power", flushed(text, a), flushed(text, b));
}

Value integer_power(Text& text, const Value& a, const Value& b) {
  const Value zero = text.number_like(0, a), one = text.number_like(1, a);
  Value power = one, base = a;
  for (uint32_t bit = 0; bit < 8 * bytes_of(a.dtype); ++bit) {
    const Value mask = text.constant(std::to_string(uint64_t{1} << bit), bits_of(a.dtype), a.dims);
    const Value bits = text.bitcast(b, bits_of(b.dtype), b.dims);
    const Value unset =
        text.compare("EQ", text.binary("and", bits, mask), text.number_like(0, mask));
    power = text.select(unset, power, text.binary("multiply", power, base));
    base = text.binary("multiply", base, base);
  }
  if (!is_signed(a.dtype)) return power;
  const Value minus = text.number_like(-1, a);
  const Value odd = text.compare("NE", text.binary("and", b, one), zero);
  Value unit = text.select(text.compare("EQ", a, minus), text.select(odd, minus, one), zero);
  unit = text.select(text.compare("EQ", a, one), one, unit);
  return text.select(text.compare("LT", b, zero), unit, power);
}

Value hypot(Text& text, const Value& a, const Value& b) {
  const Value x = text.unary("abs", a), y = text.unary("abs", b), zero = text.number_like(0, a);
  const Value greater = text.compare("GT", x, y);
  const Value top = text.select(greater, x, y), low = text.select(greater, y, x);
  const Value ratio = text.divide(low, top);
  const Value scale = text.unary(
      "sqrt", text.binary("add", text.number_like(1, a), text.binary("multiply", ratio, ratio)));
  Value found = text.binary("multiply", top, scale);
  found = text.select(text.compare("EQ", top, zero), text.binary("add", top, low), found);
  const Value infinite = text.infinity(false, a.dtype, a.dims);
  const Value any =
      text.binary("or", text.compare("EQ", x, infinite), text.compare("EQ", y, infinite));
  return text.select(any, infinite, found);
}

// The stored bits, ordered as the numbers are; denormals and -0 have their places.
Value nextafter(Text& text, const Value& a, const Value& b) {
  const uint32_t whole = bytes_of(a.dtype) == 8   ? ANYHAL_DTYPE_I64
                         : bytes_of(a.dtype) == 4 ? ANYHAL_DTYPE_I32
                                                  : ANYHAL_DTYPE_I16;
  const Value zero = text.number(0, whole, a.dims), one = text.number(1, whole, a.dims);
  const int64_t low = std::numeric_limits<int64_t>::min() >> (64 - 8 * bytes_of(a.dtype));
  const Value least = text.constant(std::to_string(low), whole, a.dims);
  const auto mirrored = [&](const Value& x) {
    return text.select(text.compare("LT", x, zero), text.binary("subtract", least, x), x);
  };
  const Value from = mirrored(text.bitcast(a, whole, a.dims));
  const Value to = mirrored(text.bitcast(b, whole, b.dims));
  const Value up = text.compare("GT", to, from);
  const Value next =
      text.select(up, text.binary("add", from, one), text.binary("subtract", from, one));
  Value bits = mirrored(next);
  const Value end = text.compare("EQ", next, zero);
  bits = text.select(text.binary("and", end, text.compare("LT", from, zero)), least, bits);
  bits = text.select(text.compare("EQ", from, to), text.bitcast(b, whole, b.dims), bits);
  const Value found = text.bitcast(bits, a.dtype, a.dims);
  const Value none = text.binary("or", text.compare("NE", a, a), text.compare("NE", b, b));
  return text.select(none, text.nan(a.dtype, a.dims), found);
}

// Past the width all bits are gone, or all are the sign.
Value shift(Text& text, const Value& a, const Value& b, bool left) {
  const Value zero = text.number_like(0, b);
  const Value width = text.number_like(8.0 * bytes_of(b.dtype), b);
  const Value past = text.binary("or", text.compare("LT", b, zero), text.compare("GE", b, width));
  const Value by = text.select(past, zero, b);
  const char* op = left                 ? "shift_left"
                   : is_signed(a.dtype) ? "shift_right_arithmetic"
                                        : "shift_right_logical";
  Value gone = zero;
  if (!left && is_signed(a.dtype))
    gone = text.select(text.compare("LT", a, zero), text.number_like(-1, a), zero);
  return text.select(past, gone, text.binary(op, a, by));
}

Value logaddexp(Text& text, const Value& a, const Value& b) {
  const Value top = extreme(text, "maximum", a, b);
  const Value apart = text.unary("negate", text.unary("abs", text.binary("subtract", a, b)));
  const Value sum =
      text.binary("add", top, text.unary("log_plus_one", text.unary("exponential", apart)));
  return text.select(text.compare("EQ", a, b),
                     text.binary("add", a, text.number_like(0.69314718055994530942, a)), sum);
}

Value copysign(Text& text, const Value& a, const Value& b) {
  const uint32_t bits = bits_of(a.dtype);
  const uint64_t top = uint64_t{1} << (8 * bytes_of(a.dtype) - 1);
  const Value sign = text.constant(std::to_string(top), bits, a.dims);
  const Value rest = text.constant(std::to_string(top - 1), bits, a.dims);
  const Value size = text.binary("and", text.bitcast(a, bits, a.dims), rest);
  const Value from = text.binary("and", text.bitcast(b, bits, b.dims), sign);
  return text.bitcast(text.binary("or", size, from), a.dtype, a.dims);
}

Value computed(Text& text, int32_t fn, const Value& a, const Value& b) {
  if (fn == ANYHAL_BINARY_FN_DIVIDE) return text.divide(a, b);
  if (const char* op = plain(fn)) return text.binary(op, a, b);
  switch (fn) {
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return is_float(a.dtype) ? float_floor_divide(text, a, b)
                               : integer_division(text, a, b, false);
    case ANYHAL_BINARY_FN_REMAINDER:
      return is_float(a.dtype) ? float_remainder(text, a, b) : integer_division(text, a, b, true);
    case ANYHAL_BINARY_FN_HYPOT:
      return hypot(text, a, b);
    case ANYHAL_BINARY_FN_MAXIMUM:
      return extreme(text, "maximum", a, b);
    case ANYHAL_BINARY_FN_MINIMUM:
      return extreme(text, "minimum", a, b);
    case ANYHAL_BINARY_FN_SHIFT_LEFT:
      return shift(text, a, b, true);
    case ANYHAL_BINARY_FN_SHIFT_RIGHT:
      return shift(text, a, b, false);
    case ANYHAL_BINARY_FN_LOGADDEXP:
      return logaddexp(text, a, b);
    default:
      return is_float(a.dtype) ? float_power(text, a, b) : integer_power(text, a, b);
    case ANYHAL_BINARY_FN_ATAN2:
      return text.binary("atan2", flushed(text, a), flushed(text, b));
  }
}

}  // namespace

sdk::Answer binary_fits(const anyhal_op_desc& desc) {
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  const uint32_t dtype = sdk::operand(desc, 0).dtype, out = sdk::output(desc).dtype;
  if (out != (direction(fn) != nullptr ? uint32_t{ANYHAL_DTYPE_BOOL} : dtype))
    return sdk::invalid("the output's dtype is not that of the function", 2);
  return sdk::yes();
}

Value lower_binary(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  if (const char* how = direction(fn)) return text.compare(how, in[0], in[1]);
  if (fn == ANYHAL_BINARY_FN_COPYSIGN) return copysign(text, in[0], in[1]);
  if (fn == ANYHAL_BINARY_FN_NEXTAFTER) return nextafter(text, in[0], in[1]);
  const uint32_t compute = wide_of(in[0].dtype);
  return text.convert(
      computed(text, fn, text.convert(in[0], compute), text.convert(in[1], compute)), in[0].dtype);
}

}  // namespace hal::pjrt
