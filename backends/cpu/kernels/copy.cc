// copy: strided to strided, same dtype; contiguous runs are moved as bytes.
// SPDX-License-Identifier: Apache-2.0
#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct Bytes20 {
  unsigned char b[20];
};
struct Bytes34 {
  unsigned char b[34];
};

template <class T>
void copy_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (strides[0] == kSize && strides[1] == kSize) {
    memcpy(p[1], p[0], static_cast<size_t>(n * kSize));
    return;
  }
  T value;
  if (strides[0] == 0) {
    memcpy(&value, p[0], kSize);
    for (int64_t i = 0; i < n; ++i) memcpy(p[1] + i * strides[1], &value, kSize);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    memcpy(&value, p[0] + i * strides[0], kSize);
    memcpy(p[1] + i * strides[1], &value, kSize);
  }
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
      return copy_run<Bytes20>;
    default:
      return copy_run<Bytes34>;
  }
}

struct State {
  Nest nest;
  Inner inner;
};

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (data[0] == data[1]) return ANYHAL_STATUS_OK;  // exact alias
  run_nest(plan, s.nest, data, s.inner, nullptr);
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_copy(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor* tensors[] = {&plan.input(0), &plan.output()};
  make_nest(s.nest, tensors, 2);
  s.inner = copy_of(plan.output().dtype);
  plan.run = run;
  plan.kernel = "strided copy";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
