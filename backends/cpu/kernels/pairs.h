// Products whose factors are rounded to bf16, two to a word: panels of pairs, and their tile.
// SPDX-License-Identifier: Apache-2.0
//
// A pair of neighbouring k is one 32-bit word, kept in a float's place, so that the loops of gemm.h
// serve as they are with half the depth. The dot instruction takes subnormal factors for zeros and
// sums in f32. Finite numbers stay finite: what would round to infinity becomes bf16's largest.
#ifndef BACKENDS_CPU_KERNELS_PAIRS_H_
#define BACKENDS_CPU_KERNELS_PAIRS_H_

#include "gemm.h"

#if defined(__AVX512F__)

// Called only where the plan says that the processor has the instructions.
#define HAL_CPU_BF16 __attribute__((target("avx512bf16")))

namespace hal::cpu::HAL_CPU_ISA {

HAL_CPU_BF16 static inline __m512 below_infinity(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __m512i above = _mm512_sub_epi32(size, _mm512_set1_epi32(0x7f7f0001));
  const __mmask16 large = _mm512_cmplt_epu32_mask(above, _mm512_set1_epi32(0xffff));
  return _mm512_castsi512_ps(
      _mm512_mask_and_epi32(bits, large, bits, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// 16 numbers, each rounded into the lower half of its word.
HAL_CPU_BF16 static inline __m512i rounded_words(__m512 x) {
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(below_infinity(x))));
}

HAL_CPU_BF16 static inline __m512i pairs_of(__m512 even, __m512 odd) {
  return _mm512_or_si512(rounded_words(even), _mm512_slli_epi32(rounded_words(odd), 16));
}

static inline __mmask16 first_lanes(int64_t n) {
  return n >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << n) - 1u);
}

// Up to 16 neighbouring numbers of one line, as words.
template <class S>
HAL_CPU_BF16 static inline __m512i line_words(const char* from, __mmask16 lanes) {
  if constexpr (__is_same(S, float))
    return rounded_words(_mm512_maskz_loadu_ps(lanes, from));
  else
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
}

// Up to 16 pairs of neighbours.
template <class S>
HAL_CPU_BF16 static inline __m512i neighbour_pairs(const char* from, int64_t pairs) {
  if constexpr (__is_same(S, float)) {
    const __m512 low = _mm512_maskz_loadu_ps(first_lanes(2 * pairs), from);
    const __mmask16 rest = pairs > 8 ? first_lanes(2 * pairs - 16) : __mmask16{0};
    const __m512 high = _mm512_maskz_loadu_ps(rest, from + 64);
    return reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(below_infinity(high), below_infinity(low)));
  } else {
    return _mm512_maskz_loadu_epi32(first_lanes(pairs), from);
  }
}

template <class S>
static inline uint32_t rounded_bits(const char* from) {
  if constexpr (__is_same(S, float)) {
    const float x = *reinterpret_cast<const float*>(from);
    const uint32_t bits = to_bf16(x).bits;
    return (bits & 0x7fffu) == 0x7f80u && (bit_cast<uint32_t>(x) & 0x7fffffffu) != 0x7f800000u
               ? bits - 1
               : bits;
  } else {
    return reinterpret_cast<const BF16*>(from)->bits;
  }
}

// As pack_panel, but `depth` counts pairs and `along` leads from pair to pair.
template <class S, int kWidth>
HAL_CPU_BF16 static void pack_pairs(const char* from, int64_t across, int64_t along, int64_t count,
                                    int64_t depth, float* to) {
  constexpr int64_t kBytes = sizeof(S);
  if (across == kBytes) {
    for (int64_t k = 0; k < depth; ++k, from += along, to += kWidth) {
      for (int w = 0; w < kWidth; w += 16) {
        const __mmask16 lanes = count > w ? first_lanes(count - w) : __mmask16{0};
        const __m512i even = line_words<S>(from + w * kBytes, lanes);
        const __m512i odd = line_words<S>(from + along / 2 + w * kBytes, lanes);
        _mm512_mask_storeu_epi32(to + w, first_lanes(kWidth - w),
                                 _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
      }
    }
    return;
  }
  if (along == 2 * kBytes) {
    for (int64_t k = 0; k < depth; k += 16) {
      const int64_t pairs = depth - k < 16 ? depth - k : 16;
      for (int w = 0; w < kWidth; w += 16) {
        F32 r[16];
        for (int i = 0; i < 16; ++i)
          r[i] = w + i < count ? reinterpret_cast<F32>(
                                     neighbour_pairs<S>(from + (w + i) * across + k * along, pairs))
                               : F32{};
        transpose_square(r);
        for (int64_t i = 0; i < pairs; ++i)
          _mm512_mask_storeu_ps(to + (k + i) * kWidth + w, first_lanes(kWidth - w),
                                reinterpret_cast<__m512>(r[i]));
      }
    }
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t w = 0; w < kWidth; ++w) {
      const char* at = from + w * across + k * along;
      const uint32_t pair =
          w < count ? rounded_bits<S>(at) | rounded_bits<S>(at + along / 2) << 16 : 0;
      memcpy(to + k * kWidth + w, &pair, sizeof(pair));
    }
  }
}

// From here on rounding the factors while packing costs less than the dot instruction spares
// (benchmarks/gemm.py --numerics bf16).
constexpr int64_t kPairsWork = 96 * 96 * 96;
constexpr int64_t kPairsRows = 64, kPairsColumns = 32;

// Which rounding a row gets may not depend on how many rows there are, so not under `ordered`.
static inline bool pairs_pay(const Plan& plan, int64_t m, int64_t n, int64_t k) {
  return plan.accumulate == ANYHAL_ACCUMULATE_BF16 && plan.dots_bf16 && !plan.ordered &&
         k % 2 == 0 && m >= kPairsRows && n >= kPairsColumns && m * n * k >= kPairsWork;
}

// micro_kernel on pairs.
template <int kUsed>
HAL_CPU_BF16 static void pairs_kernel(int64_t depth, const float* a, const float* b,
                                      const TilePlace<float>& place) {
  constexpr int kVectors = Tile<float>::kVectors;
  __m512 sum[kUsed][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sum[i][j] = place.from == nullptr
                      ? _mm512_setzero_ps()
                      : _mm512_loadu_ps(place.from + i * place.from_stride + j * 16);
  for (int64_t k = 0; k < depth; ++k) {
    __m512bh row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      row[j] = reinterpret_cast<__m512bh>(_mm512_loadu_ps(b + j * 16));
#pragma GCC unroll 16
    for (int i = 0; i < kUsed; ++i) {
      const __m512bh factor = reinterpret_cast<__m512bh>(_mm512_set1_ps(a[i]));
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], factor, row[j]);
    }
    a += Tile<float>::kRows;
    b += kVectors * 16;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      _mm512_storeu_ps(place.to + i * place.to_stride + j * 16, sum[i][j]);
}

static void run_pairs_tile(int64_t rows, int64_t depth, const float* a, const float* b,
                           const TilePlace<float>& place) {
  if (rows <= 4) return pairs_kernel<4>(depth, a, b, place);
  if (rows <= 8) return pairs_kernel<8>(depth, a, b, place);
  if (rows <= 11) return pairs_kernel<11>(depth, a, b, place);
  pairs_kernel<Tile<float>::kRows>(depth, a, b, place);
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // __AVX512F__
#endif  // BACKENDS_CPU_KERNELS_PAIRS_H_
