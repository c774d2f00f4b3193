// unary: one function of each element.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {
namespace {

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

double apply_float(int32_t fn, double x) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return -x;
    case ANYHAL_UNARY_FN_ABS:
      return std::fabs(x);
    case ANYHAL_UNARY_FN_SIGN:
      return std::isnan(x) ? x : (x > 0) - (x < 0);
    case ANYHAL_UNARY_FN_EXP:
      return std::exp(x);
    case ANYHAL_UNARY_FN_EXPM1:
      return std::expm1(x);
    case ANYHAL_UNARY_FN_LOG:
      return std::log(x);
    case ANYHAL_UNARY_FN_LOG1P:
      return std::log1p(x);
    case ANYHAL_UNARY_FN_SQRT:
      return std::sqrt(x);
    case ANYHAL_UNARY_FN_RSQRT:
      return 1 / std::sqrt(x);
    case ANYHAL_UNARY_FN_RECIPROCAL:
      return 1 / x;
    case ANYHAL_UNARY_FN_SIN:
      return std::sin(x);
    case ANYHAL_UNARY_FN_COS:
      return std::cos(x);
    case ANYHAL_UNARY_FN_TANH:
      return std::tanh(x);
    case ANYHAL_UNARY_FN_ERF:
      return std::erf(x);
    case ANYHAL_UNARY_FN_FLOOR:
      return std::floor(x);
    case ANYHAL_UNARY_FN_CEIL:
      return std::ceil(x);
    case ANYHAL_UNARY_FN_ROUND:
      return std::nearbyint(x);
    case ANYHAL_UNARY_FN_TRUNC:
      return std::trunc(x);
    case ANYHAL_UNARY_FN_SIGMOID:
      return 1 / (1 + std::exp(-x));
    case ANYHAL_UNARY_FN_RELU:
      return std::isnan(x) || x > 0 ? x : 0;
    case ANYHAL_UNARY_FN_SILU:
      return x / (1 + std::exp(-x));
    case ANYHAL_UNARY_FN_GELU:
      return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
    case ANYHAL_UNARY_FN_GELU_TANH:
      return gelu_tanh(x);
    case ANYHAL_UNARY_FN_TAN:
      return std::tan(x);
    case ANYHAL_UNARY_FN_ASIN:
      return std::asin(x);
    case ANYHAL_UNARY_FN_ACOS:
      return std::acos(x);
    case ANYHAL_UNARY_FN_ATAN:
      return std::atan(x);
    case ANYHAL_UNARY_FN_SINH:
      return std::sinh(x);
    case ANYHAL_UNARY_FN_COSH:
      return std::cosh(x);
    case ANYHAL_UNARY_FN_ASINH:
      return std::asinh(x);
    case ANYHAL_UNARY_FN_ACOSH:
      return std::acosh(x);
    case ANYHAL_UNARY_FN_ATANH:
      return std::atanh(x);
    case ANYHAL_UNARY_FN_LOG2:
      return std::log2(x);
    case ANYHAL_UNARY_FN_LOG10:
      return std::log10(x);
    case ANYHAL_UNARY_FN_EXP2:
      return std::exp2(x);
    case ANYHAL_UNARY_FN_SQUARE:
      return x * x;
    case ANYHAL_UNARY_FN_SOFTPLUS:
      return std::isnan(x) ? x : std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
    default:
      return x;  // positive
  }
}

int64_t apply_int(int32_t fn, int64_t x, bool is_unsigned) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return static_cast<int64_t>(0 - static_cast<uint64_t>(x));
    case ANYHAL_UNARY_FN_ABS:
      return x < 0 && !is_unsigned ? static_cast<int64_t>(0 - static_cast<uint64_t>(x)) : x;
    case ANYHAL_UNARY_FN_SIGN:
      return is_unsigned ? x != 0 : (x > 0) - (x < 0);
    case ANYHAL_UNARY_FN_LOGICAL_NOT:
      return x == 0;
    case ANYHAL_UNARY_FN_BITWISE_NOT:
      return ~x;
    case ANYHAL_UNARY_FN_ISFINITE:
      return 1;
    case ANYHAL_UNARY_FN_ISNAN:
    case ANYHAL_UNARY_FN_ISINF:
      return 0;
    case ANYHAL_UNARY_FN_RELU:
      return x < 0 && !is_unsigned ? 0 : x;
    case ANYHAL_UNARY_FN_SQUARE:
      return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
    default:
      return x;  // positive; floor, ceil, round, trunc of a whole number
  }
}

bool test_float(int32_t fn, double x) {
  if (fn == ANYHAL_UNARY_FN_ISNAN) return std::isnan(x);
  if (fn == ANYHAL_UNARY_FN_SIGNBIT) return std::signbit(x);
  return fn == ANYHAL_UNARY_FN_ISINF ? std::isinf(x) : std::isfinite(x);
}

}  // namespace

void unary(const Description& d, const Pointers& p) {
  const Tensor &x = d.tensors[0], &out = d.tensors[1];
  const int32_t fn = d.attrs<anyhal_attrs_unary>().fn;
  const bool floats = family(x.dtype) == Family::kFloat;
  const bool is_unsigned = family(x.dtype) == Family::kUnsigned;
  for_each<2>(out.dims, {&x.strides, &out.strides}, [&](const auto& at) {
    const uint8_t* from = p[0] + at[0] * unit_bytes(x.dtype);
    uint8_t* to = p[1] + at[1] * unit_bytes(out.dtype);
    if (floats && out.dtype == ANYHAL_DTYPE_BOOL) {
      store_int(out.dtype, to, test_float(fn, load_float(x.dtype, from)));
    } else if (floats) {
      store_float(out.dtype, to, apply_float(fn, load_float(x.dtype, from)));
    } else if (x.dtype == ANYHAL_DTYPE_BOOL && fn == ANYHAL_UNARY_FN_BITWISE_NOT) {
      store_int(out.dtype, to, *from == 0);
    } else {
      store_int(out.dtype, to, apply_int(fn, load_int(x.dtype, from), is_unsigned));
    }
  });
}

}  // namespace hal::fake::kernels
