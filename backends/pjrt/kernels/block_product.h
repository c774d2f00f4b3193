// Few f32 rows times weights in a block format, read as they are packed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_KERNELS_BLOCK_PRODUCT_H_
#define ANYHAL_BACKENDS_PJRT_KERNELS_BLOCK_PRODUCT_H_

#include <stdint.h>

namespace hal::pjrt {

// out[M, N] = x[M, K] times the transposed decoded weights [N, K]; all dense but for the rows of
// the weights, which begin row_bytes apart.
struct BlockProduct {
  const float* x;
  const uint8_t* weights;
  float* out;
  int64_t m, n, k;
  int64_t row_bytes;
  uint32_t dtype;
};

// Columns [begin, end) of it. A weight is decoded as the contract says, rounded to f32 once (twice
// where the format has two scales); sums are f32.
using BlockKernel = void (*)(const BlockProduct& product, int64_t begin, int64_t end);

// The fastest that this processor and this operating system can run.
BlockKernel block_kernel();

// One of each instruction set that the build knows; the file is compiled once for each.
namespace baseline {
void block_product(const BlockProduct& product, int64_t begin, int64_t end);
}
namespace avx2 {
void block_product(const BlockProduct& product, int64_t begin, int64_t end);
}
namespace avx512 {
void block_product(const BlockProduct& product, int64_t begin, int64_t end);
}

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_KERNELS_BLOCK_PRODUCT_H_
