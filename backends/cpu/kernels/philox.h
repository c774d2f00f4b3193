// Philox4x32-10 (Salmon et al. 2011): the words of a key, as many blocks at once as vectors hold.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_PHILOX_H_
#define BACKENDS_CPU_KERNELS_PHILOX_H_

#include "vec.h"

#if !defined(__AVX2__) && defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hal::cpu::HAL_CPU_ISA {

struct RandomKey {
  uint64_t seed, counter;
};

using U64 = Vec<uint64_t>;
constexpr int kBlocksAtOnce = kLanes<uint64_t>;  // a block is four words

// The product of the lower halves of each lane.
static inline U64 half_product(U64 a, U64 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<U64>(
      _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<U64>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<U64>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}

// The words of blocks [block, block + count), `count` being rounded up to kBlocksAtOnce. Only the
// lower halves of the state count; what the upper ones hold is never read.
static inline void fill_words(const RandomKey& key, uint64_t block, int64_t count, uint32_t* to) {
  constexpr int kRounds = 10;
  constexpr uint64_t kLow = UINT32_MAX;
  U64 keys[kRounds][2], lane, even, odd;
  for (int r = 0; r < kRounds; ++r) {
    keys[r][0] = splat<uint64_t>((key.seed + static_cast<uint64_t>(r) * 0x9E3779B9u) & kLow);
    keys[r][1] =
        splat<uint64_t>(((key.seed >> 32) + static_cast<uint64_t>(r) * 0xBB67AE85u) & kLow);
  }
  for (uint64_t i = 0; i < kBlocksAtOnce; ++i) {
    lane[i] = i;
    // Which lanes of (words 0 and 1, words 2 and 3) stand in the lower and the upper half.
    even[i] = i / 2 + i % 2 * kBlocksAtOnce;
    odd[i] = even[i] + kBlocksAtOnce / 2;
  }
  const U64 first = splat<uint64_t>(0xD2511F53u), second = splat<uint64_t>(0xCD9E8D57u);
  for (; count > 0; count -= kBlocksAtOnce, block += kBlocksAtOnce, to += 4 * kBlocksAtOnce) {
    U64 c0 = splat(block) + lane, c1 = c0 >> 32;
    U64 c2 = splat(key.counter), c3 = splat(key.counter >> 32);
#pragma GCC unroll 10
    for (int r = 0; r < kRounds; ++r) {
      U64 p = half_product(c0, first), q = half_product(c2, second);
      c0 = (q >> 32) ^ c1 ^ keys[r][0];
      c1 = q;
      c2 = (p >> 32) ^ c3 ^ keys[r][1];
      c3 = p;
    }
    U64 low = (c0 & kLow) | c1 << 32, high = (c2 & kLow) | c3 << 32;
    U64 words[2] = {__builtin_shuffle(low, high, even), __builtin_shuffle(low, high, odd)};
    memcpy(to, words, sizeof(words));
  }
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_PHILOX_H_
