// binary: halves are computed in f32 and rounded once; integers never trap.
// SPDX-License-Identifier: Apache-2.0
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
    case ANYHAL_BINARY_FN_DIVIDE:
      return "divide";
    case ANYHAL_BINARY_FN_ATAN2:
      return "atan2";
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

// Whether the quotient rounded toward zero lies above the true one.
Value rounded_up(Text& text, const Value& b, const Value& rest) {
  const Value zero = text.number_like(0, b);
  const Value differ = text.map(
      "xor", {text.compare("LT", rest, zero), text.compare("LT", b, zero)}, ANYHAL_DTYPE_BOOL);
  return text.binary("and", text.compare("NE", rest, zero), differ);
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

// Past the width all bits are gone, or all are the sign.
Value shift(Text& text, const Value& a, const Value& b, bool left) {
  const Value zero = text.number_like(0, b);
  const Value width = text.number_like(8.0 * bytes_of(b.dtype), b);
  const Value past =
      text.binary("or", text.compare("LT", b, zero), text.compare("GE", b, width));
  const Value by = text.select(past, zero, b);
  const char* op = left ? "shift_left"
                        : is_signed(a.dtype) ? "shift_right_arithmetic" : "shift_right_logical";
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
  if (const char* op = plain(fn)) return text.binary(op, a, b);
  switch (fn) {
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return integer_division(text, a, b, false);
    case ANYHAL_BINARY_FN_REMAINDER:
      return integer_division(text, a, b, true);
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
      return text.binary("power", a, b);
  }
}

}  // namespace

sdk::Answer binary_fits(const anyhal_op_desc& desc) {
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  const uint32_t dtype = sdk::operand(desc, 0).dtype, out = sdk::output(desc).dtype;
  if (out != (direction(fn) != nullptr ? uint32_t{ANYHAL_DTYPE_BOOL} : dtype))
    return sdk::invalid("the output's dtype is not that of the function", 2);
  switch (fn) {
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
    case ANYHAL_BINARY_FN_REMAINDER:
      return is_float(dtype) ? sdk::no(ANYHAL_REASON_DTYPE, "only integers divide so here", 0)
                             : sdk::yes();
    case ANYHAL_BINARY_FN_POW:
      return is_float(dtype) ? sdk::yes()
                             : sdk::no(ANYHAL_REASON_DTYPE, "only floats have powers here", 0);
    case ANYHAL_BINARY_FN_NEXTAFTER:
    case ANYHAL_BINARY_FN_HYPOT:
      return sdk::no(ANYHAL_REASON_ATTRIBUTE, "StableHLO has no such function");
    default:
      return sdk::yes();
  }
}

Value lower_binary(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  if (const char* how = direction(fn)) return text.compare(how, in[0], in[1]);
  if (fn == ANYHAL_BINARY_FN_COPYSIGN) return copysign(text, in[0], in[1]);
  const uint32_t compute = wide_of(in[0].dtype);
  return text.convert(computed(text, fn, text.convert(in[0], compute), text.convert(in[1], compute)),
                      in[0].dtype);
}

}  // namespace hal::pjrt
