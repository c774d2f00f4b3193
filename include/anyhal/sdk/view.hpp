// Operands as kernels see them: typed strided views, and walks over several of them at once.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_VIEW_HPP_
#define ANYHAL_SDK_VIEW_HPP_

#include <cstdint>
#include <cstdio>

#include "anyhal/backend.h"
#include "anyhal/sdk/dtypes.hpp"

namespace hal::sdk {

// Dims of an operand that this kit handles; a backend's device_info.rank_max is at most this.
constexpr uint32_t kRankMax = 16;

// Handles of a backend whose memory is host memory: the address block is 1 and has base 0, every
// other block's handle is its address, so that finding an operand is one addition.
constexpr uint64_t kAddressBlock = 1;

inline char* host_address(const anyhal_ref& ref) {
  uint64_t base = ref.memory == kAddressBlock ? 0 : ref.memory;
  return reinterpret_cast<char*>(static_cast<uintptr_t>(base + ref.offset));
}

// Operand i of a description. Records may be longer than this kit knows: the first one's size is
// the distance between them.
inline const anyhal_tensor_desc& operand(const anyhal_op_desc& desc, uint32_t i) {
  const char* first = reinterpret_cast<const char*>(desc.operands);
  return *reinterpret_cast<const anyhal_tensor_desc*>(first + uint64_t{i} * desc.operands->size);
}

inline const anyhal_tensor_desc& output(const anyhal_op_desc& desc) {
  return operand(desc, desc.input_count);
}

inline bool absent(const anyhal_tensor_desc& t) { return (t.flags & ANYHAL_TENSOR_ABSENT) != 0; }

// A dim counted from the end: dim(t, -1) is the innermost.
inline int64_t dim(const anyhal_tensor_desc& t, int i) {
  return t.dims[i < 0 ? static_cast<int>(t.rank) + i : i];
}

inline int64_t stride(const anyhal_tensor_desc& t, int i) {
  return t.strides[i < 0 ? static_cast<int>(t.rank) + i : i];
}

inline int64_t element_count(const anyhal_tensor_desc& t) {
  int64_t count = 1;
  for (uint32_t d = 0; d < t.rank; ++d) count *= t.dims[d];
  return count;
}

inline bool same_dims(const anyhal_tensor_desc& a, const anyhal_tensor_desc& b) {
  if (a.rank != b.rank) return false;
  for (uint32_t d = 0; d < a.rank; ++d) {
    if (a.dims[d] != b.dims[d]) return false;
  }
  return true;
}

// Size of a dim in what strides count: elements, or blocks on the innermost dim of block formats.
inline int64_t steps(const anyhal_tensor_desc& t, uint32_t d) {
  return d + 1 == t.rank ? t.dims[d] / dtype_facts(t.dtype).block_elements : t.dims[d];
}

// "f32[4,8]" as messages write an operand; cut off where `size` ends.
inline const char* describe(const anyhal_tensor_desc& t, char* text, size_t size) {
  if (absent(t)) {
    std::snprintf(text, size, "absent");
    return text;
  }
  size_t used = static_cast<size_t>(std::snprintf(text, size, "%s[", dtype_facts(t.dtype).name));
  for (uint32_t d = 0; d < t.rank && used < size; ++d) {
    used += static_cast<size_t>(std::snprintf(text + used, size - used, d ? ",%lld" : "%lld",
                                              static_cast<long long>(t.dims[d])));
  }
  if (used < size) std::snprintf(text + used, size - used, "]");
  return text;
}

// An operand's elements. Strides are in elements of T.
template <class T>
class View {
 public:
  View(const anyhal_tensor_desc& desc, void* data)
      : desc_(&desc), data_(reinterpret_cast<T*>(data)) {}
  uint32_t rank() const { return desc_->rank; }
  int64_t dim(int i) const { return sdk::dim(*desc_, i); }
  int64_t stride(int i) const { return sdk::stride(*desc_, i); }
  T* data() const { return data_; }

 private:
  const anyhal_tensor_desc* desc_;
  T* data_;
};

// Walks N operands in step, like the wheels of an odometer: the last dim turns fastest. Offsets are
// in the unit of the strides given to add().
template <int N>
class Odometer {
 public:
  // Adds a wheel inside the ones before it.
  void add(int64_t dim, const int64_t (&strides)[N]) {
    dims_[rank_] = dim;
    for (int k = 0; k < N; ++k) strides_[k][rank_] = strides[k];
    at_[rank_++] = 0;
    if (dim == 0) empty_ = true;
  }
  bool empty() const { return empty_; }
  int64_t count() const {
    int64_t count = 1;
    for (uint32_t d = 0; d < rank_; ++d) count *= dims_[d];
    return count;
  }
  int64_t at(int k) const { return offset_[k]; }

  // Moves on; false after the last position, when it stands at the first one again.
  bool next() {
    for (uint32_t d = rank_; d-- > 0;) {
      for (int k = 0; k < N; ++k) offset_[k] += strides_[k][d];
      if (++at_[d] < dims_[d]) return true;
      for (int k = 0; k < N; ++k) offset_[k] -= strides_[k][d] * dims_[d];
      at_[d] = 0;
    }
    return false;
  }

  // Moves to a position by its number; workers start their share of a walk this way.
  void seek(int64_t position) {
    for (int k = 0; k < N; ++k) offset_[k] = 0;
    for (uint32_t d = rank_; d-- > 0;) {
      at_[d] = position % dims_[d];
      position /= dims_[d];
      for (int k = 0; k < N; ++k) offset_[k] += strides_[k][d] * at_[d];
    }
  }

 private:
  uint32_t rank_ = 0;
  bool empty_ = false;
  int64_t dims_[2 * kRankMax];
  int64_t at_[2 * kRankMax];
  int64_t strides_[N][2 * kRankMax];
  int64_t offset_[N] = {};
};

// Operands with the same dims, split into rows: `row_count` elements at `row_stride` from each
// position of `outer`. Neighbouring dims that are contiguous in every operand become one.
template <int N>
struct Rows {
  Odometer<N> outer;
  int64_t row_count = 1;
  int64_t row_strides[N] = {};

  explicit Rows(const anyhal_tensor_desc* const (&operands)[N]) {
    const anyhal_tensor_desc& first = *operands[0];
    int64_t dims[kRankMax], strides[kRankMax][N];
    int kept = 0;
    for (uint32_t d = 0; d < first.rank; ++d) {
      int64_t size = steps(first, d);
      if (size == 1) continue;
      bool merges = kept > 0;
      for (int k = 0; k < N && merges; ++k)
        merges = strides[kept - 1][k] == operands[k]->strides[d] * size;
      if (!merges) dims[kept++] = 1;
      dims[kept - 1] *= size;
      for (int k = 0; k < N; ++k) strides[kept - 1][k] = operands[k]->strides[d];
    }
    for (int d = 0; d + 1 < kept; ++d) outer.add(dims[d], strides[d]);
    if (kept == 0) return;
    row_count = dims[kept - 1];
    for (int k = 0; k < N; ++k) row_strides[k] = strides[kept - 1][k];
  }

  // Calls fn(offsets) for each row, in order.
  template <class Fn>
  void each(Fn&& fn) {
    if (outer.empty() || row_count == 0) return;
    do {
      int64_t offsets[N];
      for (int k = 0; k < N; ++k) offsets[k] = outer.at(k);
      fn(offsets);
    } while (outer.next());
  }
};

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_VIEW_HPP_
