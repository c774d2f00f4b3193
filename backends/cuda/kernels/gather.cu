// gather: out[a..., i..., b...] = x[a..., indices[i...], b...]; sides are x, indices, out.
// The indices were looked at before (indices.cu).
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

HAL_KERNEL(anyhal_gather, Map) {
  HAL_STOP_AFTER_FAULT(p.fault);
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    const long long index = load_int(p.index_dtype, data_of(p, 1), place.at[1]);
    move(p.bytes, p.side[0].data, place.at[0] + index * p.axis_stride, p.side[2].data, place.at[2]);
  }
}

}  // namespace hal::cuda
