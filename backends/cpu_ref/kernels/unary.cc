// unary: one function of each element. f16 and bf16 are computed in f32 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "activation.h"
#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class T, class Out, class Fn>
void map(const Call& call, Fn fn) {
  const T* x = call.view<const T>(0).data();
  Out* out = call.view<Out>(1).data();
  sdk::Rows<2> rows({&sdk::operand(call.desc(), 0), &sdk::operand(call.desc(), 1)});
  const int64_t x_stride = rows.row_strides[0], out_stride = rows.row_strides[1];
  rows.each([&](const int64_t (&at)[2]) {
    const T* from = x + at[0];
    Out* to = out + at[1];
    for (int64_t i = 0; i < rows.row_count; ++i) {
      sdk::Compute<T> value = from[i * x_stride];
      to[i * out_stride] = sdk::convert<Out>(fn(value));
    }
  });
}

// log(1 + e^x); the larger of x and 0 stands outside, so nothing overflows or cancels.
template <class C>
C softplus(C x) {
  if (x != x) return x;
  return std::fmax(x, C(0)) + std::log1p(std::exp(-std::fabs(x)));
}

template <class T>
void map_float(const Call& call, int32_t fn) {
  using C = sdk::Compute<T>;
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return map<T, T>(call, [](C x) { return -x; });
    case ANYHAL_UNARY_FN_ABS:
      return map<T, T>(call, [](C x) { return std::fabs(x); });
    case ANYHAL_UNARY_FN_SIGN:
      return map<T, T>(call, [](C x) { return x > 0 ? C(1) : x < 0 ? C(-1) : x; });
    case ANYHAL_UNARY_FN_EXP:
      return map<T, T>(call, [](C x) { return std::exp(x); });
    case ANYHAL_UNARY_FN_EXPM1:
      return map<T, T>(call, [](C x) { return std::expm1(x); });
    case ANYHAL_UNARY_FN_LOG:
      return map<T, T>(call, [](C x) { return std::log(x); });
    case ANYHAL_UNARY_FN_LOG1P:
      return map<T, T>(call, [](C x) { return std::log1p(x); });
    case ANYHAL_UNARY_FN_SQRT:
      return map<T, T>(call, [](C x) { return std::sqrt(x); });
    case ANYHAL_UNARY_FN_RSQRT:
      return map<T, T>(call, [](C x) { return 1.0 / std::sqrt(static_cast<double>(x)); });
    case ANYHAL_UNARY_FN_RECIPROCAL:
      return map<T, T>(call, [](C x) { return C(1) / x; });
    case ANYHAL_UNARY_FN_SIN:
      return map<T, T>(call, [](C x) { return std::sin(x); });
    case ANYHAL_UNARY_FN_COS:
      return map<T, T>(call, [](C x) { return std::cos(x); });
    case ANYHAL_UNARY_FN_TANH:
      return map<T, T>(call, [](C x) { return std::tanh(x); });
    case ANYHAL_UNARY_FN_ERF:
      return map<T, T>(call, [](C x) { return std::erf(x); });
    case ANYHAL_UNARY_FN_FLOOR:
      return map<T, T>(call, [](C x) { return std::floor(x); });
    case ANYHAL_UNARY_FN_CEIL:
      return map<T, T>(call, [](C x) { return std::ceil(x); });
    // nearbyint follows the rounding mode, which is nearest even and which nobody here changes.
    case ANYHAL_UNARY_FN_ROUND:
      return map<T, T>(call, [](C x) { return std::nearbyint(x); });
    case ANYHAL_UNARY_FN_TRUNC:
      return map<T, T>(call, [](C x) { return std::trunc(x); });
    case ANYHAL_UNARY_FN_ISNAN:
      return map<T, sdk::boolean>(call, [](C x) { return sdk::boolean(x != x); });
    case ANYHAL_UNARY_FN_ISINF:
      return map<T, sdk::boolean>(call, [](C x) { return sdk::boolean(std::isinf(x)); });
    case ANYHAL_UNARY_FN_ISFINITE:
      return map<T, sdk::boolean>(call, [](C x) { return sdk::boolean(std::isfinite(x)); });
    case ANYHAL_UNARY_FN_SIGMOID:
      return map<T, T>(call, [](C x) { return sigmoid(x); });
    case ANYHAL_UNARY_FN_RELU:
      return map<T, T>(call, [](C x) { return x < 0 ? C(0) : x; });
    case ANYHAL_UNARY_FN_SILU:
      return map<T, T>(call, [](C x) { return silu(x); });
    case ANYHAL_UNARY_FN_GELU:
      return map<T, T>(call, [](C x) { return gelu(x); });
    case ANYHAL_UNARY_FN_GELU_TANH:
      return map<T, T>(call, [](C x) { return gelu_tanh(x); });
    case ANYHAL_UNARY_FN_TAN:
      return map<T, T>(call, [](C x) { return std::tan(x); });
    case ANYHAL_UNARY_FN_ASIN:
      return map<T, T>(call, [](C x) { return std::asin(x); });
    case ANYHAL_UNARY_FN_ACOS:
      return map<T, T>(call, [](C x) { return std::acos(x); });
    case ANYHAL_UNARY_FN_ATAN:
      return map<T, T>(call, [](C x) { return std::atan(x); });
    case ANYHAL_UNARY_FN_SINH:
      return map<T, T>(call, [](C x) { return std::sinh(x); });
    case ANYHAL_UNARY_FN_COSH:
      return map<T, T>(call, [](C x) { return std::cosh(x); });
    case ANYHAL_UNARY_FN_ASINH:
      return map<T, T>(call, [](C x) { return std::asinh(x); });
    case ANYHAL_UNARY_FN_ACOSH:
      return map<T, T>(call, [](C x) { return std::acosh(x); });
    case ANYHAL_UNARY_FN_ATANH:
      return map<T, T>(call, [](C x) { return std::atanh(x); });
    case ANYHAL_UNARY_FN_LOG2:
      return map<T, T>(call, [](C x) { return std::log2(x); });
    case ANYHAL_UNARY_FN_LOG10:
      return map<T, T>(call, [](C x) { return std::log10(x); });
    case ANYHAL_UNARY_FN_EXP2:
      return map<T, T>(call, [](C x) { return std::exp2(x); });
    case ANYHAL_UNARY_FN_SQUARE:
      return map<T, T>(call, [](C x) { return x * x; });
    case ANYHAL_UNARY_FN_POSITIVE:
      return map<T, T>(call, [](C x) { return x; });
    case ANYHAL_UNARY_FN_SIGNBIT:
      return map<T, sdk::boolean>(call, [](C x) { return sdk::boolean(std::signbit(x)); });
    case ANYHAL_UNARY_FN_SOFTPLUS:
      return map<T, T>(call, [](C x) { return softplus(x); });
  }
}

