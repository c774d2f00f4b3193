// concat: the inputs one behind the other along one axis.
// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

template <int kSize>
void copy_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  if (strides[0] == kSize && strides[1] == kSize) {
    memcpy(p[1], p[0], static_cast<size_t>(n * kSize));
    return;
  }
  for (int64_t i = 0; i < n; ++i) memcpy(p[1] + i * strides[1], p[0] + i * strides[0], kSize);
}

struct State {
  Inner inner;
  uint32_t axis;
};

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  const Tensor& out = plan.output();
  char* to = data[plan.operand_count - 1];
  for (uint32_t i = 0; i < plan.input_count; ++i) {
    const Tensor& x = plan.input(i);
    Tensor part = out;
    part.dims[s.axis] = x.dims[s.axis];
    const Tensor* tensors[] = {&x, &part};
    Nest nest;
    make_nest(nest, tensors, 2);
    char* const ends[] = {data[i], to};
    run_nest(plan, nest, ends, s.inner, nullptr);
    to += x.dims[s.axis] / (s.axis + 1 == x.rank ? block_elements(x.dtype) : 1) *
          out.strides[s.axis] * element_bytes(out.dtype);
  }
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_concat(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor& out = plan.output();
  s.axis = positive_axis(plan.attribute<anyhal_attrs_concat>().axis, out.rank);
  switch (element_bytes(out.dtype)) {
    case 1:
      s.inner = copy_run<1>;
      break;
    case 2:
      s.inner = copy_run<2>;
      break;
    case 4:
      s.inner = copy_run<4>;
      break;
    case 8:
      s.inner = copy_run<8>;
      break;
    case 20:
      s.inner = copy_run<20>;
      break;
    default:
      s.inner = copy_run<34>;
      break;
  }
  plan.run = run;
  plan.kernel = "strided copy";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
