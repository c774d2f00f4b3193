// unary: one function of each number.
// SPDX-License-Identifier: Apache-2.0
#include "elementwise.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

template <class T>
constexpr bool kFloating = __is_same(T, float) || __is_same(T, double);
template <class T>
constexpr bool kSignedNumber = static_cast<T>(-1) < static_cast<T>(0);

// Integers are negated as unsigned: the lowest one wraps onto itself.
template <class T>
inline T negate(T x) {
  if constexpr (kFloating<T>)
    return -x;
  else
    return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
}

struct Neg {
  template <class T>
  static T apply(T x) {
    return negate(x);
  }
};
struct Abs {
  static float apply(float x) { return absolute(x); }
  static double apply(double x) { return __builtin_fabs(x); }
  template <class T>
  static T apply(T x) {
    return x < 0 ? negate(x) : x;
  }
};
struct Sign {
  template <class T>
  static T apply(T x) {
    if constexpr (kFloating<T>) {
      T one = x > 0 ? T{1} : T{-1};
      return x == 0 || x != x ? x : one;  // NaN and the zeros stay
    } else {
      return static_cast<T>((x > 0 ? 1 : 0) - (kSignedNumber<T> && x < 0 ? 1 : 0));
    }
  }
};

// A function that has its own f32 form and the C library's f64 form.
#define HAL_CPU_REAL(Name, f32_form, f64_form)         \
  struct Name {                                        \
    static float apply(float x) { return f32_form; }   \
    static double apply(double x) { return f64_form; } \
  };
HAL_CPU_REAL(Exp, exp_f32(x), __builtin_exp(x))
HAL_CPU_REAL(Expm1, __builtin_expm1f(x), __builtin_expm1(x))
HAL_CPU_REAL(Log, __builtin_logf(x), __builtin_log(x))
HAL_CPU_REAL(Log1p, __builtin_log1pf(x), __builtin_log1p(x))
HAL_CPU_REAL(Sqrt, __builtin_sqrtf(x), __builtin_sqrt(x))
HAL_CPU_REAL(Rsqrt, 1.0f / __builtin_sqrtf(x), 1.0 / __builtin_sqrt(x))
HAL_CPU_REAL(Reciprocal, 1.0f / x, 1.0 / x)
HAL_CPU_REAL(Sin, __builtin_sinf(x), __builtin_sin(x))
HAL_CPU_REAL(Cos, __builtin_cosf(x), __builtin_cos(x))
HAL_CPU_REAL(Tanh, tanh_f32(x), __builtin_tanh(x))
HAL_CPU_REAL(Erf, erf_f32(x), __builtin_erf(x))
HAL_CPU_REAL(Floor, __builtin_floorf(x), __builtin_floor(x))
HAL_CPU_REAL(Ceil, __builtin_ceilf(x), __builtin_ceil(x))
HAL_CPU_REAL(Round, __builtin_rintf(x), __builtin_rint(x))
HAL_CPU_REAL(Trunc, __builtin_truncf(x), __builtin_trunc(x))

inline double sigmoid_f64(double x) {
  double e = __builtin_exp(-__builtin_fabs(x));
  return x < 0 ? e / (1.0 + e) : 1.0 / (1.0 + e);
}
inline double ended(double x, double y) { return x == -__builtin_inf() ? -0.0 : y; }
HAL_CPU_REAL(Sigmoid, sigmoid_f32(x), sigmoid_f64(x))
HAL_CPU_REAL(Silu, silu_f32(x), ended(x, x* sigmoid_f64(x)))
HAL_CPU_REAL(Gelu, gelu_erf_f32(x), ended(x, 0.5 * x * __builtin_erfc(x * -0.70710678118654752)))
HAL_CPU_REAL(GeluTanh, gelu_tanh_f32(x),
             ended(x, x* sigmoid_f64(1.5957691216057308 * (x + 0.044715 * x * x * x))))
HAL_CPU_REAL(Tan, __builtin_tanf(x), __builtin_tan(x))
HAL_CPU_REAL(Asin, __builtin_asinf(x), __builtin_asin(x))
HAL_CPU_REAL(Acos, __builtin_acosf(x), __builtin_acos(x))
HAL_CPU_REAL(Atan, __builtin_atanf(x), __builtin_atan(x))
HAL_CPU_REAL(Sinh, __builtin_sinhf(x), __builtin_sinh(x))
HAL_CPU_REAL(Cosh, __builtin_coshf(x), __builtin_cosh(x))
HAL_CPU_REAL(Asinh, __builtin_asinhf(x), __builtin_asinh(x))
HAL_CPU_REAL(Acosh, __builtin_acoshf(x), __builtin_acosh(x))
HAL_CPU_REAL(Atanh, __builtin_atanhf(x), __builtin_atanh(x))
HAL_CPU_REAL(Log2, __builtin_log2f(x), __builtin_log2(x))
HAL_CPU_REAL(Log10, __builtin_log10f(x), __builtin_log10(x))
HAL_CPU_REAL(Exp2, __builtin_exp2f(x), __builtin_exp2(x))
#undef HAL_CPU_REAL

