// unary: halves are computed in f32 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "../rows.h"

namespace hal::pjrt {
namespace {

// Functions that XLA has under one name.
const char* plain(int32_t fn) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return "negate";
    case ANYHAL_UNARY_FN_EXP:
      return "exponential";
    case ANYHAL_UNARY_FN_EXPM1:
      return "exponential_minus_one";
    case ANYHAL_UNARY_FN_LOG:
      return "log";
    case ANYHAL_UNARY_FN_SQRT:
      return "sqrt";
    case ANYHAL_UNARY_FN_RSQRT:
      return "rsqrt";
    case ANYHAL_UNARY_FN_SIN:
      return "sine";
    case ANYHAL_UNARY_FN_COS:
      return "cosine";
    case ANYHAL_UNARY_FN_TANH:
      return "tanh";
    case ANYHAL_UNARY_FN_FLOOR:
      return "floor";
    case ANYHAL_UNARY_FN_CEIL:
      return "ceil";
    case ANYHAL_UNARY_FN_ROUND:
      return "round_nearest_even";
    case ANYHAL_UNARY_FN_ERF:
      return "chlo.erf";
    case ANYHAL_UNARY_FN_ASIN:
      return "chlo.asin";
    case ANYHAL_UNARY_FN_ACOS:
      return "chlo.acos";
    case ANYHAL_UNARY_FN_ASINH:
      return "chlo.asinh";
    case ANYHAL_UNARY_FN_ACOSH:
      return "chlo.acosh";
    case ANYHAL_UNARY_FN_LOGICAL_NOT:
    case ANYHAL_UNARY_FN_BITWISE_NOT:
      return "not";
    default:
      return nullptr;
  }
}

Value magnitude(Text& text, const Value& x) {
  return is_float(x.dtype) || is_signed(x.dtype) ? text.unary("abs", x) : x;
}

Value sign(Text& text, const Value& x) {
  const Value zero = text.number_like(0, x), one = text.number_like(1, x);
  if (!is_float(x.dtype) && !is_signed(x.dtype))
    return text.select(text.compare("EQ", x, zero), zero, one);
  // x * 0 is a zero of its sign or NaN; a subnormal number that compares like 0 is 0.
  const Value rest = text.binary("multiply", x, zero);
  const Value low = text.select(text.compare("LT", x, zero), text.number_like(-1, x), rest);
  return text.select(text.compare("GT", x, zero), one, low);
}

// 1 / (1 + exp(-x)) without overflow on either side.
Value sigmoid(Text& text, const Value& x) {
  const Value one = text.number_like(1, x);
  const Value e = text.unary("exponential", text.unary("negate", magnitude(text, x)));
  const Value top = text.select(text.compare("GE", x, text.number_like(0, x)), one, e);
  const Value value = text.binary("divide", top, text.binary("add", one, e));
  return text.select(text.compare("NE", x, x), x, value);
}

// x * gate, where a gate of 0 at x = -inf gives -0.
Value gated(Text& text, const Value& x, const Value& gate) {
  const Value low = text.compare("EQ", x, text.infinity(true, x.dtype, x.dims));
  return text.select(low, text.number_like(-0.0, x), text.binary("multiply", x, gate));
}

Value gelu_tanh(Text& text, const Value& x) {
  const Value cube = text.binary("multiply", text.binary("multiply", x, x), x);
  const Value inner =
      text.binary("add", x, text.binary("multiply", text.number_like(0.044715, x), cube));
  const double scale = 2 * std::sqrt(2 / M_PI);
  return gated(text, x, sigmoid(text, text.binary("multiply", text.number_like(scale, x), inner)));
}

// log(u) + (x - (u - 1)) / u with u = 1 + x rounded: what the rounding lost comes back. XLA's own
// is past 4 ulp in f64.
Value long_log1p(Text& text, const Value& x) {
  const Value one = text.number_like(1, x);
  const Value u = text.map("optimization_barrier", {text.binary("add", x, one)});
  const Value lost = text.binary("subtract", x, text.binary("subtract", u, one));
  const Value log = text.unary("log", u);
  const Value found = text.binary("add", log, text.binary("divide", lost, u));
  // Beyond 2^54 nothing is lost; at -1 and infinity the quotient is NaN.
  const Value inside = text.compare("LT", magnitude(text, log), text.number_like(38, x));
  const Value tiny = text.compare("LT", magnitude(text, x), text.number_like(1e-17, x));
  return text.select(tiny, x, text.select(inside, found, log));
}

Value log1p(Text& text, const Value& x) {
  return x.dtype == ANYHAL_DTYPE_F64 ? long_log1p(text, x) : text.unary("log_plus_one", x);
}

Value softplus(Text& text, const Value& x) {
  const Value zero = text.number_like(0, x);
  const Value e = text.unary("exponential", text.unary("negate", magnitude(text, x)));
  const Value top = text.select(text.compare("LT", x, zero), zero, x);
  return text.binary("add", top, log1p(text, e));
}

