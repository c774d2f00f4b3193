// Elements of every dtype, read and written one at a time.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_FAKE_VALUE_HH_
#define ANYHAL_BACKENDS_FAKE_VALUE_HH_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "anyhal/backend.h"

namespace hal::fake {

// kHeld: 8-bit floats, which are moved and never computed with.
enum class Family { kFloat, kSigned, kUnsigned, kBool, kHeld, kBlock };

inline Family family(uint32_t dtype) {
  if (dtype >= ANYHAL_DTYPE_Q4_1) return Family::kBlock;
  if (dtype > ANYHAL_DTYPE_BOOL) return Family::kHeld;
  if (dtype == ANYHAL_DTYPE_BOOL) return Family::kBool;
  if (dtype <= ANYHAL_DTYPE_F64) return Family::kFloat;
  return dtype <= ANYHAL_DTYPE_I8 ? Family::kSigned : Family::kUnsigned;
}

inline int64_t block_elements(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_I4:
    case ANYHAL_DTYPE_U4:
      return 2;
    case ANYHAL_DTYPE_Q4_K:
    case ANYHAL_DTYPE_Q6_K:
      return 256;
    default:
      return family(dtype) == Family::kBlock ? 32 : 1;
  }
}

// Bytes of an element, or of a block.
inline uint64_t unit_bytes(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F64:
    case ANYHAL_DTYPE_I64:
    case ANYHAL_DTYPE_U64:
      return 8;
    case ANYHAL_DTYPE_F32:
    case ANYHAL_DTYPE_I32:
    case ANYHAL_DTYPE_U32:
      return 4;
    case ANYHAL_DTYPE_F16:
    case ANYHAL_DTYPE_BF16:
    case ANYHAL_DTYPE_I16:
    case ANYHAL_DTYPE_U16:
      return 2;
    case ANYHAL_DTYPE_Q4_1:
      return 20;
    case ANYHAL_DTYPE_Q8_0:
      return 34;
    case ANYHAL_DTYPE_Q4_0:
      return 18;
    case ANYHAL_DTYPE_Q4_K:
      return 144;
    case ANYHAL_DTYPE_Q6_K:
      return 210;
    default:
      return 1;
  }
}

template <class T>
T read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void write(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

inline double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double value = exponent == 0    ? std::ldexp(mantissa, -24)
                 : exponent == 31 ? (mantissa != 0 ? std::nan("") : HUGE_VAL)
                                  : std::ldexp(mantissa + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

// Rounds to `digits` significant bits, half to even, once; `lowest` is the exponent of the smallest
// subnormal. Going through float first would round twice.
inline double rounded(double value, int digits, int lowest, double limit) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - digits, lowest);
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(result) > limit ? std::copysign(HUGE_VAL, value) : result;
}

inline uint16_t f16_bits(double value) {
  if (std::isnan(value)) return 0x7e00;
  const double exact = rounded(value, 11, -24, 65504.0);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(exact);
  if (std::isinf(size)) return sign | 0x7c00;
  if (size < std::ldexp(1.0, -14)) return sign | static_cast<uint16_t>(std::ldexp(size, 24));
  int exponent;
  const double fraction = std::frexp(size, &exponent);
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) +
                                      static_cast<int>(std::ldexp(fraction, 11)) - 1024);
}

inline uint16_t bf16_bits(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto exact = static_cast<float>(rounded(value, 8, -133, 3.3895313892515355e38));
  uint32_t bits;
  std::memcpy(&bits, &exact, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

inline double bf16_value(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline int64_t load_int(uint32_t dtype, const uint8_t* at) {
  switch (dtype) {
    case ANYHAL_DTYPE_I64:
    case ANYHAL_DTYPE_U64:
      return read<int64_t>(at);
    case ANYHAL_DTYPE_I32:
      return read<int32_t>(at);
    case ANYHAL_DTYPE_I16:
      return read<int16_t>(at);
    case ANYHAL_DTYPE_I8:
      return read<int8_t>(at);
    case ANYHAL_DTYPE_U32:
      return read<uint32_t>(at);
    case ANYHAL_DTYPE_U16:
      return read<uint16_t>(at);
    case ANYHAL_DTYPE_BOOL:
      return *at != 0;
    default:
      return *at;
  }
}

inline double load_float(uint32_t dtype, const uint8_t* at) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return read<float>(at);
    case ANYHAL_DTYPE_F64:
      return read<double>(at);
    case ANYHAL_DTYPE_F16:
      return f16_value(read<uint16_t>(at));
    case ANYHAL_DTYPE_BF16:
      return bf16_value(read<uint16_t>(at));
    case ANYHAL_DTYPE_U64:
      return static_cast<double>(read<uint64_t>(at));
    default:
      return static_cast<double>(load_int(dtype, at));
  }
}

// Wraps to the width of the dtype.
inline void store_int(uint32_t dtype, uint8_t* at, int64_t value) {
  switch (unit_bytes(dtype)) {
    case 8:
      return write(at, value);
    case 4:
      return write(at, static_cast<int32_t>(value));
    case 2:
      return write(at, static_cast<int16_t>(value));
    default:
      *at = dtype == ANYHAL_DTYPE_BOOL ? value != 0 : static_cast<uint8_t>(value);
  }
}

inline void store_float(uint32_t dtype, uint8_t* at, double value) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return write(at, static_cast<float>(value));
    case ANYHAL_DTYPE_F64:
      return write(at, value);
    case ANYHAL_DTYPE_F16:
      return write(at, f16_bits(value));
    case ANYHAL_DTYPE_BF16:
      return write(at, bf16_bits(value));
    default:
      break;
  }
}

}  // namespace hal::fake

#endif  // ANYHAL_BACKENDS_FAKE_VALUE_HH_