struct Square {
  static float apply(float x) { return x * x; }
  static double apply(double x) { return x * x; }
  template <class T>
  static T apply(T x) {
    return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
  }
};
struct Positive {
  template <class T>
  static T apply(T x) {
    return x;
  }
};
struct SignBit {
  template <class T>
  static uint8_t apply(T x) {
    return __builtin_signbit(x) != 0 ? 1 : 0;
  }
};
// log(1 + e^x): the larger of x and 0 stands outside, so nothing overflows; NaN stays.
struct Softplus {
  static float apply(float x) {
    return (x < 0 ? 0 : x) + __builtin_log1pf(__builtin_expf(-absolute(x)));
  }
  static double apply(double x) {
    return (x < 0 ? 0 : x) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x)));
  }
};

struct Relu {
  template <class T>
  static T apply(T x) {
    return x < 0 ? T{0} : x;
  }
};
struct BitwiseNot {
  template <class T>
  static T apply(T x) {
    return static_cast<T>(~x);
  }
};
struct LogicalNot {
  static uint8_t apply(uint8_t x) { return x == 0 ? 1 : 0; }
};
struct IsNan {
  template <class T>
  static uint8_t apply(T x) {
    return x != x ? 1 : 0;
  }
};
struct IsInf {
  template <class T>
  static uint8_t apply(T x) {
    if constexpr (kFloating<T>)
      return x == static_cast<T>(__builtin_inf()) || x == static_cast<T>(-__builtin_inf()) ? 1 : 0;
    return 0;
  }
};
struct IsFinite {
  template <class T>
  static uint8_t apply(T x) {
    if constexpr (kFloating<T>) return x - x == 0 ? 1 : 0;
    return 1;
  }
};

template <class F, class T>
constexpr Inner kSame = map_run<F, T, T>;
template <class F, class T>
constexpr Inner kTest = map_run<F, T, uint8_t>;

template <class T>
Inner float_function(int32_t fn) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return kSame<Neg, T>;
    case ANYHAL_UNARY_FN_ABS:
      return kSame<Abs, T>;
    case ANYHAL_UNARY_FN_SIGN:
      return kSame<Sign, T>;
    case ANYHAL_UNARY_FN_EXP:
      return kSame<Exp, T>;
    case ANYHAL_UNARY_FN_EXPM1:
      return kSame<Expm1, T>;
    case ANYHAL_UNARY_FN_LOG:
      return kSame<Log, T>;
    case ANYHAL_UNARY_FN_LOG1P:
      return kSame<Log1p, T>;
    case ANYHAL_UNARY_FN_SQRT:
      return kSame<Sqrt, T>;
    case ANYHAL_UNARY_FN_RSQRT:
      return kSame<Rsqrt, T>;
    case ANYHAL_UNARY_FN_RECIPROCAL:
      return kSame<Reciprocal, T>;
    case ANYHAL_UNARY_FN_SIN:
      return kSame<Sin, T>;
    case ANYHAL_UNARY_FN_COS:
      return kSame<Cos, T>;
    case ANYHAL_UNARY_FN_TANH:
      return kSame<Tanh, T>;
    case ANYHAL_UNARY_FN_ERF:
      return kSame<Erf, T>;
    case ANYHAL_UNARY_FN_FLOOR:
      return kSame<Floor, T>;
    case ANYHAL_UNARY_FN_CEIL:
      return kSame<Ceil, T>;
    case ANYHAL_UNARY_FN_ROUND:
      return kSame<Round, T>;
    case ANYHAL_UNARY_FN_TRUNC:
      return kSame<Trunc, T>;
    case ANYHAL_UNARY_FN_ISNAN:
      return kTest<IsNan, T>;
    case ANYHAL_UNARY_FN_ISINF:
      return kTest<IsInf, T>;
    case ANYHAL_UNARY_FN_ISFINITE:
      return kTest<IsFinite, T>;
    case ANYHAL_UNARY_FN_SIGMOID:
      return kSame<Sigmoid, T>;
    case ANYHAL_UNARY_FN_RELU:
      return kSame<Relu, T>;
    case ANYHAL_UNARY_FN_SILU:
      return kSame<Silu, T>;
    case ANYHAL_UNARY_FN_GELU:
      return kSame<Gelu, T>;
    case ANYHAL_UNARY_FN_GELU_TANH:
      return kSame<GeluTanh, T>;
    case ANYHAL_UNARY_FN_TAN:
      return kSame<Tan, T>;
    case ANYHAL_UNARY_FN_ASIN:
      return kSame<Asin, T>;
    case ANYHAL_UNARY_FN_ACOS:
      return kSame<Acos, T>;
    case ANYHAL_UNARY_FN_ATAN:
      return kSame<Atan, T>;
    case ANYHAL_UNARY_FN_SINH:
      return kSame<Sinh, T>;
    case ANYHAL_UNARY_FN_COSH:
      return kSame<Cosh, T>;
    case ANYHAL_UNARY_FN_ASINH:
      return kSame<Asinh, T>;
    case ANYHAL_UNARY_FN_ACOSH:
      return kSame<Acosh, T>;
    case ANYHAL_UNARY_FN_ATANH:
      return kSame<Atanh, T>;
    case ANYHAL_UNARY_FN_LOG2:
      return kSame<Log2, T>;
    case ANYHAL_UNARY_FN_LOG10:
      return kSame<Log10, T>;
    case ANYHAL_UNARY_FN_EXP2:
      return kSame<Exp2, T>;
    case ANYHAL_UNARY_FN_SQUARE:
      return kSame<Square, T>;
    case ANYHAL_UNARY_FN_POSITIVE:
      return kSame<Positive, T>;
    case ANYHAL_UNARY_FN_SIGNBIT:
      return kTest<SignBit, T>;
    case ANYHAL_UNARY_FN_SOFTPLUS:
      return kSame<Softplus, T>;
    default:
      return nullptr;
  }
}

