// Numbers of every dtype to and from the dtype that kernels compute in.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_CONVERT_H_
#define BACKENDS_CPU_KERNELS_CONVERT_H_

#include "kernel.h"
#include "vec.h"

namespace hal::cpu::HAL_CPU_ISA {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

static inline float to_f32(F16 h) {
#if defined(__F16C__)
  return _cvtsh_ss(h.bits);
#else
  uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  uint32_t magnitude = h.bits & 0x7fffu;
  // A half's bits shifted into a float's fields are the value divided by 2^112, subnormals too.
  float value = bit_cast<float>(magnitude << 13) * 0x1p112f;
  uint32_t special = 0x7f800000u | (magnitude << 13);
  uint32_t bits = magnitude >= 0x7c00u ? special : bit_cast<uint32_t>(value);
  return bit_cast<float>(bits | sign);
#endif
}

static inline F16 to_f16(float x) {
#if defined(__F16C__)
  return {static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))};
#else
  uint32_t bits = bit_cast<uint32_t>(x);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  // Adding a suitable power of two makes the FPU round at the bit where the half ends.
  uint32_t base = magnitude < 0x38800000u ? 0x38800000u : (magnitude & 0x7f800000u);
  base = base > 0x47800000u ? 0x47800000u : base;
  float shifter = bit_cast<float>(base + (13u << 23));
  float rounded = (bit_cast<float>(magnitude) + shifter) - shifter;
  float scaled = rounded * 0x1p-112f;  // subnormal floats hold the half's fields exactly
  uint32_t half = bit_cast<uint32_t>(scaled) >> 13;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return {static_cast<uint16_t>(half | sign)};
#endif
}

static inline float to_f32(BF16 h) { return bit_cast<float>(static_cast<uint32_t>(h.bits) << 16); }

static inline BF16 to_bf16(float x) {
  uint32_t bits = bit_cast<uint32_t>(x);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

static inline float to_f32(float x) { return x; }

template <class T>
static inline T from_f32(float x);
template <>
inline float from_f32<float>(float x) {
  return x;
}
template <>
inline F16 from_f32<F16>(float x) {
  return to_f16(x);
}
template <>
inline BF16 from_f32<BF16>(float x) {
  return to_bf16(x);
}

// Reads n numbers of a float dtype (f32, f16, bf16), `stride` bytes apart, as f32.
template <class T>
static inline void read_row(const char* from, int64_t stride, int64_t n, float* to) {
  if (stride == static_cast<int64_t>(sizeof(T))) {
    const T* p = reinterpret_cast<const T*>(from);
    int64_t i = 0;
#if defined(__AVX512F__)
    if constexpr (__is_same(T, F16)) {
      for (; i + 16 <= n; i += 16)
        store(to + i, static_cast<F32>(_mm512_cvtph_ps(
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i)))));
    }
#elif defined(__F16C__)
    if constexpr (__is_same(T, F16)) {
      for (; i + 8 <= n; i += 8)
        store(to + i, static_cast<F32>(_mm256_cvtph_ps(
                          _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i)))));
    }
#endif
    for (; i < n; ++i) to[i] = to_f32(p[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i] = to_f32(*reinterpret_cast<const T*>(from + i * stride));
}

template <class T>
static inline void write_row(char* to, int64_t stride, int64_t n, const float* from) {
  if (stride == static_cast<int64_t>(sizeof(T))) {
    T* p = reinterpret_cast<T*>(to);
    int64_t i = 0;
#if defined(__AVX512F__)
    if constexpr (__is_same(T, F16)) {
      for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + i),
                            _mm512_cvtps_ph(load(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#elif defined(__F16C__)
    if constexpr (__is_same(T, F16)) {
      for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p + i),
                         _mm256_cvtps_ph(load(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; ++i) p[i] = from_f32<T>(from[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(to + i * stride) = from_f32<T>(from[i]);
}

using ReadRow = void (*)(const char* from, int64_t stride, int64_t n, float* to);
using WriteRow = void (*)(char* to, int64_t stride, int64_t n, const float* from);

static inline ReadRow reader_of(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return read_row<float>;
    case ANYHAL_DTYPE_F16:
      return read_row<F16>;
    case ANYHAL_DTYPE_BF16:
      return read_row<BF16>;
    default:
      return nullptr;
  }
}

static inline WriteRow writer_of(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return write_row<float>;
    case ANYHAL_DTYPE_F16:
      return write_row<F16>;
    case ANYHAL_DTYPE_BF16:
      return write_row<BF16>;
    default:
      return nullptr;
  }
}

static inline int64_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
    case ANYHAL_DTYPE_I32:
    case ANYHAL_DTYPE_U32:
      return 4;
    case ANYHAL_DTYPE_F16:
    case ANYHAL_DTYPE_BF16:
    case ANYHAL_DTYPE_I16:
    case ANYHAL_DTYPE_U16:
      return 2;
    case ANYHAL_DTYPE_F64:
    case ANYHAL_DTYPE_I64:
    case ANYHAL_DTYPE_U64:
      return 8;
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

static inline int64_t block_elements(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_Q4_1:
    case ANYHAL_DTYPE_Q8_0:
    case ANYHAL_DTYPE_Q4_0:
      return 32;
    case ANYHAL_DTYPE_Q4_K:
    case ANYHAL_DTYPE_Q6_K:
      return 256;
    case ANYHAL_DTYPE_I4:
    case ANYHAL_DTYPE_U4:
      return 2;
    default:
      return 1;
  }
}

static inline bool is_block(uint32_t dtype) { return block_elements(dtype) != 1; }
static inline bool is_float(uint32_t dtype) {
  return dtype >= ANYHAL_DTYPE_F32 && dtype <= ANYHAL_DTYPE_F64;
}
static inline bool is_f32_or_half(uint32_t dtype) {
  return dtype >= ANYHAL_DTYPE_F32 && dtype <= ANYHAL_DTYPE_BF16;
}

// 32 weights of a q4_1 or q8_0 block as f32.
static inline void dequantise_block(uint32_t dtype, const uint8_t* block, float* to) {
  uint16_t scale_bits;
  memcpy(&scale_bits, block, 2);
  float scale = to_f32(F16{scale_bits});
  if (dtype == ANYHAL_DTYPE_Q8_0) {
    const int8_t* q = reinterpret_cast<const int8_t*>(block + 2);
    for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(q[i]);
    return;
  }
  uint16_t minimum_bits;
  memcpy(&minimum_bits, block + 2, 2);
  float minimum = to_f32(F16{minimum_bits});
  for (int i = 0; i < 16; ++i) {
    uint8_t byte = block[4 + i];
    to[i] = scale * static_cast<float>(byte & 15) + minimum;
    to[i + 16] = scale * static_cast<float>(byte >> 4) + minimum;
  }
}

static inline int64_t read_index(uint32_t dtype, const char* p) {
  if (dtype == ANYHAL_DTYPE_I64) {
    int64_t v;
    memcpy(&v, p, 8);
    return v;
  }
  int32_t v;
  memcpy(&v, p, 4);
  return v;
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_CONVERT_H_
