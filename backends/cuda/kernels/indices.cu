// Looks at positions before a kernel uses them; side 0 is the indices, `limit` ends their axis.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

HAL_KERNEL(anyhal_indices, Map) {
  HAL_STOP_AFTER_FAULT(p.fault);  // the first call that failed is the one to name
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    const long long index = load_int(p.index_dtype, data_of(p, 0), place.at[0]);
    if (index < 0 || index >= p.limit) raise_fault(p.fault, index, p.limit, p.tag);
  }
}

}  // namespace hal::cuda
