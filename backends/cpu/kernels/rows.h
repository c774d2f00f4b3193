// Ops that work on one dim of a tensor: iteration over all its lines, wherever they lie.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_ROWS_H_
#define BACKENDS_CPU_KERNELS_ROWS_H_

#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {

// The lines along `axis` of two tensors of equal dims; `outer` walks their starts.
struct Lines {
  Nest outer;
  int64_t length;
  int64_t stride[2];  // bytes
};

static inline uint32_t positive_axis(int32_t axis, uint32_t rank) {
  return static_cast<uint32_t>(axis < 0 ? axis + static_cast<int32_t>(rank) : axis);
}

// The second tensor may have size 1 along the axis (argmax).
static inline void make_lines(Lines& lines, const Tensor& x, const Tensor& out, uint32_t axis) {
  Tensor starts[2] = {x, out};
  lines.length = x.dims[axis];
  lines.stride[0] = x.strides[axis] * element_bytes(x.dtype);
  lines.stride[1] = out.strides[axis] * element_bytes(out.dtype);
  starts[0].dims[axis] = starts[1].dims[axis] = 1;
  const Tensor* tensors[] = {&starts[0], &starts[1]};
  make_nest(lines.outer, tensors, 2);
}

// body(x, out, worker-local index of the part) for every line.
template <class Body>
static inline void each_line(const Team& team, const Lines& lines, char* const* data,
                             int64_t cost_per_element, const Body& body) {
  int64_t each = lines.length < 1 ? 1 : lines.length;
  split_range(team, lines.outer.count, kParallelGrain / (each * cost_per_element), 1,
              [&](int64_t begin, int64_t end) {
                walk_nest(
                    lines.outer, data, begin, end,
                    [](const void* context, char* const* p, const int64_t* strides, int64_t n) {
                      const Body& b = *static_cast<const Body*>(context);
                      for (int64_t i = 0; i < n; ++i)
                        b(p[0] + i * strides[0], p[1] + i * strides[1]);
                    },
                    &body);
              });
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_ROWS_H_
