// fill: one value -> every element of out.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

HAL_KERNEL(anyhal_fill, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    move(p.bytes, data_of(p, 0), place.at[0], p.side[1].data, place.at[1]);
  }
}

}  // namespace hal::cuda
