// Products with packed weights. Compiled once per instruction set, in a namespace of its own.
// SPDX-License-Identifier: Apache-2.0
//
// All code here has internal linkage or lies in that namespace, and no shared inline function is
// used: one compiled for AVX-512 and merged by the linker would end the process on an older chip.
#include "block_product.h"

#include <string.h>

#include "anyhal/backend.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define HAL_PJRT_ISA avx512
#elif defined(__AVX2__)
#define HAL_PJRT_ISA avx2
#else
#define HAL_PJRT_ISA baseline
#endif

namespace hal::pjrt::HAL_PJRT_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float F32 __attribute__((vector_size(4 * kLanes)));
typedef float LooseF32 __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int32_t I32 __attribute__((vector_size(4 * kLanes)));

// Formats are read 32 weights at a time, a part.
constexpr int kPart = 32;
constexpr int kVectors = kPart / kLanes;
constexpr int kHalf = kVectors / 2;
constexpr int kRowsMax = 4;  // rows of x, and of the weights, in one pass
// Bytes from what is read to what is fetched. Rows are too short for the processor to see where
// several of them go: without this, weights come at a third of the memory's speed.
constexpr int64_t kAhead = 12288;

inline F32 splat(float x) { return x - F32{}; }
inline F32 load(const float* p) { return *reinterpret_cast<const LooseF32*>(p); }
#if !defined(__AVX2__)
// Four bytes, each as the upper one of a lane: zeros are put below them, twice.
inline I32 upper_bytes(const uint8_t* p) {
  typedef uint8_t U8 __attribute__((vector_size(16)));
  typedef uint16_t U16 __attribute__((vector_size(16)));
  U8 v = {};
  memcpy(&v, p, 4);
  const U8 pairs = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const U16 twice = {0, 8, 1, 9, 2, 10, 3, 11};
  const U16 halves = reinterpret_cast<U16>(__builtin_shuffle(U8{}, v, pairs));
  return reinterpret_cast<I32>(__builtin_shuffle(U16{}, halves, twice));
}
#endif

