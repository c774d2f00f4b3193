// Walking index tensors: bounds are checked for all of them before anything is written.
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

// The dims [first, end) of t alone. Of a block format, whose last dim counts elements in blocks, a
// single block is left where that dim is not among them.
static inline Tensor dims_of(const Tensor& t, uint32_t first, uint32_t end) {
  Tensor part = t;
  part.rank = end - first;
  for (uint32_t d = 0; d < part.rank; ++d) {
    part.dims[d] = t.dims[first + d];
    part.strides[d] = t.strides[first + d];
  }
  if (end < t.rank && is_block(t.dtype)) {
    part.dims[part.rank] = block_elements(t.dtype);
    part.strides[part.rank++] = 1;
  }
  return part;
}

// Of t's dims; as the last tensor of a nest it makes the nest walk in row-major order.
static inline Tensor row_major(const Tensor& t) {
  Tensor dense = t;
  int64_t stride = 1;
  for (uint32_t d = t.rank; d-- > 0;) {
    dense.strides[d] = stride;
    stride *= t.dims[d];
  }
  return dense;
}

// The sign of what is gathered here shows an index outside of [0, limit).
struct IndexCheck {
  int64_t limit;
  uint64_t* bits;
};

template <class Index>
static inline void gather_signs(const void* context, char* const* p, const int64_t* strides,
                                int64_t n) {
  const IndexCheck& c = *static_cast<const IndexCheck*>(context);
  uint64_t last = static_cast<uint64_t>(c.limit) - 1, bits = 0;
  auto see = [&](int64_t index) {
    uint64_t v = static_cast<uint64_t>(index);
    bits |= v | (last - v);
  };
  if (strides[0] == static_cast<int64_t>(sizeof(Index))) {
    const Index* indices = reinterpret_cast<const Index*>(p[0]);
    for (int64_t i = 0; i < n; ++i) see(indices[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) see(*reinterpret_cast<const Index*>(p[0] + i * strides[0]));
  }
  *c.bits |= bits;
}

static inline bool all_inside(const Team& team, const Tensor& indices, const char* data,
                              int64_t limit) {
  Nest nest;
  const Tensor* tensors[] = {&indices};
  make_nest(nest, tensors, 1);
  uint64_t seen = 0;
  Inner inner = indices.dtype == ANYHAL_DTYPE_I64 ? gather_signs<int64_t> : gather_signs<int32_t>;
  split_range(team, nest.count, 4 * kParallelGrain, 1, [&](int64_t begin, int64_t end) {
    uint64_t bits = 0;
    IndexCheck check = {limit, &bits};
    char* const ends[] = {const_cast<char*>(data)};
    walk_nest(nest, ends, begin, end, inner, &check);
    __atomic_fetch_or(&seen, bits, __ATOMIC_RELAXED);
  });
  return seen >> 63 == 0;
}

static inline anyhal_status check_indices(const Team& team, const Tensor& indices, const char* data,
                                          int64_t limit, anyhal_error* error) {
  constexpr int64_t kFew = 16;
  int64_t count = element_count(indices);
  if (count > kFew && all_inside(team, indices, data, limit)) return ANYHAL_STATUS_OK;
  for (int64_t i = 0; i < count; ++i) {  // which one it is
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
