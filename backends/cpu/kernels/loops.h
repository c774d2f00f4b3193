// Loop nests over strided operands: collapsed once at prepare, split over threads at the call.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_LOOPS_H_
#define BACKENDS_CPU_KERNELS_LOOPS_H_

#include "convert.h"
#include "kernel.h"

namespace hal::cpu::HAL_CPU_ISA {

constexpr int kNestOperands = 4;

// dims[rank - 1] is the innermost loop; strides are in bytes.
struct Nest {
  int32_t rank;
  int32_t operands;
  int64_t count;
  int64_t dims[kRankMax];
  int64_t strides[kNestOperands][kRankMax];
};

// One run of the innermost loop.
using Inner = void (*)(const void* context, char* const* p, const int64_t* strides, int64_t n);

// Drops dims of one, orders loops by the last tensor's strides and merges what is contiguous.
// All tensors have the dims of the last; block formats are walked block by block.
static inline void make_nest(Nest& nest, const Tensor* const* tensors, int operands) {
  const Tensor& out = *tensors[operands - 1];
  nest.operands = operands;
  nest.count = 1;
  int rank = 0;
  for (uint32_t d = 0; d < out.rank; ++d) {
    int64_t dim = out.dims[d];
    if (d + 1 == out.rank) dim /= block_elements(out.dtype);
    nest.count *= dim;
    if (dim == 1) continue;
    nest.dims[rank] = dim;
    for (int t = 0; t < operands; ++t)
      nest.strides[t][rank] = tensors[t]->strides[d] * element_bytes(tensors[t]->dtype);
    ++rank;
  }
  for (int i = 1; i < rank; ++i) {
    for (int j = i; j > 0 && nest.strides[operands - 1][j - 1] < nest.strides[operands - 1][j];
         --j) {
      int64_t dim = nest.dims[j];
      nest.dims[j] = nest.dims[j - 1];
      nest.dims[j - 1] = dim;
      for (int t = 0; t < operands; ++t) {
        int64_t stride = nest.strides[t][j];
        nest.strides[t][j] = nest.strides[t][j - 1];
        nest.strides[t][j - 1] = stride;
      }
    }
  }
  int merged = 0;
  for (int d = 0; d < rank; ++d) {
    bool fits = merged > 0;
    for (int t = 0; t < operands && fits; ++t)
      fits = nest.strides[t][merged - 1] == nest.strides[t][d] * nest.dims[d];
    if (fits) {
      nest.dims[merged - 1] *= nest.dims[d];
    } else {
      nest.dims[merged++] = nest.dims[d];
    }
    for (int t = 0; t < operands; ++t) nest.strides[t][merged - 1] = nest.strides[t][d];
  }
  if (merged == 0) {
    nest.dims[0] = 1;
    for (int t = 0; t < operands; ++t) nest.strides[t][0] = 0;
    merged = 1;
  }
  nest.rank = merged;
}

// Elements [begin, end) in loop order.
static inline void walk_nest(const Nest& nest, char* const* data, int64_t begin, int64_t end,
                             Inner inner, const void* context) {
  int last = nest.rank - 1;
  int64_t at[kRankMax];
  char* p[kNestOperands];
  int64_t inner_strides[kNestOperands];
  int64_t rest = begin;
  for (int t = 0; t < nest.operands; ++t) {
    p[t] = data[t];
    inner_strides[t] = nest.strides[t][last];
  }
  for (int d = last; d >= 0; --d) {
    at[d] = rest % nest.dims[d];
    rest /= nest.dims[d];
    for (int t = 0; t < nest.operands; ++t) p[t] += at[d] * nest.strides[t][d];
  }
  for (int64_t done = begin; done < end;) {
    int64_t n = nest.dims[last] - at[last];
    if (n > end - done) n = end - done;
    inner(context, p, inner_strides, n);
    done += n;
    if (done >= end) return;
    for (int t = 0; t < nest.operands; ++t) p[t] -= at[last] * inner_strides[t];
    at[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      for (int t = 0; t < nest.operands; ++t) p[t] += nest.strides[t][d];
      if (++at[d] < nest.dims[d]) break;
      for (int t = 0; t < nest.operands; ++t) p[t] -= nest.strides[t][d] * nest.dims[d];
      at[d] = 0;
    }
  }
}

// Work worth waking a thread for, in elements of about a nanosecond each.
constexpr int64_t kParallelGrain = 32768;

// Splits [0, count) into ranges, at least `grain` long and in steps of `unit`, over the team.
template <class Body>
static inline void split_range(const Team& team, int64_t count, int64_t grain, int64_t unit,
                               const Body& body) {
  int64_t parts = count / (grain < 1 ? 1 : grain);
  if (parts > team.threads) parts = team.threads;
  if (parts <= 1) {
    if (count > 0) body(static_cast<int64_t>(0), count);
    return;
  }
  struct Job {
    const Body* body;
    int64_t count, step;
  };
  int64_t step = (count + parts - 1) / parts;
  step = (step + unit - 1) / unit * unit;
  Job job = {&body, count, step};
  uint32_t used = static_cast<uint32_t>((count + step - 1) / step);
  team.run(
      used,
      [](void* argument, uint32_t index) {
        const Job& j = *static_cast<const Job*>(argument);
        int64_t begin = index * j.step;
        int64_t end = begin + j.step < j.count ? begin + j.step : j.count;
        (*j.body)(begin, end);
      },
      &job);
}

// Hands out items [0, count) one by one; body(item, worker) with worker < team.threads.
template <class Body>
static inline void share_items(const Team& team, int64_t count, const Body& body) {
  if (count <= 0) return;
  struct Job {
    const Body* body;
    int64_t count;
    int64_t next;
  };
  Job job = {&body, count, 0};
  uint32_t workers = count < team.threads ? static_cast<uint32_t>(count) : team.threads;
  team.run(
      workers,
      [](void* argument, uint32_t index) {
        Job& j = *static_cast<Job*>(argument);
        for (;;) {
          int64_t item = __atomic_fetch_add(&j.next, 1, __ATOMIC_RELAXED);
          if (item >= j.count) return;
          (*j.body)(item, static_cast<int64_t>(index));
        }
      },
      &job);
}

static inline void run_nest(const Plan& plan, const Nest& nest, char* const* data, Inner inner,
                            const void* context, int64_t cost_per_element = 1) {
  if (nest.count <= kParallelGrain / 4) {
    if (nest.count > 0) walk_nest(nest, data, 0, nest.count, inner, context);
    return;
  }
  split_range(
      plan.team, nest.count, kParallelGrain / cost_per_element, 64,
      [&](int64_t begin, int64_t end) { walk_nest(nest, data, begin, end, inner, context); });
}

static inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_LOOPS_H_
