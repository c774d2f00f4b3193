// Element types of the contract as C++ types, and the way from a run-time dtype to one of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_DTYPES_HPP_
#define ANYHAL_SDK_DTYPES_HPP_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "anyhal/sdk/blocks.hpp"

namespace hal::sdk {

// One byte; any non-zero byte reads as true, writes are 0 or 1.
struct boolean {
  uint8_t bits;
  boolean() = default;
  explicit boolean(bool b) : bits(b ? 1 : 0) {}
  operator bool() const { return bits != 0; }
};

// ------------------------------------------------------------------------- facts about a dtype

struct DtypeFacts {
  const char* name;  // as messages write it
  uint32_t block_elements;
  uint32_t block_bytes;
};

inline DtypeFacts dtype_facts(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return {"f32", 1, 4};
    case ANYHAL_DTYPE_F16:
      return {"f16", 1, 2};
    case ANYHAL_DTYPE_BF16:
      return {"bf16", 1, 2};
    case ANYHAL_DTYPE_F64:
      return {"f64", 1, 8};
    case ANYHAL_DTYPE_I64:
      return {"i64", 1, 8};
    case ANYHAL_DTYPE_I32:
      return {"i32", 1, 4};
    case ANYHAL_DTYPE_I16:
      return {"i16", 1, 2};
    case ANYHAL_DTYPE_I8:
      return {"i8", 1, 1};
    case ANYHAL_DTYPE_U64:
      return {"u64", 1, 8};
    case ANYHAL_DTYPE_U32:
      return {"u32", 1, 4};
    case ANYHAL_DTYPE_U16:
      return {"u16", 1, 2};
    case ANYHAL_DTYPE_U8:
      return {"u8", 1, 1};
    case ANYHAL_DTYPE_BOOL:
      return {"bool", 1, 1};
    case ANYHAL_DTYPE_F8_E4M3FN:
      return {"f8_e4m3fn", 1, 1};
    case ANYHAL_DTYPE_F8_E5M2:
      return {"f8_e5m2", 1, 1};
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
      return {"f8_e4m3fnuz", 1, 1};
    case ANYHAL_DTYPE_F8_E5M2FNUZ:
      return {"f8_e5m2fnuz", 1, 1};
    case ANYHAL_DTYPE_I4:
      return {"i4", 2, 1};
    case ANYHAL_DTYPE_U4:
      return {"u4", 2, 1};
    case ANYHAL_DTYPE_Q4_0:
      return {"q4_0", 32, sizeof(q4_0)};
    case ANYHAL_DTYPE_Q4_K:
      return {"q4_k", 256, sizeof(q4_k)};
    case ANYHAL_DTYPE_Q6_K:
      return {"q6_k", 256, sizeof(q6_k)};
    case ANYHAL_DTYPE_Q4_1:
      return {"q4_1", 32, sizeof(q4_1)};
    case ANYHAL_DTYPE_Q8_0:
      return {"q8_0", 32, sizeof(q8_0)};
    default:
      return {"unknown dtype", 0, 0};
  }
}

// A set of dtypes, in the form that capabilities have.
struct Dtypes {
  uint64_t words[2];
  constexpr bool has(uint32_t dtype) const {
    return dtype < 128 && (words[dtype / 64] >> dtype % 64 & 1) != 0;
  }
  constexpr Dtypes operator|(const Dtypes& o) const {
    return {{words[0] | o.words[0], words[1] | o.words[1]}};
  }
};

template <class... D>
constexpr Dtypes dtypes(D... d) {
  Dtypes set = {{0, 0}};
  ((set.words[d / 64] |= uint64_t{1} << d % 64), ...);
  return set;
}

constexpr Dtypes kHalves = dtypes(ANYHAL_DTYPE_F16, ANYHAL_DTYPE_BF16);
constexpr Dtypes kSmallFloats = kHalves | dtypes(ANYHAL_DTYPE_F32);
constexpr Dtypes kFloats = kSmallFloats | dtypes(ANYHAL_DTYPE_F64);
constexpr Dtypes kSigned =
    dtypes(ANYHAL_DTYPE_I64, ANYHAL_DTYPE_I32, ANYHAL_DTYPE_I16, ANYHAL_DTYPE_I8);
constexpr Dtypes kUnsigned =
    dtypes(ANYHAL_DTYPE_U64, ANYHAL_DTYPE_U32, ANYHAL_DTYPE_U16, ANYHAL_DTYPE_U8);
constexpr Dtypes kInts = kSigned | kUnsigned;
constexpr Dtypes kNumbers = kFloats | kInts;
constexpr Dtypes kBool = dtypes(ANYHAL_DTYPE_BOOL);
constexpr Dtypes kPlain = kNumbers | kBool;
constexpr Dtypes kIndices = dtypes(ANYHAL_DTYPE_I64, ANYHAL_DTYPE_I32);
constexpr Dtypes kF8 = dtypes(ANYHAL_DTYPE_F8_E4M3FN, ANYHAL_DTYPE_F8_E5M2,
                              ANYHAL_DTYPE_F8_E4M3FNUZ, ANYHAL_DTYPE_F8_E5M2FNUZ);
