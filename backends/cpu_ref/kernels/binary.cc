// binary: one function of two elements; broadcasts are strides of 0. Integers wrap.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class T, class Out, class Fn>
void map(const Call& call, Fn fn) {
  const T* a = call.view<const T>(0).data();
  const T* b = call.view<const T>(1).data();
  Out* out = call.view<Out>(2).data();
  sdk::Rows<3> rows({&sdk::operand(call.desc(), 0), &sdk::operand(call.desc(), 1),
                     &sdk::operand(call.desc(), 2)});
  const int64_t a_stride = rows.row_strides[0], b_stride = rows.row_strides[1];
  const int64_t out_stride = rows.row_strides[2];
  rows.each([&](const int64_t (&at)[3]) {
    for (int64_t i = 0; i < rows.row_count; ++i) {
      sdk::Compute<T> x = a[at[0] + i * a_stride], y = b[at[1] + i * b_stride];
      out[at[2] + i * out_stride] = sdk::convert<Out>(fn(x, y));
    }
  });
}

// Comparisons, for every dtype. Halves compare as the floats they are, booleans as 0 and 1.
template <class T>
bool map_comparison(const Call& call, int32_t fn) {
  using C = sdk::Compute<T>;
  using B = sdk::boolean;
  switch (fn) {
    case ANYHAL_BINARY_FN_EQUAL:
      map<T, B>(call, [](C x, C y) { return B(x == y); });
      break;
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      map<T, B>(call, [](C x, C y) { return B(x != y); });
      break;
    case ANYHAL_BINARY_FN_LESS:
      map<T, B>(call, [](C x, C y) { return B(x < y); });
      break;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      map<T, B>(call, [](C x, C y) { return B(x <= y); });
      break;
    case ANYHAL_BINARY_FN_GREATER:
      map<T, B>(call, [](C x, C y) { return B(x > y); });
      break;
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
      map<T, B>(call, [](C x, C y) { return B(x >= y); });
      break;
    default:
      return false;
  }
  return true;
}

// Quotient and remainder are formed in a wider type (fmod is exact) and rounded once.
template <class C>
using Wide = std::conditional_t<std::is_same_v<C, double>, long double, double>;

template <class C>
C floor_divide(C a, C b) {
  Wide<C> x = a, y = b;
  if (y == 0) return static_cast<C>(x / y);
  Wide<C> mod = std::fmod(x, y);
  Wide<C> quotient = (x - mod) / y;  // an integer but for rounding
  if (mod != 0 && (mod < 0) != (y < 0)) quotient -= 1;
  if (quotient == 0) return static_cast<C>(std::copysign(Wide<C>(0), x / y));
  return static_cast<C>(std::nearbyint(quotient));
}

template <class C>
C remainder(C a, C b) {
  Wide<C> y = b, mod = std::fmod(static_cast<Wide<C>>(a), y);
  if (mod == 0) return static_cast<C>(std::copysign(Wide<C>(0), y));
  return static_cast<C>((mod < 0) != (y < 0) ? mod + y : mod);
}

template <class C>
C logaddexp(C a, C b) {
  Wide<C> x = a, y = b;
  if (x == y) return static_cast<C>(x + std::log(Wide<C>(2)));  // equal infinities too
  if (x != x || y != y) return static_cast<C>(x + y);
  return static_cast<C>(std::fmax(x, y) + std::log1p(std::exp(-std::fabs(x - y))));
}

// The neighbour of a towards b in the stored format: its bits, read as a number without the sign,
// are in the order of the magnitudes.
template <class T>
void map_neighbour(const Call& call) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  sdk::Rows<3> rows({&sdk::operand(call.desc(), 0), &sdk::operand(call.desc(), 1),
                     &sdk::operand(call.desc(), 2)});
  rows.each([&](const int64_t (&at)[3]) {
    for (int64_t i = 0; i < rows.row_count; ++i) {
      const T a = call.view<const T>(0).data()[at[0] + i * rows.row_strides[0]];
      const T b = call.view<const T>(1).data()[at[1] + i * rows.row_strides[1]];
      const sdk::Compute<T> x = a, y = b;
      Bits bits = sdk::bits_as<Bits>(x != x ? a : b);  // NaN, or b where they are equal
      if (x == x && y == y && x != y) {
        bits = sdk::bits_as<Bits>(a);
        if (x == 0) {
          bits = static_cast<Bits>((sdk::bits_as<Bits>(b) & kSign) | 1);
        } else {
          bits = static_cast<Bits>((x < y) == (x > 0) ? bits + 1 : bits - 1);
        }
      }
      call.view<T>(2).data()[at[2] + i * rows.row_strides[2]] = sdk::bits_as<T>(bits);
    }
  });
}

