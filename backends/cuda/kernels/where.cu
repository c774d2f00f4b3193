// where: cond ? a : b.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

HAL_KERNEL(anyhal_where, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    const int k = *reach(data_of(p, 0) + place.at[0]) != 0 ? 1 : 2;
    move(p.bytes, data_of(p, k), place.at[k], p.side[3].data, place.at[3]);
  }
}

}  // namespace hal::cuda
