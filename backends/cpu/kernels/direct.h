// f32 products read in place, without packing: small ones and those with few rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_DIRECT_H_
#define BACKENDS_CPU_KERNELS_DIRECT_H_

#include "math.h"
#include "vec.h"

namespace hal::cpu::HAL_CPU_ISA {

// The first n of a vector's lanes, for 0 < n <= kF32Lanes; the rest read as zero, are not written.
struct Lanes {
#if defined(__AVX512F__)
  __mmask16 mask;
  explicit Lanes(int64_t n) : mask(static_cast<__mmask16>((1u << n) - 1u)) {}
  F32 load(const float* p) const { return _mm512_maskz_loadu_ps(mask, p); }
  void store(float* p, F32 v) const { _mm512_mask_storeu_ps(p, mask, v); }
#elif defined(__AVX2__)
  __m256i mask;
  explicit Lanes(int64_t n)
      : mask(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))) {}
  F32 load(const float* p) const { return _mm256_maskload_ps(p, mask); }
  void store(float* p, F32 v) const { _mm256_maskstore_ps(p, mask, v); }
#else
  int64_t count;
  explicit Lanes(int64_t n) : count(n) {}
  F32 load(const float* p) const {
    F32 v = {};
    memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
    return v;
  }
  void store(float* p, F32 v) const { memcpy(p, &v, static_cast<size_t>(count) * sizeof(float)); }
#endif
};

struct DirectOperands {
  int64_t k;
  const float* a;
  int64_t a_row, a_k;  // elements
  const float* b;
  int64_t b_k;  // columns of B are adjacent
  float* out;
  int64_t out_row;  // columns of out are adjacent
};

// kPart: the last vector is not whole.
template <int kRows, int kVectors, bool kPart>
static inline void direct_tile(const DirectOperands& o, int64_t row, int64_t column, Lanes last) {
  F32 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = F32{};
  const float* a = o.a + row * o.a_row;
  const float* b = o.b + column;
  for (int64_t k = 0; k < o.k; ++k, a += o.a_k, b += o.b_k) {
    F32 line[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j + 1 < kVectors; ++j) line[j] = load(b + j * kF32Lanes);
    const float* end = b + (kVectors - 1) * kF32Lanes;
    line[kVectors - 1] = kPart ? last.load(end) : load(end);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      F32 factor = splat(a[i * o.a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = multiply_add<float>(factor, line[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    float* c = o.out + (row + i) * o.out_row + column;
#pragma GCC unroll 4
    for (int j = 0; j + 1 < kVectors; ++j) store(c + j * kF32Lanes, sum[i][j]);
    float* end = c + (kVectors - 1) * kF32Lanes;
    if (kPart)
      last.store(end, sum[i][kVectors - 1]);
    else
      store(end, sum[i][kVectors - 1]);
  }
}

template <int kVectors, bool kPart>
static inline void direct_rows(const DirectOperands& o, int64_t rows, int64_t column, Lanes last) {
  constexpr int kTall = kVectors == 1 ? 8 : kVectorBytes == 64 ? 8 : 4;
  int64_t i = 0;
  for (; i + kTall <= rows; i += kTall) direct_tile<kTall, kVectors, kPart>(o, i, column, last);
  if constexpr (kTall == 8) {
    if (i + 4 <= rows) {
      direct_tile<4, kVectors, kPart>(o, i, column, last);
      i += 4;
    }
  }
  if (i + 2 <= rows) {
    direct_tile<2, kVectors, kPart>(o, i, column, last);
    i += 2;
  }
  if (i < rows) direct_tile<1, kVectors, kPart>(o, i, column, last);
}

// The next kVectors vectors of columns, `left` of which exist.
template <int kVectors>
static inline void direct_column(const DirectOperands& o, int64_t rows, int64_t column,
                                 int64_t left) {
  int64_t tail = left - (kVectors - 1) * kF32Lanes;
  if (tail >= kF32Lanes)
    direct_rows<kVectors, false>(o, rows, column, Lanes(kF32Lanes));
  else
    direct_rows<kVectors, true>(o, rows, column, Lanes(tail));
}

// Columns [begin, end) of all rows.
static inline void direct_product(const DirectOperands& o, int64_t rows, int64_t begin,
                                  int64_t end) {
  for (int64_t j = begin; j < end;) {
    int64_t left = end - j;
    if (rows < 4 && left > 3 * kF32Lanes) {
      direct_column<4>(o, rows, j, left);
      j += 4 * kF32Lanes;
    } else if (left > kF32Lanes) {
      direct_column<2>(o, rows, j, left);
      j += 2 * kF32Lanes;
    } else {
      direct_column<1>(o, rows, j, left);
      j += kF32Lanes;
    }
  }
}

// Sum of a[i] * b[i], both contiguous.
static inline float dot(const float* a, const float* b, int64_t n) {
  F32 s0 = {}, s1 = {}, s2 = {}, s3 = {};
  int64_t i = 0;
  for (; i + 4 * kF32Lanes <= n; i += 4 * kF32Lanes) {
    s0 = multiply_add<float>(load(a + i), load(b + i), s0);
    s1 = multiply_add<float>(load(a + i + kF32Lanes), load(b + i + kF32Lanes), s1);
    s2 = multiply_add<float>(load(a + i + 2 * kF32Lanes), load(b + i + 2 * kF32Lanes), s2);
    s3 = multiply_add<float>(load(a + i + 3 * kF32Lanes), load(b + i + 3 * kF32Lanes), s3);
  }
  for (; i < n; i += kF32Lanes) {
    Lanes lanes(n - i < kF32Lanes ? n - i : kF32Lanes);
    s0 = multiply_add<float>(lanes.load(a + i), lanes.load(b + i), s0);
  }
  return horizontal_sum((s0 + s1) + (s2 + s3));
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_DIRECT_H_