// kLanes bytes as numbers. The compiler's own conversion goes through scalar registers.
inline I32 bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<I32>(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<I32>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  typedef uint32_t U32 __attribute__((vector_size(16)));
  return reinterpret_cast<I32>(reinterpret_cast<U32>(upper_bytes(p)) >> 24);
#endif
}
inline I32 signed_bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<I32>(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<I32>(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  return upper_bytes(p) >> 24;
#endif
}
inline F32 floats(I32 v) { return __builtin_convertvector(v, F32); }

// Without a multiplication of denormals, which plugins set to 0.
inline float half(const uint8_t* p) {
  uint16_t h;
  memcpy(&h, p, 2);
#if defined(__F16C__)
  typedef _Float16 Half;
  Half number;
  memcpy(&number, &h, 2);
  return static_cast<float>(number);
#else
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, rest = h & 0x7fffu;
  uint32_t bits = (rest << 13) + (112u << 23);
  if (rest >= 0x7c00u) bits += 112u << 23;
  if (rest < 0x400u) {
    const float small = static_cast<float>(rest) * 0x1p-24f;
    memcpy(&bits, &small, 4);
  }
  bits |= sign;
  float out;
  memcpy(&out, &bits, 4);
  return out;
#endif
}

struct Q8_0 {
  static constexpr int kParts = 1, kBytes = 34;
  static inline void decode(const uint8_t* block, int, F32* w) {
    const F32 d = splat(half(block));
    for (int i = 0; i < kVectors; ++i) w[i] = d * floats(signed_bytes(block + 2 + kLanes * i));
  }
};

struct Q4_1 {
  static constexpr int kParts = 1, kBytes = 20;
  static inline void decode(const uint8_t* block, int, F32* w) {
    const float d = half(block), m = half(block + 2);
#if defined(__AVX512F__)
    // All 16 values at once; nibbles then choose among them, by the low four bits of each lane.
    const F32 codes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const F32 values = splat(d) * codes + splat(m);
    const I32 packed = bytes(block + 4);
    w[0] = __builtin_shuffle(values, packed);
    w[1] = __builtin_shuffle(values, packed >> 4);
#else
    for (int i = 0; i < kHalf; ++i) {
      const I32 packed = bytes(block + 4 + kLanes * i);
      w[i] = splat(d) * floats(packed & 15) + splat(m);
      w[kHalf + i] = splat(d) * floats(packed >> 4) + splat(m);
    }
#endif
  }
};

struct Q4_0 {
  static constexpr int kParts = 1, kBytes = 18;
  static inline void decode(const uint8_t* block, int, F32* w) {
    const F32 d = splat(half(block));
    for (int i = 0; i < kHalf; ++i) {
      const I32 packed = bytes(block + 2 + kLanes * i);
      w[i] = d * floats((packed & 15) - 8);
      w[kHalf + i] = d * floats((packed >> 4) - 8);
    }
  }
};

// 8 groups of 32; their scales and minima have 6 bits.
struct Q4_K {
  static constexpr int kParts = 8, kBytes = 144;
  static inline void decode(const uint8_t* block, int group, F32* w) {
    const uint8_t* six = block + 4;
    const int scale =
        group < 4 ? six[group] & 63 : (six[group + 4] & 15) | six[group - 4] >> 6 << 4;
    const int minimum =
        group < 4 ? six[group + 4] & 63 : six[group + 4] >> 4 | six[group] >> 6 << 4;
    const F32 d = splat(half(block) * static_cast<float>(scale));
    const F32 m = splat(half(block + 2) * static_cast<float>(minimum));
    const int shift = group % 2 * 4;
    for (int i = 0; i < kVectors; ++i) {
      const I32 packed = bytes(block + 16 + group / 2 * 32 + kLanes * i);
      w[i] = d * floats(packed >> shift & 15) - m;
    }
  }
};

// Quarters of two halves: nibbles from the low or the high side of 32 bytes, two bits above them.
struct Q6_K {
  static constexpr int kParts = 8, kBytes = 210;
  static inline void decode(const uint8_t* block, int part, F32* w) {
    const int side = part / 4, quarter = part % 4;
    const uint8_t* low = block + 64 * side + quarter % 2 * 32;
    const uint8_t* upper = block + 128 + 32 * side;
    const float d = half(block + 208);
    for (int i = 0; i < kVectors; ++i) {
      const int8_t scale = static_cast<int8_t>(block[192 + 2 * part + i / kHalf]);
      const I32 nibbles = bytes(low + kLanes * i) >> (quarter / 2 * 4) & 15;
      const I32 tops = (bytes(upper + kLanes * i) >> (2 * quarter) & 3) << 4;
      w[i] = splat(d * static_cast<float>(scale)) * floats((nibbles | tops) - 32);
    }
  }
};

inline float total(F32 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(reinterpret_cast<__m512>(v));
#else
  float lanes[kLanes];
  memcpy(lanes, &v, sizeof lanes);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
#endif
}

// kM rows of x against kN rows of the weights, from x and `weights` on; to out[i * n + j].
template <class Q, int kM, int kN>
inline void tile(const BlockProduct& p, const float* x, const uint8_t* weights, float* out) {
  F32 sums[kM][kN];
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) sums[i][j] = F32{};
  const int64_t blocks = p.k / (kPart * Q::kParts);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int part = 0; part < Q::kParts; ++part, x += kPart) {
#pragma GCC unroll 4
      for (int j = 0; j < kN; ++j) {
        F32 w[kVectors];
        const uint8_t* block = weights + j * p.row_bytes + b * Q::kBytes;
        __builtin_prefetch(block + kAhead + part * (Q::kBytes / Q::kParts));
        Q::decode(block, part, w);
#pragma GCC unroll 4
        for (int i = 0; i < kM; ++i)
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) sums[i][j] += w[v] * load(x + i * p.k + kLanes * v);
      }
    }
  }
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) out[i * p.n + j] = total(sums[i][j]);
}

template <class Q, int kN>
inline void rows(const BlockProduct& p, int64_t column) {
  const uint8_t* weights = p.weights + column * p.row_bytes;
  for (int64_t row = 0; row < p.m; row += kRowsMax) {
    const float* x = p.x + row * p.k;
    float* out = p.out + row * p.n + column;
    switch (p.m - row) {
      case 1:
        tile<Q, 1, kN>(p, x, weights, out);
        break;
      case 2:
        tile<Q, 2, kN>(p, x, weights, out);
        break;
      case 3:
        tile<Q, 3, kN>(p, x, weights, out);
        break;
      default:
        tile<Q, kRowsMax, kN>(p, x, weights, out);
    }
  }
}

template <class Q>
void columns(const BlockProduct& p, int64_t begin, int64_t end) {
  int64_t column = begin;
  for (; column + kRowsMax <= end; column += kRowsMax) rows<Q, kRowsMax>(p, column);
  for (; column < end; ++column) rows<Q, 1>(p, column);
}

}  // namespace

void block_product(const BlockProduct& p, int64_t begin, int64_t end) {
  switch (p.dtype) {
    case ANYHAL_DTYPE_Q8_0:
      return columns<Q8_0>(p, begin, end);
    case ANYHAL_DTYPE_Q4_1:
      return columns<Q4_1>(p, begin, end);
    case ANYHAL_DTYPE_Q4_0:
      return columns<Q4_0>(p, begin, end);
    case ANYHAL_DTYPE_Q4_K:
      return columns<Q4_K>(p, begin, end);
    case ANYHAL_DTYPE_Q6_K:
      return columns<Q6_K>(p, begin, end);
  }
}

}  // namespace hal::pjrt::HAL_PJRT_ISA