// exp(x) / 2 as a square, which overflows no sooner than the function; near 0 by expm1.
Value hyperbolic(Text& text, const Value& x, bool odd) {
  const Value half = text.number_like(0.5, x), one = text.number_like(1, x);
  const Value size = magnitude(text, x);
  const Value root = text.unary("exponential", text.binary("multiply", size, half));
  const Value far = text.binary("multiply", text.binary("multiply", root, half), root);
  const Value e = text.unary("exponential_minus_one", size);
  const Value back = text.binary("divide", e, text.binary("add", e, one));
  // sinh: (e + e / (e + 1)) / 2; cosh: 1 + (e - e / (e + 1)) / 2.
  const Value sum = text.binary("multiply", half, text.binary(odd ? "add" : "subtract", e, back));
  const Value near = odd ? sum : text.binary("add", one, sum);
  const Value found = text.select(text.compare("GT", size, text.number_like(20, x)), far, near);
  if (!odd) return found;
  const Value negative = text.compare("LT", x, text.number_like(0, x));
  const Value zero = text.compare("EQ", x, text.number_like(0, x));
  return text.select(zero, x, text.select(negative, text.unary("negate", found), found));
}

// log1p(2|x| / (1 - |x|)) / 2 with the sign of x.
Value atanh(Text& text, const Value& x) {
  const Value size = magnitude(text, x), one = text.number_like(1, x);
  const Value ratio =
      text.binary("divide", text.binary("add", size, size), text.binary("subtract", one, size));
  const Value found = text.binary("multiply", log1p(text, ratio), text.number_like(0.5, x));
  const Value negative = text.compare("LT", x, text.number_like(0, x));
  const Value zero = text.compare("EQ", x, text.number_like(0, x));
  return text.select(zero, x, text.select(negative, text.unary("negate", found), found));
}

// t * (1 + s * (c[0] + s * (c[1] + ...))) with s = t^2, for an odd function.
Value odd_series(Text& text, const Value& t, const std::vector<double>& terms) {
  const Value square = text.binary("multiply", t, t);
  Value sum = text.number_like(0, t);
  for (auto term = terms.rbegin(); term != terms.rend(); ++term)
    sum = text.binary("multiply", text.binary("add", sum, text.number_like(*term, t)), square);
  return text.binary("multiply", t, text.binary("add", text.number_like(1, t), sum));
}

// Of 0 to 1: in f32 Abramowitz and Stegun 4.4.49, off by 2e-8 at most; in f64 the series at a
// quarter of the angle.
Value near_atan(Text& text, const Value& t) {
  if (t.dtype == ANYHAL_DTYPE_F32)
    return odd_series(text, t,
                      {-0.3333314528, 0.1999355085, -0.1420889944, 0.1065626393, -0.0752896400,
                       0.0429096138, -0.0161657367, 0.0028662257});
  const Value one = text.number_like(1, t);
  Value part = t;
  for (int halving = 0; halving < 2; ++halving) {
    const Value square = text.binary("multiply", part, part);
    const Value root = text.unary("sqrt", text.binary("add", one, square));
    part = text.binary("divide", part, text.binary("add", one, root));
  }
  std::vector<double> terms;
  for (int n = 1; n <= 13; ++n) terms.push_back((n % 2 == 0 ? 1.0 : -1.0) / (2 * n + 1));
  return text.binary("multiply", odd_series(text, part, terms), text.number_like(4, t));
}

Value own_atan(Text& text, const Value& x) {
  const Value one = text.number_like(1, x), size = magnitude(text, x);
  const Value far = text.compare("GT", size, one);
  const Value near = near_atan(text, text.select(far, text.binary("divide", one, size), size));
  const Value turned = text.binary("subtract", text.number_like(M_PI_2, x), near);
  const Value found = text.select(far, turned, near);
  const Value negative = text.compare("LT", x, text.number_like(0, x));
  const Value tiny = text.compare("LT", size, text.number_like(1e-9, x));
  return text.select(tiny, x, text.select(negative, text.unary("negate", found), found));
}

// -t / (t + 2) with t = expm1(-2|x|); XLA's own is past 5 ulp in f64.
Value long_tanh(Text& text, const Value& x) {
  const Value size = magnitude(text, x);
  const Value t =
      text.unary("exponential_minus_one", text.binary("multiply", size, text.number_like(-2, x)));
  const Value found = text.binary("divide", t, text.binary("add", t, text.number_like(2, x)));
  const Value tiny = text.compare("LT", size, text.number_like(1e-9, x));
  const Value negative = text.compare("LT", x, text.number_like(0, x));
  return text.select(tiny, x, text.select(negative, found, text.unary("negate", found)));
}