template <class T>
Inner integer_function(int32_t fn) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return kSame<Neg, T>;
    case ANYHAL_UNARY_FN_ABS:
      return kSame<Abs, T>;
    case ANYHAL_UNARY_FN_SIGN:
      return kSame<Sign, T>;
    case ANYHAL_UNARY_FN_RELU:
      return kSame<Relu, T>;
    case ANYHAL_UNARY_FN_BITWISE_NOT:
      return kSame<BitwiseNot, T>;
    case ANYHAL_UNARY_FN_FLOOR:
    case ANYHAL_UNARY_FN_CEIL:
    case ANYHAL_UNARY_FN_ROUND:
    case ANYHAL_UNARY_FN_TRUNC:
    case ANYHAL_UNARY_FN_POSITIVE:
      return kSame<Positive, T>;
    case ANYHAL_UNARY_FN_SQUARE:
      return kSame<Square, T>;
    case ANYHAL_UNARY_FN_ISNAN:
      return kTest<IsNan, T>;
    case ANYHAL_UNARY_FN_ISINF:
      return kTest<IsInf, T>;
    case ANYHAL_UNARY_FN_ISFINITE:
      return kTest<IsFinite, T>;
    default:
      return nullptr;
  }
}

Inner function_of(uint32_t dtype, int32_t fn) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
    case ANYHAL_DTYPE_F16:
    case ANYHAL_DTYPE_BF16:
      return float_function<float>(fn);
    case ANYHAL_DTYPE_F64:
      return float_function<double>(fn);
    case ANYHAL_DTYPE_I64:
      return integer_function<int64_t>(fn);
    case ANYHAL_DTYPE_I32:
      return integer_function<int32_t>(fn);
    case ANYHAL_DTYPE_I16:
      return integer_function<int16_t>(fn);
    case ANYHAL_DTYPE_I8:
      return integer_function<int8_t>(fn);
    case ANYHAL_DTYPE_U64:
      return integer_function<uint64_t>(fn);
    case ANYHAL_DTYPE_U32:
      return integer_function<uint32_t>(fn);
    case ANYHAL_DTYPE_U16:
      return integer_function<uint16_t>(fn);
    case ANYHAL_DTYPE_U8:
      return integer_function<uint8_t>(fn);
    case ANYHAL_DTYPE_BOOL:
      return fn == ANYHAL_UNARY_FN_LOGICAL_NOT || fn == ANYHAL_UNARY_FN_BITWISE_NOT
                 ? kSame<LogicalNot, uint8_t>
                 : nullptr;
    default:
      return nullptr;
  }
}

bool expensive(int32_t fn) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
    case ANYHAL_UNARY_FN_ABS:
    case ANYHAL_UNARY_FN_SIGN:
    case ANYHAL_UNARY_FN_RELU:
    case ANYHAL_UNARY_FN_SQUARE:
    case ANYHAL_UNARY_FN_POSITIVE:
    case ANYHAL_UNARY_FN_SIGNBIT:
    case ANYHAL_UNARY_FN_LOGICAL_NOT:
    case ANYHAL_UNARY_FN_BITWISE_NOT:
      return false;
    default:
      return true;
  }
}

struct State {
  Nest nest;
  Inner inner;
  HalfContext half;
  int64_t cost;
};

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  run_nest(plan, s.nest, data, s.inner, &s.half, s.cost);
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_unary(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor& x = plan.input(0);
  const Tensor& out = plan.output();
  int32_t fn = plan.attribute<anyhal_attrs_unary>().fn;
  const Tensor* tensors[] = {&x, &out};
  make_nest(s.nest, tensors, 2);
  s.inner = function_of(x.dtype, fn);
  if (s.inner == nullptr) return false;
  if (x.dtype == ANYHAL_DTYPE_F16 || x.dtype == ANYHAL_DTYPE_BF16) {
    s.half = {reader_of(x.dtype), writer_of(out.dtype), s.inner};
    s.inner = half_run<1>;
  }
  s.cost = expensive(fn) ? 4 : 1;
  plan.run = run;
  plan.kernel = "elementwise";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
