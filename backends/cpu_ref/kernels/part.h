// Parts of an operand (dims removed or cut short), moving their bytes, and reading index operands.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_PART_H_
#define BACKENDS_CPU_REF_KERNELS_PART_H_

#include <cstring>

#include "kernels.h"

namespace hal::cpu_ref {

inline int64_t step_bytes(const Tensor& t, uint32_t d) {
  return t.strides[d] * sdk::dtype_facts(t.dtype).block_bytes;
}

// A description of its own, made from another one.
class Part {
 public:
  explicit Part(const Tensor& whole) : desc_(whole) {
    std::memcpy(dims_, whole.dims, whole.rank * sizeof(int64_t));
    std::memcpy(strides_, whole.strides, whole.rank * sizeof(int64_t));
    desc_.dims = dims_;
    desc_.strides = strides_;
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Part& cut(uint32_t axis, int64_t dim) {
    dims_[axis] = dim;
    return *this;
  }
  // The same element `dim` times.
  Part& repeat(uint32_t axis, int64_t dim) {
    dims_[axis] = dim;
    strides_[axis] = 0;
    return *this;
  }
  Part& remove(uint32_t axis, uint32_t count) {
    for (uint32_t d = axis; d + count < desc_.rank; ++d) {
      dims_[d] = dims_[d + count];
      strides_[d] = strides_[d + count];
    }
    desc_.rank -= count;
    return *this;
  }
  operator const Tensor&() const { return desc_; }

 private:
  Tensor desc_;
  int64_t dims_[sdk::kRankMax];
  int64_t strides_[sdk::kRankMax];
};

template <uint32_t kBytes>
void move_row(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_stride * kBytes, from + i * from_stride * kBytes, kBytes);
}

// Copies the elements (or blocks) of one operand to another of the same dtype and dims.
inline void move(const Tensor& from, const char* source, const Tensor& to, char* target) {
  if (source == target) return;  // exactly the same place, as the plan allowed
  int64_t bytes = sdk::dtype_facts(from.dtype).block_bytes;
  sdk::Rows<2> rows({&from, &to});
  rows.each([&](const int64_t (&at)[2]) {
    const char* s = source + at[0] * bytes;
    char* t = target + at[1] * bytes;
    int64_t from_stride = rows.row_strides[0], to_stride = rows.row_strides[1];
    if (rows.row_count == 1 || (from_stride == 1 && to_stride == 1)) {
      std::memcpy(t, s, static_cast<size_t>(rows.row_count * bytes));
      return;
    }
    switch (bytes) {
      case 1:
        return move_row<1>(s, from_stride, t, to_stride, rows.row_count);
      case 2:
        return move_row<2>(s, from_stride, t, to_stride, rows.row_count);
      case 4:
        return move_row<4>(s, from_stride, t, to_stride, rows.row_count);
      case 8:
        return move_row<8>(s, from_stride, t, to_stride, rows.row_count);
      case sizeof(sdk::q4_1):
        return move_row<20>(s, from_stride, t, to_stride, rows.row_count);
      case sizeof(sdk::q8_0):
        return move_row<34>(s, from_stride, t, to_stride, rows.row_count);
      case sizeof(sdk::q4_0):
        return move_row<18>(s, from_stride, t, to_stride, rows.row_count);
      case sizeof(sdk::q4_k):
        return move_row<144>(s, from_stride, t, to_stride, rows.row_count);
      case sizeof(sdk::q6_k):
        return move_row<210>(s, from_stride, t, to_stride, rows.row_count);
    }
  });
}

// An i32 or i64 element.
inline int64_t index_at(const Tensor& t, const char* data, int64_t offset) {
  if (t.dtype == ANYHAL_DTYPE_I64) return reinterpret_cast<const int64_t*>(data)[offset];
  return reinterpret_cast<const int32_t*>(data)[offset];
}

// Throws unless every index is in [0, limit). Called before anything is written.
inline void check_indices(const Tensor& indices, const char* data, int64_t limit) {
  sdk::Rows<1> rows({&indices});
  rows.each([&](const int64_t (&at)[1]) {
    for (int64_t i = 0; i < rows.row_count; ++i) {
      int64_t index = index_at(indices, data, at[0] + i * rows.row_strides[0]);
      if (index >= 0 && index < limit) continue;
      throw sdk::Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                         "index %lld is outside [0, %lld), and negative indices do "
                         "not wrap; correct the indices (nothing was written)",
                         static_cast<long long>(index), static_cast<long long>(limit));
    }
  });
}

// Walks an index operand together with the place in `whole` (from dim `axis` on) that its dims
// take.
inline sdk::Odometer<2> index_walk(const Tensor& indices, const Tensor& whole, uint32_t axis) {
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d < indices.rank; ++d)
    walk.add(indices.dims[d], {indices.strides[d], step_bytes(whole, axis + d)});
  return walk;
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_PART_H_
