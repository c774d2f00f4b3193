// Block formats of GGUF files: elements that share scales. Decoding is exact in double; in float it
// rounds once at most.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_BLOCKS_HPP_
#define ANYHAL_SDK_BLOCKS_HPP_

#include "anyhal/sdk/floats.hpp"

namespace hal::sdk {

struct q8_0 {
  static constexpr int kElements = 32;
  f16 scale;
  int8_t values[kElements];

  template <class T>
  void decode(T* out) const {
    const T d = static_cast<float>(scale);
    for (int i = 0; i < kElements; ++i) out[i] = d * static_cast<T>(values[i]);
  }
};
static_assert(sizeof(q8_0) == 34);

struct q4_1 {
  static constexpr int kElements = 32;
  f16 scale;
  f16 minimum;
  uint8_t nibbles[kElements / 2];

  template <class T>
  void decode(T* out) const {
    const T d = static_cast<float>(scale), m = static_cast<float>(minimum);
    for (int i = 0; i < kElements / 2; ++i) {
      out[i] = d * static_cast<T>(nibbles[i] & 15) + m;
      out[i + kElements / 2] = d * static_cast<T>(nibbles[i] >> 4) + m;
    }
  }
};
static_assert(sizeof(q4_1) == 20);

struct q4_0 {
  static constexpr int kElements = 32;
  f16 scale;
  uint8_t nibbles[kElements / 2];

  template <class T>
  void decode(T* out) const {
    const T d = static_cast<float>(scale);
    for (int i = 0; i < kElements / 2; ++i) {
      out[i] = d * static_cast<T>((nibbles[i] & 15) - 8);
      out[i + kElements / 2] = d * static_cast<T>((nibbles[i] >> 4) - 8);
    }
  }
};
static_assert(sizeof(q4_0) == 18);

// 8 groups of 32, each with a scale and a minimum of 6 bits.
struct q4_k {
  static constexpr int kElements = 256;
  f16 scale;
  f16 minimum;
  uint8_t packed[12];
  uint8_t nibbles[kElements / 2];

  // Groups 0 to 3 have a byte each; 4 to 7 have a nibble, and its upper two bits above those.
  int scale_of(int group) const {
    if (group < 4) return packed[group] & 63;
    return (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
  }
  int minimum_of(int group) const {
    if (group < 4) return packed[group + 4] & 63;
    return packed[group + 4] >> 4 | packed[group] >> 6 << 4;
  }

  template <class T>
  void decode(T* out) const {
    for (int group = 0; group < 8; ++group) {
      const T d = static_cast<T>(static_cast<float>(scale)) * static_cast<T>(scale_of(group));
      const T m = static_cast<T>(static_cast<float>(minimum)) * static_cast<T>(minimum_of(group));
      const uint8_t* from = nibbles + group / 2 * 32;
      for (int i = 0; i < 32; ++i)
        *out++ = d * static_cast<T>(group % 2 == 0 ? from[i] & 15 : from[i] >> 4) - m;
    }
  }
};
static_assert(sizeof(q4_k) == 144);

// Two halves of 128; a quarter of one takes its nibbles from the low or the high side of 32 bytes.
struct q6_k {
  static constexpr int kElements = 256;
  uint8_t low[kElements / 2];
  uint8_t upper[kElements / 4];
  int8_t scales[kElements / 16];
  f16 scale;

  template <class T>
  void decode(T* out) const {
    for (int i = 0; i < kElements; ++i) {
      const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
      const int byte = low[64 * half + quarter % 2 * 32 + at];
      const int top = upper[32 * half + at] >> 2 * quarter & 3;
      const int q = (quarter < 2 ? byte & 15 : byte >> 4) | top << 4;
      const T d = static_cast<T>(static_cast<float>(scale)) * static_cast<T>(scales[i / 16]);
      out[i] = d * static_cast<T>(q - 32);
    }
  }
};
static_assert(sizeof(q6_k) == 210);

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_BLOCKS_HPP_
