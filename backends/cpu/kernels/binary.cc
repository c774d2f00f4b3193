// binary: one function of two numbers; broadcasting came as strides of zero.
// SPDX-License-Identifier: Apache-2.0
#include "elementwise.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

template <class T>
constexpr bool kFloating = __is_same(T, float) || __is_same(T, double);
template <class T>
constexpr bool kSignedNumber = static_cast<T>(-1) < static_cast<T>(0);

// Integer arithmetic that may leave the range is done unsigned: it wraps.
#define HAL_CPU_WRAPPING(Name, op)                                                   \
  struct Name {                                                                      \
    template <class T>                                                               \
    static T apply(T a, T b) {                                                       \
      if constexpr (kFloating<T>)                                                    \
        return a op b;                                                               \
      else                                                                           \
        return static_cast<T>(static_cast<uint64_t>(a) op static_cast<uint64_t>(b)); \
    }                                                                                \
  };
HAL_CPU_WRAPPING(Add, +)
HAL_CPU_WRAPPING(Subtract, -)
HAL_CPU_WRAPPING(Multiply, *)
#undef HAL_CPU_WRAPPING

struct Divide {
  template <class T>
  static T apply(T a, T b) {
    return a / b;
  }
};

inline float modulo(float a, float b) { return __builtin_fmodf(a, b); }
inline double modulo(double a, double b) { return __builtin_fmod(a, b); }
inline float floor_of(float x) { return __builtin_floorf(x); }
inline double floor_of(double x) { return __builtin_floor(x); }
template <class T>
inline T signed_zero(T sign) {
  return __builtin_signbit(sign) ? T(-0.0) : T(0.0);
}

struct Remainder {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kFloating<T>) {
      T r = modulo(a, b);
      if (r == 0) return signed_zero(b);
      return (b < 0) != (r < 0) && r == r ? r + b : r;
    } else {
      if (b == 0) return 0;
      if constexpr (kSignedNumber<T>) {
        if (b == static_cast<T>(-1)) return 0;
        T r = static_cast<T>(a % b);
        return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
      }
      return static_cast<T>(a % b);
    }
  }
};

struct FloorDivide {
  // In f64 the quotient of two f32 numbers is exact enough for its floor to be the true one.
  static float apply(float a, float b) {
    return static_cast<float>(apply(static_cast<double>(a), static_cast<double>(b)));
  }
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kFloating<T>) {
      if (b == 0) return a / b;
      T r = modulo(a, b);
      T q = (a - r) / b;
      if (r != 0 && (b < 0) != (r < 0)) q -= 1;
      if (q == 0) return signed_zero(a / b);
      T whole = floor_of(q);
      return q - whole > T(0.5) ? whole + 1 : whole;
    } else {
      if (b == 0) return 0;
      if constexpr (kSignedNumber<T>) {
        if (b == static_cast<T>(-1)) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(a));
        T q = static_cast<T>(a / b);
        return a % b != 0 && (a < 0) != (b < 0) ? static_cast<T>(q - 1) : q;
      }
      return static_cast<T>(a / b);
    }
  }
};

struct Power {
  static float apply(float a, float b) { return __builtin_powf(a, b); }
  static double apply(double a, double b) { return __builtin_pow(a, b); }
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kSignedNumber<T>) {
      if (b < 0) return a == 1 ? T{1} : a == -1 ? static_cast<T>(b % 2 == 0 ? 1 : -1) : T{0};
    }
    uint64_t result = 1, base = static_cast<uint64_t>(a);
    for (uint64_t e = static_cast<uint64_t>(b); e != 0; e >>= 1) {
      if ((e & 1) != 0) result *= base;
      base *= base;
    }
    return static_cast<T>(result);
  }
};

struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    return (a > b) | (a != a) ? a : b;
  }
};
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    return (a < b) | (a != a) ? a : b;
  }
};
struct Atan2 {
  static float apply(float a, float b) { return __builtin_atan2f(a, b); }
  static double apply(double a, double b) { return __builtin_atan2(a, b); }
};

