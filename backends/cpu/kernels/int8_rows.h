// Rows of x rounded to 8 bits, block by block, and their products with packed weights.
// SPDX-License-Identifier: Apache-2.0
//
// Each block of 32 numbers has a scale of its own, its largest magnitude over 127. Integer sums of
// a block are exact; blocks are added in f32, in their order.
#ifndef BACKENDS_CPU_KERNELS_INT8_ROWS_H_
#define BACKENDS_CPU_KERNELS_INT8_ROWS_H_

#include "packed_rows.h"

#if defined(__AVX512F__)

// Called only where the plan says that the processor has the instructions.
#define HAL_CPU_INT8 __attribute__((target("avx512vnni")))

namespace hal::cpu::HAL_CPU_ISA {

constexpr int64_t kInt8Rows = 8;

// One block of a row: q · scale stands for the numbers.
struct Int8Block {
  float scale;
  int32_t sum;  // of q
  int8_t q[32];
};

static inline int64_t int8_row_bytes(int64_t k) {
  int64_t bytes = k / kBlock * static_cast<int64_t>(sizeof(Int8Block));
  return (bytes + 63) / 64 * 64;
}

// Of eight nibbles in a word, bytes hold the even ones and, shifted, the odd ones: q is in that
// order.
template <class Q>
static inline int place_of(int i) {
  return Q::kPerWord == 8 ? i / 8 * 8 + i % 2 * 4 + i % 8 / 2 : i;
}

// A block with NaN or infinity has such a scale.
template <class Q>
static inline void round_row(const float* x, int64_t k, char* to) {
  Int8Block* block = reinterpret_cast<Int8Block*>(to);
  for (int64_t b = 0; b < k / kBlock; ++b, ++block, x += kBlock) {
    uint32_t most = 0;  // magnitudes of floats are in the order of their bits, NaN above all
    for (int i = 0; i < kBlock; ++i) {
      uint32_t size = bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
      most = size > most ? size : most;
    }
    block->scale = bit_cast<float>(most) / 127.0f;
    block->sum = 0;
    const bool usable = block->scale > 1e-36f && most < 0x7f800000u;
    const float inverse = usable ? 127.0f / bit_cast<float>(most) : 0.0f;
    if (most < 0x7f800000u && !usable) block->scale = 0.0f;
    int8_t q[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      q[i] = usable ? static_cast<int8_t>(static_cast<int32_t>(__builtin_rintf(x[i] * inverse)))
                    : static_cast<int8_t>(0);
      block->sum += q[i];
    }
    for (int i = 0; i < kBlock; ++i) block->q[place_of<Q>(i)] = q[i];
  }
}

static inline bool rows_finite(const char* rows, int64_t stride, int64_t count, int64_t blocks) {
  bool finite = true;
  for (int64_t r = 0; r < count; ++r) {
    const Int8Block* block = reinterpret_cast<const Int8Block*>(rows + r * stride);
    for (int64_t b = 0; b < blocks; ++b) finite = finite && block[b].scale - block[b].scale == 0.0f;
  }
  return finite;
}

template <class Q>
HAL_CPU_INT8 static inline __m512i block_sums(const __m512i* words, const Int8Block& x) {
  __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
  int32_t four;
  if constexpr (Q::kPerWord == 8) {
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) {
      memcpy(&four, x.q + 8 * w, 4);
      even = _mm512_dpbusd_epi32(even, words[2 * w], _mm512_set1_epi32(four));
      memcpy(&four, x.q + 8 * w + 4, 4);
      odd = _mm512_dpbusd_epi32(odd, words[2 * w + 1], _mm512_set1_epi32(four));
    }
  } else {
    // Weights are 128 too large, to be without a sign.
    even = _mm512_set1_epi32(-128 * x.sum);
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) {
      memcpy(&four, x.q + 4 * w, 4);
      __m512i& sum = w % 2 == 0 ? even : odd;
      sum = _mm512_dpbusd_epi32(sum, words[w], _mm512_set1_epi32(four));
    }
  }
  return _mm512_add_epi32(even, odd);
}

template <class Q, int kRows>
HAL_CPU_INT8 static void int8_tile(const char* packed, int64_t blocks, const char* rows,
                                   int64_t stride, float* tile) {
  __m512 sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, packed += Q::kBytes) {
    const Scales<Q> scales = load_scales<Q>(packed, 0);
    const __m512 d = reinterpret_cast<__m512>(scales.d), m = reinterpret_cast<__m512>(scales.m);
    __m512i words[8];
    if constexpr (Q::kPerWord == 8) {
      const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
      for (int w = 0; w < 4; ++w) {
        const __m512i pair = _mm512_loadu_si512(packed + Q::kHeader + w * 64);
        words[2 * w] = _mm512_and_si512(pair, low);
        words[2 * w + 1] = _mm512_and_si512(_mm512_srli_epi32(pair, 4), low);
      }
    } else {
#pragma GCC unroll 8
      for (int w = 0; w < 8; ++w)
        words[w] = _mm512_xor_si512(_mm512_loadu_si512(packed + Q::kHeader + w * 64),
                                    _mm512_set1_epi8(-128));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Int8Block& x = reinterpret_cast<const Int8Block*>(rows + r * stride)[b];
      const __m512 products = _mm512_cvtepi32_ps(block_sums<Q>(words, x));
      sum[r] = _mm512_fmadd_ps(products, _mm512_mul_ps(d, _mm512_set1_ps(x.scale)), sum[r]);
      if constexpr (Q::kPerWord == 8)
        sum[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(x.scale * static_cast<float>(x.sum)), sum[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(tile + r * kGroup, sum[r]);
}

// `rows` rounded rows against the 16 weight rows of one group; tile is [rows][16].
template <class Q>
static inline void int8_rows(const char* packed, int64_t blocks, const char* x, int64_t stride,
                             int64_t rows, float* tile) {
  if (rows == kInt8Rows) return int8_tile<Q, kInt8Rows>(packed, blocks, x, stride, tile);
  for (int64_t r = 0; r < rows;) {
    const bool four = rows - r >= 4;
    if (four)
      int8_tile<Q, 4>(packed, blocks, x + r * stride, stride, tile + r * kGroup);
    else
      int8_tile<Q, 1>(packed, blocks, x + r * stride, stride, tile + r * kGroup);
    r += four ? 4 : 1;
  }
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // __AVX512F__
#endif  // BACKENDS_CPU_KERNELS_INT8_ROWS_H_
