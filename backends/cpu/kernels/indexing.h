// Walking small index tensors: bounds are checked for all of them before anything is written.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_INDEXING_H_
#define BACKENDS_CPU_KERNELS_INDEXING_H_

#include "convert.h"
#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {

static inline int64_t element_count(const Tensor& t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t.rank; ++d) n *= t.dims[d];
  return n;
}

// Byte offset of element `index` (row-major order) in a tensor of dims [first, end).
static inline int64_t offset_of(const Tensor& t, uint32_t first, uint32_t end, int64_t index) {
  int64_t offset = 0;
  for (uint32_t d = end; d-- > first;) {
    offset += index % t.dims[d] * t.strides[d];
    index /= t.dims[d];
  }
  return offset * element_bytes(t.dtype);
}

static inline int64_t index_at(const Tensor& indices, const char* data, int64_t i) {
  return read_index(indices.dtype, data + offset_of(indices, 0, indices.rank, i));
}

static inline anyhal_status check_indices(const Tensor& indices, const char* data, int64_t limit,
                                          anyhal_error* error) {
  int64_t count = element_count(indices);
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = index_at(indices, data, i);
    if (index < 0 || index >= limit) {
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
                  "index %lld at position %lld is outside [0, %lld); nothing was "
                  "written; pass indices inside the range",
                  static_cast<long long>(index), static_cast<long long>(i),
                  static_cast<long long>(limit));
    }
  }
  return ANYHAL_STATUS_OK;
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_INDEXING_H_
