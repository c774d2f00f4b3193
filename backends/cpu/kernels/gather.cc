// gather: slices of x along one axis, picked by indices.
// SPDX-License-Identifier: Apache-2.0
#include "indexing.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct Slice20 {
  unsigned char b[20];
};
struct Slice34 {
  unsigned char b[34];
};
struct Slice18 {
  unsigned char b[18];
};
struct Slice144 {
  unsigned char b[144];
};
struct Slice210 {
  unsigned char b[210];
};

template <class T>
void copy_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (strides[0] == kSize && strides[1] == kSize) {
    memcpy(p[1], p[0], static_cast<size_t>(n * kSize));
    return;
  }
  for (int64_t i = 0; i < n; ++i) memcpy(p[1] + i * strides[1], p[0] + i * strides[0], kSize);
}

Inner copy_of(uint32_t dtype) {
  switch (element_bytes(dtype)) {
    case 1:
      return copy_run<uint8_t>;
    case 2:
      return copy_run<uint16_t>;
    case 4:
      return copy_run<uint32_t>;
    case 8:
      return copy_run<uint64_t>;
    case 20:
      return copy_run<Slice20>;
    case 18:
      return copy_run<Slice18>;
    case 144:
      return copy_run<Slice144>;
    case 210:
      return copy_run<Slice210>;
    default:
      return copy_run<Slice34>;
  }
}

struct State {
  Nest slice;  // one index's part of x and out
  Inner inner;
  int64_t count, limit;
  int64_t axis_stride;  // bytes
  uint32_t axis;
};

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  const Tensor& indices = plan.input(1);
  anyhal_status status = check_indices(indices, data[1], s.limit, error);
  if (status != ANYHAL_STATUS_OK || s.slice.count == 0) return status;
  split_range(plan.team, s.count, kParallelGrain / s.slice.count, 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  int64_t at = offset_of(plan.output(), s.axis, s.axis + indices.rank, i);
                  char* const ends[] = {data[0] + index_at(indices, data[1], i) * s.axis_stride,
                                        data[2] + at};
                  walk_nest(s.slice, ends, 0, s.slice.count, s.inner, nullptr);
                }
              });
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_gather(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &x = plan.input(0), &indices = plan.input(1), &out = plan.output();
  int32_t axis = plan.attribute<anyhal_attrs_gather>().axis;
  s.axis = static_cast<uint32_t>(axis < 0 ? axis + static_cast<int32_t>(x.rank) : axis);
  s.axis_stride = x.strides[s.axis] * element_bytes(x.dtype);
  s.limit = x.dims[s.axis];
  s.count = element_count(indices);
  Tensor from = x, to = out;  // both without the axis
  to.rank = from.rank = x.rank - 1;
  for (uint32_t d = 0; d < from.rank; ++d) {
    uint32_t source = d < s.axis ? d : d + 1;
    uint32_t target = d < s.axis ? d : d + indices.rank;
    from.dims[d] = x.dims[source];
    from.strides[d] = x.strides[source];
    to.dims[d] = out.dims[target];
    to.strides[d] = out.strides[target];
  }
  const Tensor* tensors[] = {&from, &to};
  make_nest(s.slice, tensors, 2);
  s.inner = copy_of(x.dtype);
  plan.run = run;
  plan.kernel = "gather";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
