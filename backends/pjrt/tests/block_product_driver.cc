// The kernels of every instruction set that this processor has, against decoding in double, with
// denormals taken for 0 as plugins do. Prints what is wrong; 0 when nothing is.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "../kernels/block_product.h"
#include "anyhal/sdk/blocks.hpp"

namespace hal::pjrt {
namespace {

int g_wrong = 0;

struct Level {
  const char* name;
  BlockKernel kernel;
};

std::vector<Level> levels() {
  std::vector<Level> out = {{"baseline", baseline::block_product}};
#if defined(__x86_64__)
  if (block_kernel() != baseline::block_product) out.push_back({"avx2", avx2::block_product});
  if (block_kernel() == avx512::block_product) out.push_back({"avx512", avx512::block_product});
#endif
  return out;
}

void run_flushed(BlockKernel kernel, const BlockProduct& product) {
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  kernel(product, 0, product.n);
  _mm_setcsr(before);
#else
  kernel(product, 0, product.n);
#endif
}

// Rows lie `gap` bytes apart; every third scale is a denormal of f16.
template <class Block>
void check(const char* format, uint32_t dtype, size_t scale_at, int minimum_at, int64_t m,
           int64_t n, int64_t blocks, int64_t gap) {
  constexpr int64_t kElements = Block::kElements;
  const int64_t k = blocks * kElements, row = blocks * static_cast<int64_t>(sizeof(Block)) + gap;
  std::mt19937 random(static_cast<unsigned>(m * 1000 + n * 10 + blocks));
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<uint8_t> weights(static_cast<size_t>(n * row));
  for (uint8_t& byte : weights) byte = static_cast<uint8_t>(random());
  const auto block_at = [&](int64_t j, int64_t b) {
    return &weights[static_cast<size_t>(j * row) + static_cast<size_t>(b) * sizeof(Block)];
  };
  for (int64_t i = 0; i < n * blocks; ++i) {
    uint8_t* block = block_at(i / blocks, i % blocks);
    const sdk::f16 scale(number(random) * (i % 3 == 0 ? 1e-5F : 1.0F)), minimum(number(random));
    std::memcpy(block + scale_at, &scale, 2);
    if (minimum_at >= 0) std::memcpy(block + minimum_at, &minimum, 2);
  }
  std::vector<float> x(static_cast<size_t>(m * k)), out(static_cast<size_t>(m * n));
  for (float& value : x) value = number(random);
  for (const Level& level : levels()) {
    run_flushed(level.kernel, {x.data(), weights.data(), out.data(), m, n, k, row, dtype});
    for (int64_t i = 0; i < m * n; ++i) {
      double sum = 0, all = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        Block block;
        std::memcpy(&block, block_at(i % n, b), sizeof block);
        double w[kElements];
        block.decode(w);
        for (int64_t e = 0; e < kElements; ++e) {
          const double term = w[e] * x[static_cast<size_t>(i / n * k + b * kElements + e)];
          sum += term, all += std::fabs(term);
        }
      }
      const double limit = static_cast<double>(k + 2) * 0x1p-24 * all + 1e-30;
      if (std::fabs(sum - out[static_cast<size_t>(i)]) <= limit) continue;
      std::printf("%s %s: %g instead of %g, m %d n %d k %d\n", level.name, format,
                  static_cast<double>(out[static_cast<size_t>(i)]), sum, static_cast<int>(m),
                  static_cast<int>(n), static_cast<int>(k));
      ++g_wrong;
      return;
    }
  }
}

void check_all() {
  for (const int64_t m : {1, 2, 3, 4, 7, 16})
    for (const int64_t n : {1, 4, 7, 13})
      for (const int64_t blocks : {1, 3})
        for (const int64_t gap : {0, 10}) {
          check<sdk::q4_0>("q4_0", ANYHAL_DTYPE_Q4_0, 0, -1, m, n, blocks, gap);
          check<sdk::q4_1>("q4_1", ANYHAL_DTYPE_Q4_1, 0, 2, m, n, blocks, gap);
          check<sdk::q8_0>("q8_0", ANYHAL_DTYPE_Q8_0, 0, -1, m, n, blocks, gap);
          check<sdk::q4_k>("q4_k", ANYHAL_DTYPE_Q4_K, 0, 2, m, n, blocks, gap);
          check<sdk::q6_k>("q6_k", ANYHAL_DTYPE_Q6_K, 208, -1, m, n, blocks, gap);
        }
}

}  // namespace
}  // namespace hal::pjrt

int main() {
  hal::pjrt::check_all();
  return hal::pjrt::g_wrong != 0;
}
