// A kernel of somebody else's: out[i] = x[i] * factor, for tests of modules that users bring.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

struct ScaleParams {
  const float* x;
  float* out;
  float factor;
  int count;
};

HAL_KERNEL(scale, ScaleParams) {
  HAL_EACH(i, p.count) * hal::cuda::reach(p.out + i) = *hal::cuda::reach(p.x + i) * p.factor;
}