struct LogAddExp {
  static float apply(float a, float b) {
    return static_cast<float>(apply(static_cast<double>(a), static_cast<double>(b)));
  }
  static double apply(double a, double b) {
    if (a == b) return a + 0.69314718055994530942;  // equal infinities too
    if (a != a || b != b) return a + b;
    return (a > b ? a : b) + __builtin_log1p(__builtin_exp(-__builtin_fabs(a - b)));
  }
};
struct CopySign {
  static float apply(float a, float b) { return with_sign_of(a, b); }
  static double apply(double a, double b) { return __builtin_copysign(a, b); }
};
struct Hypot {
  static float apply(float a, float b) { return __builtin_hypotf(a, b); }
  static double apply(double a, double b) { return __builtin_hypot(a, b); }
};
struct NextAfter {
  static float apply(float a, float b) { return __builtin_nextafterf(a, b); }
  static double apply(double a, double b) { return __builtin_nextafter(a, b); }
};
// The same for the bits of a half, whose infinity is kInfinity: without their sign they are in the
// order of the magnitudes.
template <uint16_t kInfinity>
struct NextHalf {
  static uint16_t apply(uint16_t a, uint16_t b) {
    int32_t x = ordered(a), y = ordered(b);
    if ((a & 0x7fff) > kInfinity) return a;
    if ((b & 0x7fff) > kInfinity || x == y) return b;
    if (x == 0) return static_cast<uint16_t>((b & 0x8000) | 1);
    return static_cast<uint16_t>((x < y) == (x > 0) ? a + 1 : a - 1);
  }
  static int32_t ordered(uint16_t bits) {
    int32_t magnitude = bits & 0x7fff;
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
};

#define HAL_CPU_TEST(Name, expression) \
  struct Name {                        \
    template <class T>                 \
    static uint8_t apply(T a, T b) {   \
      return (expression) ? 1 : 0;     \
    }                                  \
  };
HAL_CPU_TEST(Equal, a == b)
HAL_CPU_TEST(NotEqual, a != b)
HAL_CPU_TEST(Less, a < b)
HAL_CPU_TEST(LessEqual, a <= b)
HAL_CPU_TEST(Greater, a > b)
HAL_CPU_TEST(GreaterEqual, a >= b)
HAL_CPU_TEST(And, (a != 0) && (b != 0))
HAL_CPU_TEST(Or, (a != 0) || (b != 0))
HAL_CPU_TEST(Xor, (a != 0) != (b != 0))
#undef HAL_CPU_TEST

#define HAL_CPU_BITS(Name, op)       \
  struct Name {                      \
    template <class T>               \
    static T apply(T a, T b) {       \
      return static_cast<T>(a op b); \
    }                                \
  };
HAL_CPU_BITS(BitAnd, &)
HAL_CPU_BITS(BitOr, |)
HAL_CPU_BITS(BitXor, ^)
#undef HAL_CPU_BITS

// A count outside [0, width) shifts everything out.
template <class T>
inline bool within(T count) {
  return static_cast<uint64_t>(count) < sizeof(T) * 8;
}
struct ShiftLeft {
  template <class T>
  static T apply(T a, T b) {
    return within(b) ? static_cast<T>(static_cast<uint64_t>(a) << static_cast<uint64_t>(b)) : T{0};
  }
};
struct ShiftRight {
  template <class T>
  static T apply(T a, T b) {
    return within(b) ? static_cast<T>(a >> b) : static_cast<T>(kSignedNumber<T> && a < 0 ? -1 : 0);
  }
};

template <class F, class T>
constexpr Inner kSame = zip_run<F, T, T>;
template <class F, class T>
constexpr Inner kTest = zip_run<F, T, uint8_t>;

template <class T>
Inner common_function(int32_t fn) {
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return kSame<Add, T>;
    case ANYHAL_BINARY_FN_SUBTRACT:
      return kSame<Subtract, T>;
    case ANYHAL_BINARY_FN_MULTIPLY:
      return kSame<Multiply, T>;
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return kSame<FloorDivide, T>;
    case ANYHAL_BINARY_FN_REMAINDER:
      return kSame<Remainder, T>;
    case ANYHAL_BINARY_FN_POW:
      return kSame<Power, T>;
    case ANYHAL_BINARY_FN_MAXIMUM:
      return kSame<Maximum, T>;
    case ANYHAL_BINARY_FN_MINIMUM:
      return kSame<Minimum, T>;
    case ANYHAL_BINARY_FN_EQUAL:
      return kTest<Equal, T>;
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      return kTest<NotEqual, T>;
    case ANYHAL_BINARY_FN_LESS:
      return kTest<Less, T>;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return kTest<LessEqual, T>;
    case ANYHAL_BINARY_FN_GREATER:
      return kTest<Greater, T>;
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
      return kTest<GreaterEqual, T>;
    default:
      return nullptr;
  }
}

