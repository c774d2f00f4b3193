// Kernels that work line by line on several tensors: where the lines are, and what is done to one.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_LINES_H_
#define BACKENDS_CPU_KERNELS_LINES_H_

#include "math.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {

// Lines of up to four tensors of equal dims, over the dims [axis, axis + count), which must lie
// like one dim in each. `outer` walks their starts; the last tensor orders them.
struct LineSet {
  Nest outer;
  int64_t length;
  int64_t stride[kNestOperands];  // bytes
  bool plain[kNestOperands];      // f32 and adjacent: read and written in place
};

static inline void make_line_set(LineSet& lines, const Tensor* const* tensors, int operands,
                                 uint32_t axis, uint32_t count) {
  Tensor starts[kNestOperands];
  const Tensor* pointers[kNestOperands];
  for (int t = 0; t < operands; ++t) {
    starts[t] = *tensors[t];
    pointers[t] = &starts[t];
    int64_t bytes = element_bytes(tensors[t]->dtype);
    lines.length = 1;
    lines.stride[t] = bytes;
    for (uint32_t d = axis + count; d-- > axis;) {
      if (lines.length == 1 && starts[t].dims[d] != 1)
        lines.stride[t] = starts[t].strides[d] * bytes;
      lines.length *= starts[t].dims[d];
      starts[t].dims[d] = 1;
    }
    lines.plain[t] = tensors[t]->dtype == ANYHAL_DTYPE_F32 && lines.stride[t] == 4;
  }
  make_nest(lines.outer, pointers, operands);
}

// Calls body(p, part) for the lines of each of `parts` equal ranges; p: where the lines start. The
// ranges depend on `parts` alone.
template <class Body>
static inline void each_part(const Team& team, const LineSet& lines, char* const* data,
                             int64_t parts, const Body& body) {
  int64_t step = (lines.outer.count + parts - 1) / (parts < 1 ? 1 : parts);
  share_items(team, parts, [&](int64_t part, int64_t) {
    struct Job {
      const Body& body;
      int64_t part;
      int operands;
    };
    Job job = {body, part, lines.outer.operands};
    int64_t begin = part * step, end = begin + step;
    if (end > lines.outer.count) end = lines.outer.count;
    if (begin >= end) return;
    walk_nest(
        lines.outer, data, begin, end,
        [](const void* context, char* const* p, const int64_t* strides, int64_t n) {
          const Job& j = *static_cast<const Job*>(context);
          char* at[kNestOperands];
          for (int64_t i = 0; i < n; ++i) {
            for (int t = 0; t < j.operands; ++t) at[t] = p[t] + i * strides[t];
            j.body(at, j.part);
          }
        },
        &job);
  });
}

// One part for each thread, or a single one where there is too little to do.
static inline int64_t parts_for(const Team& team, const LineSet& lines, int64_t cost) {
  return lines.outer.count * lines.length * cost < 2 * kParallelGrain ? 1 : team.threads;
}

// A line as adjacent f32: where it lies if it is that already, else a copy in `buffer`.
static inline const float* line_at(const char* from, bool plain, ReadRow read, int64_t stride,
                                   int64_t n, float* buffer) {
  if (plain) return reinterpret_cast<const float*>(from);
  read(from, stride, n, buffer);
  return buffer;
}

// ------------------------------------------------------------------------------ on one line

// The largest number; NaN is passed over, and shows in whatever is summed after.
static inline float highest_of(const float* x, int64_t n) {
  F32 high = splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + kF32Lanes <= n; i += kF32Lanes) {
    F32 v = load(x + i);
    high = v > high ? v : high;
  }
  float best = -__builtin_inff();
  for (int c = 0; c < kF32Lanes; ++c) best = high[c] > best ? high[c] : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

static inline float sum_of(const float* x, int64_t n) {
  F32 sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kF32Lanes <= n; i += 4 * kF32Lanes)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums[c] += load(x + i + c * kF32Lanes);
  float sum = horizontal_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) sum += x[i];
  return sum;
}

// out = exp(x - shift), which may be x itself; gives the sum.
static inline float exponentials(const float* x, float shift, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = exp_f32(x[i] - shift);
  return sum_of(out, n);
}

// The sum of f(i) in f64, 16 chains.
template <class F>
static inline double sum_wide(int64_t n, const F& f) {
  double chains[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) chains[c] += f(i + c);
  double sum = 0;
  for (; i < n; ++i) sum += f(i);
  for (double c : chains) sum += c;
  return sum;
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_LINES_H_
