// Views of buffers: dense and broadcast.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/api/edge.hpp"
#include "core/api/names.hpp"
#include "core/spec.hpp"

using namespace hal;

extern "C" {

hal_status hal_tensor_dense(hal_buffer* buffer, uint64_t offset_bytes, int32_t dtype, int32_t rank,
                            const int64_t* dims, hal_tensor* out_tensor, uint64_t* out_bytes,
                            hal_error* error) {
  return at_edge(error, [&] {
    need(out_tensor, "out_tensor");
    if (rank > 0) need(dims, "dims");
    const Spec* spec = intern_spec(nullptr, uint32_t(dtype), rank, dims, nullptr);
    hal_tensor t = {};
    t.buffer = buffer, t.offset_bytes = offset_bytes, t.dtype = dtype, t.rank = rank;
    std::copy(spec->dims, spec->dims + rank, t.dims);
    std::copy(spec->strides, spec->strides + rank, t.strides);
    if (out_bytes) *out_bytes = uint64_t(spec->span_bytes);
    spec->release();
    *out_tensor = t;
  });
}

hal_status hal_tensor_broadcast(const hal_tensor* tensor, int32_t rank, const int64_t* dims,
                                hal_tensor* out_tensor, hal_error* error) {
  return at_edge(error, [&] {
    need(tensor, "tensor"), need(out_tensor, "out_tensor");
    if (rank > 0) need(dims, "dims");
    if (rank < 0 || rank > HAL_RANK_MAX || tensor->rank < 0 || tensor->rank > rank)
      invalid("broadcasting a tensor of rank " + std::to_string(tensor->rank) + " to rank " +
                  std::to_string(rank) + ": the rank must not fall, and at most 8 is possible",
              ANYHAL_REASON_RANK);
    hal_tensor t = *tensor;
    t.rank = rank;
    const int32_t lead = rank - tensor->rank;
    for (int32_t i = 0; i < rank; ++i) {
      const int64_t had = i < lead ? 1 : tensor->dims[i - lead];
      if (had != dims[i] && had != 1)
        invalid("broadcasting a tensor: axis " + std::to_string(i) + " has size " +
                std::to_string(had) + ", which is neither 1 nor " + std::to_string(dims[i]));
      t.dims[i] = dims[i];
      t.strides[i] = had == dims[i] && i >= lead ? tensor->strides[i - lead] : 0;
    }
    *out_tensor = t;
  });
}

}  // extern "C"
