// scatter_add: out = target, then out[a..., indices[i...], b...] += updates[a..., i..., b...].
// The indices were looked at before (indices.cu).
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

// A thread owns one element of the output and looks for the indices that mean it, in their order:
// the same sum on every run, without atomics.
HAL_KERNEL(anyhal_scatter_add, Scatter) {
  HAL_STOP_AFTER_FAULT(p.fault);
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    const bool floating = is_float(p.dtype);
    double sum = floating ? load_float(p.dtype, p.side[0].data, place.at[0]) : 0;
    unsigned long long whole =
        floating ? 0 : (unsigned long long)load_int(p.dtype, p.side[0].data, place.at[0]);
    for (long long n = 0; n < p.list.count; ++n) {
      const Place entry = locate(p.list, p.list_side, n);
      const long long index = load_int(p.index_dtype, p.list_side[0].data, entry.at[0]);
      if (index != place.at[3]) continue;
      const long long at = place.at[1] + entry.at[1];
      if (floating) {
        sum += load_float(p.dtype, p.side[1].data, at);
      } else {
        whole += (unsigned long long)load_int(p.dtype, p.side[1].data, at);
      }
    }
    if (floating) {
      store_float(p.dtype, p.side[2].data, place.at[2], sum);
    } else {
      store_int(p.dtype, p.side[2].data, place.at[2], (long long)whole);
    }
  }
}

}  // namespace hal::cuda