template <class T>
Inner float_function(int32_t fn) {
  switch (fn) {
    case ANYHAL_BINARY_FN_DIVIDE:
      return kSame<Divide, T>;
    case ANYHAL_BINARY_FN_ATAN2:
      return kSame<Atan2, T>;
    case ANYHAL_BINARY_FN_LOGADDEXP:
      return kSame<LogAddExp, T>;
    case ANYHAL_BINARY_FN_COPYSIGN:
      return kSame<CopySign, T>;
    case ANYHAL_BINARY_FN_NEXTAFTER:
      return kSame<NextAfter, T>;
    case ANYHAL_BINARY_FN_HYPOT:
      return kSame<Hypot, T>;
    default:
      return common_function<T>(fn);
  }
}

template <class T>
Inner integer_function(int32_t fn) {
  switch (fn) {
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return kSame<BitAnd, T>;
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return kSame<BitOr, T>;
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return kSame<BitXor, T>;
    case ANYHAL_BINARY_FN_SHIFT_LEFT:
      return kSame<ShiftLeft, T>;
    case ANYHAL_BINARY_FN_SHIFT_RIGHT:
      return kSame<ShiftRight, T>;
    default:
      return common_function<T>(fn);
  }
}

// Any non-zero byte is true, so the two sides are compared as truths.
struct BoolEqual {
  static uint8_t apply(uint8_t a, uint8_t b) { return (a != 0) == (b != 0) ? 1 : 0; }
};

Inner bool_function(int32_t fn) {
  switch (fn) {
    case ANYHAL_BINARY_FN_LOGICAL_AND:
    case ANYHAL_BINARY_FN_BITWISE_AND:
    case ANYHAL_BINARY_FN_MULTIPLY:
    case ANYHAL_BINARY_FN_MINIMUM:
      return kTest<And, uint8_t>;
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_BITWISE_OR:
    case ANYHAL_BINARY_FN_ADD:
    case ANYHAL_BINARY_FN_MAXIMUM:
      return kTest<Or, uint8_t>;
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      return kTest<Xor, uint8_t>;
    case ANYHAL_BINARY_FN_EQUAL:
      return kTest<BoolEqual, uint8_t>;
    case ANYHAL_BINARY_FN_LESS:
      return kTest<Less, uint8_t>;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return kTest<LessEqual, uint8_t>;
    case ANYHAL_BINARY_FN_GREATER:
      return kTest<Greater, uint8_t>;
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
      return kTest<GreaterEqual, uint8_t>;
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
      return bool_function(fn);
    default:
      return nullptr;
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

bool prepare_binary(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor& a = plan.input(0);
  const Tensor& out = plan.output();
  int32_t fn = plan.attribute<anyhal_attrs_binary>().fn;
  const Tensor* tensors[] = {&a, &plan.input(1), &out};
  make_nest(s.nest, tensors, 3);
  s.inner = function_of(a.dtype, fn);
  if (s.inner == nullptr) return false;
  if (fn == ANYHAL_BINARY_FN_NEXTAFTER && a.dtype == ANYHAL_DTYPE_F16) {
    s.inner = kSame<NextHalf<0x7c00>, uint16_t>;
  } else if (fn == ANYHAL_BINARY_FN_NEXTAFTER && a.dtype == ANYHAL_DTYPE_BF16) {
    s.inner = kSame<NextHalf<0x7f80>, uint16_t>;
  } else if (a.dtype == ANYHAL_DTYPE_F16 || a.dtype == ANYHAL_DTYPE_BF16) {
    s.half = {reader_of(a.dtype), writer_of(out.dtype), s.inner};
    s.inner = half_run<2>;
  }
  bool slow = fn == ANYHAL_BINARY_FN_POW || fn == ANYHAL_BINARY_FN_ATAN2 ||
              fn == ANYHAL_BINARY_FN_LOGADDEXP || fn == ANYHAL_BINARY_FN_HYPOT;
  s.cost = slow ? 8 : 1;
  plan.run = run;
  plan.kernel = "elementwise";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
