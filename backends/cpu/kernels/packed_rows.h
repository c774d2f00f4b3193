// Weights of quant_matmul as they are packed: 16 rows side by side, block by block.
// SPDX-License-Identifier: Apache-2.0
//
// Packed form, for each group of 16 rows and each block of 32 weights: the 16 scales, (q4_1) the 16
// minima, then words of 32 bits, 16 at a time, one per row: eight nibbles or four bytes of
// neighbouring weights. A vector register then holds one weight of every row, so that a dot product
// needs no sum across lanes. Rows are padded with zero scales to a multiple of 32.
#ifndef BACKENDS_CPU_KERNELS_PACKED_ROWS_H_
#define BACKENDS_CPU_KERNELS_PACKED_ROWS_H_

#include "convert.h"

namespace hal::cpu::HAL_CPU_ISA {

constexpr int64_t kGroup = 16;
constexpr int64_t kBlock = 32;
constexpr int64_t kRowUnit = 32;
constexpr int kVectorsPerGroup = static_cast<int>(kGroup) / kF32Lanes;

struct Q4 {
  static constexpr int kPerWord = 8;
  static constexpr int64_t kHeader = 64;
  static constexpr int64_t kBytes = 320;
};
struct Q8 {
  static constexpr int kPerWord = 4;
  static constexpr int64_t kHeader = 32;
  static constexpr int64_t kBytes = 544;
};

// Scale and minimum of kF32Lanes rows.
template <class Q>
struct Scales {
  F32 d, m;
};

inline F32 load_halves(const char* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  F32 v;
  for (int i = 0; i < kF32Lanes; ++i) {
    uint16_t bits;
    memcpy(&bits, p + 2 * i, 2);
    v[i] = to_f32(F16{bits});
  }
  return v;
#endif
}

template <class Q>
inline Scales<Q> load_scales(const char* block, int vector) {
  Scales<Q> s;
  s.d = load_halves(block + vector * kF32Lanes * 2);
  if constexpr (Q::kPerWord == 8)
    s.m = load_halves(block + 32 + vector * kF32Lanes * 2);
  else
    s.m = F32{};
  return s;
}

// Weight number kPart of each word.
template <class Q, int kPart>
inline F32 weight(I32 words, const Scales<Q>& s) {
  if constexpr (Q::kPerWord == 8) {
#if defined(__AVX512F__)
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i shifted = _mm512_srli_epi32(reinterpret_cast<__m512i>(words), 4 * kPart);
    F32 q = _mm512_permutexvar_ps(shifted, table);
#else
    F32 q = __builtin_convertvector((words >> (4 * kPart)) & 15, F32);
#endif
    return multiply_add<float>(q, s.d, s.m);
  } else {
    I32 q = (words << (24 - 8 * kPart)) >> 24;
    return __builtin_convertvector(q, F32) * s.d;
  }
}

template <class Q, int kPart = 0, class Body>
inline void each_weight(I32 words, const Scales<Q>& s, const Body& body) {
  if constexpr (kPart < Q::kPerWord) {
    body(kPart, weight<Q, kPart>(words, s));
    each_weight<Q, kPart + 1>(words, s, body);
  }
}

inline I32 load_words(const char* p) {
  I32 v;
  memcpy(&v, p, sizeof(v));
  return v;
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_PACKED_ROWS_H_
