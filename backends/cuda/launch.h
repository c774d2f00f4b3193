// One launch: as many threads as the work has positions, up to what keeps a device busy.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_LAUNCH_H_
#define BACKENDS_CUDA_LAUNCH_H_

#include <algorithm>

#include "device.h"

namespace hal::cuda {

// Kernels step by their whole grid, so more blocks than this would only be launched and end.
constexpr int64_t kBlocksPerProcessor = 32;

inline void launch(Device& device, CUfunction function, int64_t threads, unsigned block,
                   CUstream stream, void* params) {
  const int64_t wanted = (threads + block - 1) / block;
  const auto most = static_cast<int64_t>(device.multiprocessors) * kBlocksPerProcessor;
  void* parameters[] = {params};
  HAL_CUDA(device, cuLaunchKernel, function, static_cast<unsigned>(std::min(wanted, most)), 1, 1,
           block, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_LAUNCH_H_
