// Which instruction set the product of packed weights uses here.
// SPDX-License-Identifier: Apache-2.0
#include "block_product.h"

namespace hal::pjrt {

BlockKernel block_kernel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool second = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
  if (second && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return avx512::block_product;
  if (second) return avx2::block_product;
#endif
  return baseline::block_product;
}

}  // namespace hal::pjrt
