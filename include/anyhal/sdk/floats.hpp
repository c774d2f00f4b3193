// Floating values of 16 and 8 bits: from and to the types that C++ has.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_FLOATS_HPP_
#define ANYHAL_SDK_FLOATS_HPP_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "anyhal/backend.h"

namespace hal::sdk {

template <class To, class From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// ------------------------------------------------------------------------ 16-bit floating values

// Every conversion below is free of branches that a compiler could not turn into selects, so loops
// over them vectorise.
inline float f16_to_f32(uint16_t h) {
  uint32_t magnitude = (h & 0x7fffu) << 13;
  // The exponent biases differ by 112; a multiplication also normalises subnormal halves.
  uint32_t bits = bits_as<uint32_t>(bits_as<float>(magnitude) * 0x1p112f);
  bits |= magnitude >= 0x0f800000u ? 0x7f800000u : 0u;  // infinity and NaN keep their exponent
  return bits_as<float>(bits | (h & 0x8000u) << 16);
}

inline uint16_t f32_to_f16(float f) {
  uint32_t bits = bits_as<uint32_t>(f);
  uint32_t x = bits & 0x7fffffffu;
  // Adding 1/2 makes the unit in the last place of a float that of a subnormal half.
  uint32_t small = bits_as<uint32_t>(bits_as<float>(x) + 0.5f) - 0x3f000000u;
  uint32_t normal = (x + 0xfffu + (x >> 13 & 1u) - (112u << 23)) >> 13;
  normal = normal > 0x7c00u ? 0x7c00u : normal;
  uint32_t nan = 0x7e00u | (x >> 13 & 0x3ffu);
  uint32_t h = x < 0x38800000u ? small : x > 0x7f800000u ? nan : normal;
  return static_cast<uint16_t>(h | (bits >> 16 & 0x8000u));
}

inline float bf16_to_f32(uint16_t b) { return bits_as<float>(static_cast<uint32_t>(b) << 16); }

inline uint16_t f32_to_bf16(float f) {
  uint32_t x = bits_as<uint32_t>(f);
  uint32_t rounded = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
  uint32_t nan = x >> 16 | 0x40u;
  return static_cast<uint16_t>((x & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// A float for a second rounding to fewer digits: inexact values get an odd last bit, so that
// rounding twice gives what rounding once would.
inline float to_odd_f32(double d) {
  float f = static_cast<float>(d);
  if (!(d == d) || static_cast<double>(f) == d) return f;
  uint32_t bits = bits_as<uint32_t>(f);
  if (std::fabs(static_cast<double>(f)) > std::fabs(d)) --bits;
  return bits_as<float>(bits | 1u);
}

struct f16 {
  uint16_t bits;
  f16() = default;
  explicit f16(float f) : bits(f32_to_f16(f)) {}
  explicit f16(double d) : f16(to_odd_f32(d)) {}
  operator float() const { return f16_to_f32(bits); }
};

struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float f) : bits(f32_to_bf16(f)) {}
  explicit bf16(double d) : bf16(to_odd_f32(d)) {}
  operator float() const { return bf16_to_f32(bits); }
};

// ------------------------------------------------------------------------- 8-bit floating values

// What tells the four formats apart. Codes are without the sign bit; past `largest` lie the code of
// infinity, if there is one, and NaN.
struct F8 {
  int digits;  // of the fraction
  int bias;
  int largest;
  int infinity;  // 0: there is none
  bool fnuz;     // the code of -0 is the only NaN
};

constexpr F8 f8_format(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F8_E4M3FN:
      return {3, 7, 0x7e, 0, false};
    case ANYHAL_DTYPE_F8_E5M2:
      return {2, 15, 0x7b, 0x7c, false};
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
      return {3, 8, 0x7f, 0, true};
    default:
      return {2, 16, 0x7f, 0, true};
  }
}

inline double f8_value(const F8& f, uint8_t code) {
  const int size = code & 0x7f, sign = code & 0x80;
  if (size > f.largest || (f.fnuz && code == 0x80)) {
    if (size != f.infinity || f.infinity == 0) return std::numeric_limits<double>::quiet_NaN();
    return sign != 0 ? -HUGE_VAL : HUGE_VAL;
  }
  const int exponent = size >> f.digits, fraction = size & ((1 << f.digits) - 1);
  const int units = exponent == 0 ? fraction : fraction | 1 << f.digits;
  const double value = std::ldexp(units, (exponent == 0 ? 1 : exponent) - f.bias - f.digits);
  return sign != 0 ? -value : value;
}

// The nearest code, ties to even. What rounds past the largest becomes the largest, or infinity or
// NaN.
inline uint8_t f8_code(const F8& f, double value, bool saturate) {
  const int nan = f.fnuz ? 0x80 : 0x7f;
  if (value != value) return static_cast<uint8_t>(nan);
  const double size = std::fabs(value);
  int code = 0x80;  // past every format's largest
  if (size < 0x1p17) {
    int exponent = size > 0 ? std::ilogb(size) : 1 - f.bias;
    if (exponent < 1 - f.bias) exponent = 1 - f.bias;
    // Units of the last place; what rounds up to the next binade carries into the exponent.
    const int units = static_cast<int>(std::nearbyint(std::ldexp(size, f.digits - exponent)));
    code = ((exponent + f.bias - 1) << f.digits) + units;
  }
  if (code > f.largest) {
    if (!saturate && f.infinity == 0) return static_cast<uint8_t>(nan);
    code = saturate ? f.largest : f.infinity;
  }
  if (f.fnuz && code == 0) return 0;
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_FLOATS_HPP_
