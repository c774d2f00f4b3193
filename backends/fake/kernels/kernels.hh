// What an operation is to a kernel, and the plain loops that the kernels share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_FAKE_KERNELS_KERNELS_HH_
#define ANYHAL_BACKENDS_FAKE_KERNELS_KERNELS_HH_

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../script.hh"
#include "../value.hh"
#include "anyhal/backend.h"
#include "anyhal/ops.h"

namespace hal::fake {

// An operand as prepared. For block dtypes the last dim counts blocks, so that a unit (an element
// or a block) is what strides and bytes count.
struct Tensor {
  uint32_t dtype = 0;
  bool absent = false;
  std::vector<int64_t> dims, strides;
  uint64_t bytes = 0;  // from the first unit to the end of the last one

  int64_t units() const;
  bool dense() const;
};

struct Description {
  uint32_t op = 0, input_count = 0;
  std::vector<Tensor> tensors;
  std::vector<uint8_t> attributes;

  template <class Attributes>
  Attributes attrs() const {
    Attributes value = {};
    std::memcpy(&value, attributes.data(), std::min(attributes.size(), sizeof value));
    return value;
  }
};

// Where the operands are, in operand order; null when absent.
using Pointers = std::vector<uint8_t*>;

// Throws Fault(INVALID_ARGUMENT), having written nothing, when an index leaves its range.
using Kernel = void (*)(const Description&, const Pointers&);

Kernel kernel_for(uint32_t op);

// Calls visit(offset of each operand in units) for every index of `dims`, last dim fastest.
template <size_t N, class Visit>
void for_each(const std::vector<int64_t>& dims,
              const std::array<const std::vector<int64_t>*, N>& strides, Visit visit) {
  for (int64_t dim : dims)
    if (dim == 0) return;
  std::vector<int64_t> index(dims.size(), 0);
  std::array<int64_t, N> at = {};
  while (true) {
    visit(at);
    size_t axis = dims.size();
    while (axis > 0) {
      --axis;
      if (++index[axis] < dims[axis]) {
        for (size_t n = 0; n < N; ++n) at[n] += (*strides[n])[axis];
        break;
      }
      for (size_t n = 0; n < N; ++n) at[n] -= (*strides[n])[axis] * (dims[axis] - 1);
      index[axis] = 0;
      if (axis == 0) return;
    }
    if (dims.empty()) return;
  }
}

// Strides that stay in place along `axis`; for reductions and rows.
inline std::vector<int64_t> without(const std::vector<int64_t>& values, size_t axis, int64_t fill) {
  std::vector<int64_t> result = values;
  result[axis] = fill;
  return result;
}

[[noreturn]] inline void index_fault(const Description&, int64_t index, int64_t limit) {
  throw Fault{ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
              "index " + std::to_string(index) + " is outside [0, " + std::to_string(limit) +
                  "); nothing was written"};
}

namespace kernels {
void copy(const Description&, const Pointers&);
void fill(const Description&, const Pointers&);
void cast(const Description&, const Pointers&);
void unary(const Description&, const Pointers&);
void binary(const Description&, const Pointers&);
void where(const Description&, const Pointers&);
void reduce(const Description&, const Pointers&);
void matmul(const Description&, const Pointers&);
void gather(const Description&, const Pointers&);
void scatter_add(const Description&, const Pointers&);
void softmax(const Description&, const Pointers&);
void cache_append(const Description&, const Pointers&);
void argmax(const Description&, const Pointers&);
void concat(const Description&, const Pointers&);
}  // namespace kernels

}  // namespace hal::fake

#endif  // ANYHAL_BACKENDS_FAKE_KERNELS_KERNELS_HH_