template <class T>
void map_float(const Call& call, int32_t fn) {
  using C = sdk::Compute<T>;
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return map<T, T>(call, [](C x, C y) { return x + y; });
    case ANYHAL_BINARY_FN_SUBTRACT:
      return map<T, T>(call, [](C x, C y) { return x - y; });
    case ANYHAL_BINARY_FN_MULTIPLY:
      return map<T, T>(call, [](C x, C y) { return x * y; });
    case ANYHAL_BINARY_FN_DIVIDE:
      return map<T, T>(call, [](C x, C y) { return x / y; });
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return map<T, T>(call, floor_divide<C>);
    case ANYHAL_BINARY_FN_REMAINDER:
      return map<T, T>(call, remainder<C>);
    case ANYHAL_BINARY_FN_POW:
      return map<T, T>(call, [](C x, C y) { return std::pow(x, y); });
    case ANYHAL_BINARY_FN_MAXIMUM:
      return map<T, T>(call, [](C x, C y) { return x != x || x > y ? x : y; });
    case ANYHAL_BINARY_FN_MINIMUM:
      return map<T, T>(call, [](C x, C y) { return x != x || x < y ? x : y; });
    case ANYHAL_BINARY_FN_ATAN2:
      return map<T, T>(call, [](C x, C y) { return std::atan2(x, y); });
    case ANYHAL_BINARY_FN_LOGADDEXP:
      return map<T, T>(call, logaddexp<C>);
    case ANYHAL_BINARY_FN_COPYSIGN:
      return map<T, T>(call, [](C x, C y) { return std::copysign(x, y); });
    case ANYHAL_BINARY_FN_NEXTAFTER:
      return map_neighbour<T>(call);
    case ANYHAL_BINARY_FN_HYPOT:
      return map<T, T>(call, [](C x, C y) { return std::hypot(x, y); });
  }
}

// Division by -1 is a negation, which may wrap where x / -1 would trap.
template <class T>
T int_floor_divide(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    using U = std::make_unsigned_t<T>;
    if (b == T(-1)) return static_cast<T>(U(0) - static_cast<U>(a));
    return static_cast<T>(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
  } else {
    return static_cast<T>(a / b);
  }
}

template <class T>
T int_remainder(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return 0;
    T mod = static_cast<T>(a % b);
    return static_cast<T>(mod != 0 && (mod < 0) != (b < 0) ? mod + b : mod);
  } else {
    return static_cast<T>(a % b);
  }
}

// Products wrap; a negative power is the truncated real value.
template <class T>
T int_pow(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b < 0) return a == 1 || (a == T(-1) && b % 2 == 0) ? T(1) : a == T(-1) ? T(-1) : T(0);
  }
  uint64_t result = 1, base = static_cast<uint64_t>(a);
  for (uint64_t n = static_cast<uint64_t>(b); n != 0; n >>= 1) {
    if (n & 1) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

// A negative shift is, as an unsigned number, past the width like any other.
template <class T>
bool past_width(T shift) {
  return static_cast<uint64_t>(shift) >= 8 * sizeof(T);
}

template <class T>
void map_int(const Call& call, int32_t fn) {
  using U = std::make_unsigned_t<T>;
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return map<T, T>(call, [](T x, T y) { return T(U(x) + U(y)); });
    case ANYHAL_BINARY_FN_SUBTRACT:
      return map<T, T>(call, [](T x, T y) { return T(U(x) - U(y)); });
    case ANYHAL_BINARY_FN_MULTIPLY:
      return map<T, T>(call, [](T x, T y) { return T(U(x) * U(y)); });
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return map<T, T>(call, int_floor_divide<T>);
    case ANYHAL_BINARY_FN_REMAINDER:
      return map<T, T>(call, int_remainder<T>);
    case ANYHAL_BINARY_FN_POW:
      return map<T, T>(call, int_pow<T>);
    case ANYHAL_BINARY_FN_MAXIMUM:
      return map<T, T>(call, [](T x, T y) { return x > y ? x : y; });
    case ANYHAL_BINARY_FN_MINIMUM:
      return map<T, T>(call, [](T x, T y) { return x < y ? x : y; });
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return map<T, T>(call, [](T x, T y) { return T(x & y); });
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return map<T, T>(call, [](T x, T y) { return T(x | y); });
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return map<T, T>(call, [](T x, T y) { return T(x ^ y); });
    case ANYHAL_BINARY_FN_SHIFT_LEFT:
      return map<T, T>(call, [](T x, T y) { return past_width(y) ? T(0) : T(U(x) << y); });
    case ANYHAL_BINARY_FN_SHIFT_RIGHT:
      return map<T, T>(call,
                       [](T x, T y) { return past_width(y) ? T(x < T(0) ? -1 : 0) : T(x >> y); });
  }
}

void map_bool(const Call& call, int32_t fn) {
  using B = sdk::boolean;
  switch (fn) {
    case ANYHAL_BINARY_FN_LOGICAL_AND:
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return map<B, B>(call, [](bool x, bool y) { return B(x && y); });
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return map<B, B>(call, [](bool x, bool y) { return B(x || y); });
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return map<B, B>(call, [](bool x, bool y) { return B(x != y); });
  }
}

}  // namespace

void binary(const Call& call) {
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(call.desc()).fn;
  sdk::visit(sdk::PlainTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    using T = typename decltype(t)::is;
    if (map_comparison<T>(call, fn)) return;
    if constexpr (sdk::kIsFloat<T>) {
      map_float<T>(call, fn);
    } else if constexpr (std::is_integral_v<T>) {
      map_int<T>(call, fn);
    } else {
      map_bool(call, fn);
    }
  });
}

}  // namespace hal::cpu_ref
