// fill: one value everywhere.
// SPDX-License-Identifier: Apache-2.0
#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

template <class T>
void fill_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  T value;
  memcpy(&value, p[0], sizeof(T));
  if (strides[1] == static_cast<int64_t>(sizeof(T))) {
    T* to = reinterpret_cast<T*>(p[1]);
    for (int64_t i = 0; i < n; ++i) to[i] = value;
    return;
  }
  for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(p[1] + i * strides[1]) = value;
}

Inner fill_of(uint32_t dtype) {
  switch (element_bytes(dtype)) {
    case 1:
      return fill_run<uint8_t>;
    case 2:
      return fill_run<uint16_t>;
    case 4:
      return fill_run<uint32_t>;
    default:
      return fill_run<uint64_t>;
  }
}

struct State {
  Nest nest;
  Inner inner;
};

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  run_nest(plan, s.nest, data, s.inner, nullptr);
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_fill(Plan& plan) {
  State& s = plan.make_state<State>();
  Tensor value = plan.output();  // the value, seen with stride 0
  for (int64_t& stride : value.strides) stride = 0;
  const Tensor* tensors[] = {&value, &plan.output()};
  make_nest(s.nest, tensors, 2);
  s.inner = fill_of(plan.output().dtype);
  plan.run = run;
  plan.kernel = "fill";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
