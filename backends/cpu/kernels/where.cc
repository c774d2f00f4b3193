// where: a where the condition holds, else b.
// SPDX-License-Identifier: Apache-2.0
#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

template <class T>
void choose_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (strides[0] == 1 && strides[1] == kSize && strides[2] == kSize && strides[3] == kSize) {
    const uint8_t* condition = reinterpret_cast<const uint8_t*>(p[0]);
    const T* a = reinterpret_cast<const T*>(p[1]);
    const T* b = reinterpret_cast<const T*>(p[2]);
    T* out = reinterpret_cast<T*>(p[3]);
    for (int64_t i = 0; i < n; ++i) {
      T x = a[i], y = b[i];
      out[i] = condition[i] != 0 ? x : y;
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    bool condition = *(p[0] + i * strides[0]) != 0;
    *reinterpret_cast<T*>(p[3] + i * strides[3]) =
        *reinterpret_cast<const T*>(condition ? p[1] + i * strides[1] : p[2] + i * strides[2]);
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

bool prepare_where(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor* tensors[] = {&plan.input(0), &plan.input(1), &plan.input(2), &plan.output()};
  make_nest(s.nest, tensors, 4);
  switch (element_bytes(plan.output().dtype)) {
    case 1:
      s.inner = choose_run<uint8_t>;
      break;
    case 2:
      s.inner = choose_run<uint16_t>;
      break;
    case 4:
      s.inner = choose_run<uint32_t>;
      break;
    default:
      s.inner = choose_run<uint64_t>;
      break;
  }
  plan.run = run;
  plan.kernel = "elementwise";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