template <class T>
void map_int(const Call& call, int32_t fn) {
  using U = std::make_unsigned_t<T>;  // wraps where T would overflow
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return map<T, T>(call, [](T x) { return static_cast<T>(U(0) - static_cast<U>(x)); });
    case ANYHAL_UNARY_FN_ABS:
      return map<T, T>(call,
                       [](T x) { return x < T(0) ? static_cast<T>(U(0) - static_cast<U>(x)) : x; });
    case ANYHAL_UNARY_FN_SIGN:
      return map<T, T>(call, [](T x) { return static_cast<T>((x > T(0)) - (x < T(0))); });
    case ANYHAL_UNARY_FN_BITWISE_NOT:
      return map<T, T>(call, [](T x) { return static_cast<T>(~x); });
    case ANYHAL_UNARY_FN_SQUARE:  // widened first: small types would multiply as int
      return map<T, T>(call, [](T x) {
        const uint64_t wide = static_cast<uint64_t>(x);
        return static_cast<T>(wide * wide);
      });
    case ANYHAL_UNARY_FN_POSITIVE:
      return map<T, T>(call, [](T x) { return x; });
  }
}

}  // namespace

void unary(const Call& call) {
  const int32_t fn = sdk::attributes<anyhal_attrs_unary>(call.desc()).fn;
  const uint32_t dtype = sdk::operand(call.desc(), 0).dtype;
  sdk::visit(sdk::FloatTypes{}, dtype,
             [&](auto t) { map_float<typename decltype(t)::is>(call, fn); });
  sdk::visit(sdk::IntTypes{}, dtype, [&](auto t) { map_int<typename decltype(t)::is>(call, fn); });
  if (dtype == ANYHAL_DTYPE_BOOL)  // both functions of bool are "not"
    map<sdk::boolean, sdk::boolean>(call, [](sdk::boolean x) { return sdk::boolean(!x); });
}

}  // namespace hal::cpu_ref
