// The questions that conditions ask, by their short names; what several launches share.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_OPENCL_KERNELS_CONDITIONS_H_
#define BACKENDS_OPENCL_KERNELS_CONDITIONS_H_

#include "anyhal/sdk/core_ops.hpp"
#include "ops.h"

namespace hal::opencl {

using sdk::all;
using sdk::axis_in;
using sdk::choice_in;
using sdk::dims_equal;
using sdk::dtype_in;
using sdk::dtypes_equal;
using sdk::operands_are;
using sdk::output_is_single;
using sdk::output_may_alias;
using sdk::product_dims_fit;
using sdk::rank_is;

// `whole` with its dim `axis` replaced by those of `indices`.
inline bool dims_replaced(const Tensor& whole, uint32_t axis, const Tensor& indices,
                          const Tensor& found) {
  if (found.rank != whole.rank - 1 + indices.rank) return false;
  for (uint32_t d = 0; d < found.rank; ++d) {
    const int64_t want = d < axis                  ? whole.dims[d]
                         : d < axis + indices.rank ? indices.dims[d - axis]
                                                   : whole.dims[d - indices.rank + 1];
    if (found.dims[d] != want) return false;
  }
  return true;
}

inline uint32_t element_bytes(const Tensor& t) { return sdk::dtype_facts(t.dtype).block_bytes; }

// The walk of operands with the same dims.
template <class... T>
Walk walk_of(const Tensor& first, const T&... rest) {
  Walk walk;
  for (uint32_t d = 0; d < first.rank; ++d)
    walk.add(first.dims[d], {first.strides[d], rest.strides[d]...});
  return walk;
}

}  // namespace hal::opencl

#endif  // BACKENDS_OPENCL_KERNELS_CONDITIONS_H_