constexpr Dtypes kPacked = dtypes(ANYHAL_DTYPE_I4, ANYHAL_DTYPE_U4);
constexpr Dtypes kBlocks = dtypes(ANYHAL_DTYPE_Q4_1, ANYHAL_DTYPE_Q8_0, ANYHAL_DTYPE_Q4_0,
                                  ANYHAL_DTYPE_Q4_K, ANYHAL_DTYPE_Q6_K);
constexpr Dtypes kStored = kPlain | kF8;  // elements that have bytes of their own
// Everything that has a size: for ops that only move bytes.
constexpr Dtypes kAny = kStored | kPacked | kBlocks;

// ---------------------------------------------------------------- run time dtype -> C++ type

template <class T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>) return ANYHAL_DTYPE_F32;
  if constexpr (std::is_same_v<T, f16>) return ANYHAL_DTYPE_F16;
  if constexpr (std::is_same_v<T, bf16>) return ANYHAL_DTYPE_BF16;
  if constexpr (std::is_same_v<T, double>) return ANYHAL_DTYPE_F64;
  if constexpr (std::is_same_v<T, int64_t>) return ANYHAL_DTYPE_I64;
  if constexpr (std::is_same_v<T, int32_t>) return ANYHAL_DTYPE_I32;
  if constexpr (std::is_same_v<T, int16_t>) return ANYHAL_DTYPE_I16;
  if constexpr (std::is_same_v<T, int8_t>) return ANYHAL_DTYPE_I8;
  if constexpr (std::is_same_v<T, uint64_t>) return ANYHAL_DTYPE_U64;
  if constexpr (std::is_same_v<T, uint32_t>) return ANYHAL_DTYPE_U32;
  if constexpr (std::is_same_v<T, uint16_t>) return ANYHAL_DTYPE_U16;
  if constexpr (std::is_same_v<T, uint8_t>) return ANYHAL_DTYPE_U8;
  if constexpr (std::is_same_v<T, boolean>) return ANYHAL_DTYPE_BOOL;
  if constexpr (std::is_same_v<T, q4_1>) return ANYHAL_DTYPE_Q4_1;
  if constexpr (std::is_same_v<T, q8_0>) return ANYHAL_DTYPE_Q8_0;
  if constexpr (std::is_same_v<T, q4_0>) return ANYHAL_DTYPE_Q4_0;
  if constexpr (std::is_same_v<T, q4_k>) return ANYHAL_DTYPE_Q4_K;
  if constexpr (std::is_same_v<T, q6_k>) return ANYHAL_DTYPE_Q6_K;
  return ANYHAL_DTYPE_NONE;
}

template <class T>
struct type {
  using is = T;
};

template <class... T>
struct Types {};

using FloatTypes = Types<float, f16, bf16, double>;
using IntTypes = Types<int64_t, int32_t, int16_t, int8_t, uint64_t, uint32_t, uint16_t, uint8_t>;
using NumberTypes = Types<float, f16, bf16, double, int64_t, int32_t, int16_t, int8_t, uint64_t,
                          uint32_t, uint16_t, uint8_t>;
using PlainTypes = Types<float, f16, bf16, double, int64_t, int32_t, int16_t, int8_t, uint64_t,
                         uint32_t, uint16_t, uint8_t, boolean>;
using BlockTypes = Types<q4_1, q8_0, q4_0, q4_k, q6_k>;

// Calls fn(type<T>{}) for the T of the list that `dtype` names; false when none does.
template <class... T, class Fn>
bool visit(Types<T...>, uint32_t dtype, Fn&& fn) {
  return ((dtype == dtype_of<T>() ? (fn(type<T>{}), true) : false) || ...);
}

template <class T>
constexpr bool kIsFloat = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                          std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class T>
constexpr bool kIsHalf = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// What elements of T are computed in when one rounding at the end is all that is allowed.
template <class T>
using Compute = std::conditional_t<kIsHalf<T>, float, T>;

// One value in another type: floats round to nearest even; float to integer goes toward zero,
// saturates, and gives 0 for NaN; integers wrap; bool is "not zero".
template <class To, class From>
inline To convert(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (std::is_same_v<From, boolean>) {
    return convert<To>(static_cast<uint8_t>(v ? 1 : 0));
  } else if constexpr (kIsHalf<From>) {
    return convert<To>(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, boolean>) {
    return boolean(v != From(0));
  } else if constexpr (kIsHalf<To>) {
    if constexpr (std::is_integral_v<From> && sizeof(From) == 8) {
      // A 64-bit integer keeps 53 bits in a double; the bit below them remembers the rest.
      if (v > From(1) << 52 || (std::is_signed_v<From> && v < -(From(1) << 52))) {
        From low = v & From(0xfff);
        v = static_cast<From>((v - low) | (low != 0 ? From(0x800) : From(0)));
      }
      return To(static_cast<double>(v));
    } else if constexpr (std::is_same_v<From, float>) {
      return To(v);
    } else {
      return To(static_cast<double>(v));
    }
  } else if constexpr (kIsFloat<From> && std::is_integral_v<To>) {
    // 2^digits is exact in every float, the largest integer itself may not be.
    constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From(2);
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    if (!(v == v)) return To(0);
    if (v >= kEnd) return std::numeric_limits<To>::max();
    if (v <= kLow) return std::numeric_limits<To>::min();
    return static_cast<To>(v);
  } else {
    return static_cast<To>(v);
  }
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_DTYPES_HPP_