Value computed(Text& text, int32_t fn, const Value& x) {
  if (const char* op = plain(fn)) return text.unary(op, x);
  const Value zero = text.number_like(0, x);
  switch (fn) {
    case ANYHAL_UNARY_FN_ABS:
      return magnitude(text, x);
    case ANYHAL_UNARY_FN_SIGN:
      return sign(text, x);
    case ANYHAL_UNARY_FN_RECIPROCAL:
      return text.binary("divide", text.number_like(1, x), x);
    case ANYHAL_UNARY_FN_TRUNC:
      return text.select(text.compare("LT", x, zero), text.unary("ceil", x),
                         text.unary("floor", x));
    case ANYHAL_UNARY_FN_ISNAN:
      return text.compare("NE", x, x);
    case ANYHAL_UNARY_FN_ISINF:
      return text.compare("EQ", magnitude(text, x), text.infinity(false, x.dtype, x.dims));
    case ANYHAL_UNARY_FN_ISFINITE:
      return text.map("is_finite", {x}, ANYHAL_DTYPE_BOOL);
    case ANYHAL_UNARY_FN_SIGMOID:
      return sigmoid(text, x);
    case ANYHAL_UNARY_FN_RELU:
      return text.select(text.compare("LT", x, zero), zero, x);
    case ANYHAL_UNARY_FN_SILU:
      return gated(text, x, sigmoid(text, x));
    case ANYHAL_UNARY_FN_GELU_TANH:
      return gelu_tanh(text, x);
    case ANYHAL_UNARY_FN_GELU: {
      const Value scaled = text.binary("multiply", x, text.number_like(-std::sqrt(0.5), x));
      const Value tail = text.unary("chlo.erfc", scaled);
      return gated(text, x, text.binary("multiply", tail, text.number_like(0.5, x)));
    }
    case ANYHAL_UNARY_FN_ATAN:
      // Plugin 0.115 mixes up lanes where a loop of many turns holds its own.
      return own_atan(text, x);
    case ANYHAL_UNARY_FN_LOG1P:
      return log1p(text, x);
    case ANYHAL_UNARY_FN_SINH:
    case ANYHAL_UNARY_FN_COSH:
      return hyperbolic(text, x, fn == ANYHAL_UNARY_FN_SINH);
    case ANYHAL_UNARY_FN_ATANH:
      return atanh(text, x);
    case ANYHAL_UNARY_FN_TAN:
      return text.binary("divide", text.unary("sine", x), text.unary("cosine", x));
    case ANYHAL_UNARY_FN_LOG2:
      return text.binary("divide", text.unary("log", x), text.number_like(M_LN2, x));
    case ANYHAL_UNARY_FN_LOG10:
      return text.binary("divide", text.unary("log", x), text.number_like(M_LN10, x));
    case ANYHAL_UNARY_FN_EXP2:
      return text.binary("power", text.number_like(2, x), x);
    case ANYHAL_UNARY_FN_SQUARE:
      return text.binary("multiply", x, x);
    case ANYHAL_UNARY_FN_SOFTPLUS:
      return softplus(text, x);
    default:
      return x;  // positive
  }
}

Value signbit(Text& text, const Value& x) {
  const Value bits = text.bitcast(x, bits_of(x.dtype), x.dims);
  const Value top =
      text.number_like(std::ldexp(1.0, static_cast<int>(8 * bytes_of(x.dtype) - 1)), bits);
  return text.compare("GE", bits, top);
}

}  // namespace

sdk::Answer unary_fits(const anyhal_op_desc& desc) {
  const uint32_t from = sdk::operand(desc, 0).dtype, to = sdk::operand(desc, 1).dtype;
  switch (sdk::attributes<anyhal_attrs_unary>(desc).fn) {
    case ANYHAL_UNARY_FN_ISNAN:
    case ANYHAL_UNARY_FN_ISINF:
    case ANYHAL_UNARY_FN_ISFINITE:
    case ANYHAL_UNARY_FN_SIGNBIT:
      return to == ANYHAL_DTYPE_BOOL ? sdk::yes() : sdk::invalid("the output is bool", 1);
    default:
      return from == to ? sdk::yes() : sdk::invalid("the dtypes differ", 1);
  }
}

Value lower_unary(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const int32_t fn = sdk::attributes<anyhal_attrs_unary>(desc).fn;
  if (fn == ANYHAL_UNARY_FN_SIGNBIT) return signbit(text, in[0]);
  // XLA's own expm1 is past 3 ulp in f32 here and there.
  const bool by_expm1 = fn == ANYHAL_UNARY_FN_EXPM1 || fn == ANYHAL_UNARY_FN_SINH;
  const bool doubled = by_expm1 && in[0].dtype == ANYHAL_DTYPE_F32;
  const Value x = text.convert(in[0], doubled ? uint32_t{ANYHAL_DTYPE_F64} : wide_of(in[0].dtype));
  const bool tanh = fn == ANYHAL_UNARY_FN_TANH && x.dtype == ANYHAL_DTYPE_F64;
  Value found = tanh ? long_tanh(text, x) : computed(text, fn, x);
  if (fn == ANYHAL_UNARY_FN_ASIN) {  // XLA halves its argument, which may flush
    const Value tiny = text.compare("LT", magnitude(text, x), text.number_like(1e-9, x));
    found = text.select(tiny, x, found);
  }
  return text.convert(found, sdk::output(desc).dtype);
}

}  // namespace hal::pjrt
