// unary: one function of each element.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

HAL_DEVICE double sigmoid(double x) {  // neither branch overflows
  const double e = exp(-fabs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
// x * gate, with the limit -0 at -infinity instead of NaN.
HAL_DEVICE double gated(double x, double gate) {
  return x < -1.7976931348623157e308 ? -0.0 : x * gate;
}
HAL_DEVICE double gelu_tanh(double x) {  // x/2 (1 + tanh u) = x sigmoid(2u)
  return gated(x, sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
HAL_DEVICE double softplus(double x) {  // log(1 + e^x) without overflow; NaN stays
  return (x > 0 ? x : x != x ? x : 0) + log1p(exp(-fabs(x)));
}

HAL_DEVICE double of_float(int fn, double x) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return -x;
    case ANYHAL_UNARY_FN_ABS:
      return fabs(x);
    case ANYHAL_UNARY_FN_SIGN:
      return x > 0 ? 1 : x < 0 ? -1 : x;  // NaN stays
    case ANYHAL_UNARY_FN_EXP:
      return exp(x);
    case ANYHAL_UNARY_FN_EXPM1:
      return expm1(x);
    case ANYHAL_UNARY_FN_LOG:
      return log(x);
    case ANYHAL_UNARY_FN_LOG1P:
      return log1p(x);
    case ANYHAL_UNARY_FN_SQRT:
      return sqrt(x);
    case ANYHAL_UNARY_FN_RSQRT:
      return 1 / sqrt(x);
    case ANYHAL_UNARY_FN_RECIPROCAL:
      return 1 / x;
    case ANYHAL_UNARY_FN_SIN:
      return sin(x);
    case ANYHAL_UNARY_FN_COS:
      return cos(x);
    case ANYHAL_UNARY_FN_TANH:
      return tanh(x);
    case ANYHAL_UNARY_FN_ERF:
      return erf(x);
    case ANYHAL_UNARY_FN_FLOOR:
      return floor(x);
    case ANYHAL_UNARY_FN_CEIL:
      return ceil(x);
    case ANYHAL_UNARY_FN_ROUND:
      return rint(x);  // half to even
    case ANYHAL_UNARY_FN_TRUNC:
      return trunc(x);
    case ANYHAL_UNARY_FN_ISNAN:
      return x != x;
    case ANYHAL_UNARY_FN_ISINF:
      return fabs(x) > 1.7976931348623157e308;
    case ANYHAL_UNARY_FN_ISFINITE:
      return fabs(x) <= 1.7976931348623157e308;
    case ANYHAL_UNARY_FN_SIGMOID:
      return sigmoid(x);
    case ANYHAL_UNARY_FN_RELU:
      return x < 0 ? 0 : x;  // NaN stays
    case ANYHAL_UNARY_FN_SILU:
      return gated(x, sigmoid(x));
    case ANYHAL_UNARY_FN_GELU:  // erfc keeps the digits that 1 + erf would cancel
      return gated(x, erfc(-x * 0.70710678118654752440) / 2);
    case ANYHAL_UNARY_FN_GELU_TANH:
      return gelu_tanh(x);
    case ANYHAL_UNARY_FN_TAN:
      return tan(x);
    case ANYHAL_UNARY_FN_ASIN:
      return asin(x);
    case ANYHAL_UNARY_FN_ACOS:
      return acos(x);
    case ANYHAL_UNARY_FN_ATAN:
      return atan(x);
    case ANYHAL_UNARY_FN_SINH:
      return sinh(x);
    case ANYHAL_UNARY_FN_COSH:
      return cosh(x);
    case ANYHAL_UNARY_FN_ASINH:
      return asinh(x);
    case ANYHAL_UNARY_FN_ACOSH:
      return acosh(x);
    case ANYHAL_UNARY_FN_ATANH:
      return atanh(x);
    case ANYHAL_UNARY_FN_LOG2:
      return log2(x);
    case ANYHAL_UNARY_FN_LOG10:
      return log10(x);
    case ANYHAL_UNARY_FN_EXP2:
      return exp2(x);
    case ANYHAL_UNARY_FN_SQUARE:
      return x * x;
    case ANYHAL_UNARY_FN_SIGNBIT:
      return copysign(1.0, x) < 0;
    case ANYHAL_UNARY_FN_SOFTPLUS:
      return softplus(x);
    default:
      return x;  // positive
  }
}

HAL_DEVICE long long of_integer(int fn, int dtype, long long x) {
  const long long minus = (long long)(0 - (unsigned long long)x);  // wraps
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return minus;
    case ANYHAL_UNARY_FN_ABS:
      return x < 0 && !is_unsigned(dtype) ? minus : x;
    case ANYHAL_UNARY_FN_SIGN:
      return is_unsigned(dtype) ? x != 0 : (x > 0) - (x < 0);
    case ANYHAL_UNARY_FN_SQUARE:
      return (long long)((unsigned long long)x * (unsigned long long)x);
    case ANYHAL_UNARY_FN_POSITIVE:
      return x;
    default:
      return dtype == kBool ? x == 0 : ~x;  // logical_not, bitwise_not
  }
}

HAL_KERNEL(anyhal_unary, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    if (!is_float(p.dtype)) {
      const long long x = load_int(p.dtype, data_of(p, 0), place.at[0]);
      store_int(p.out_dtype, p.side[1].data, place.at[1], of_integer(p.fn, p.dtype, x));
      continue;
    }
    const double y = of_float(p.fn, load_float(p.dtype, data_of(p, 0), place.at[0]));
    if (is_float(p.out_dtype)) {
      store_float(p.out_dtype, p.side[1].data, place.at[1], y);
    } else {
      store_int(p.out_dtype, p.side[1].data, place.at[1], y != 0);
    }
  }
}

}  // namespace hal::cuda
