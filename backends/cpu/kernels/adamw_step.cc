// adamw_step: one step of Adam with decoupled weight decay, one pass over four arrays, in place.
// SPDX-License-Identifier: Apache-2.0
#include "loops.h"
#include "math.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

enum Operand : uint32_t { kParam, kM, kV, kGrad, kRate, kStep };

struct State {
  Nest nest;  // param, m, v, grad
  ReadRow read;
  WriteRow write;
  double beta[2], log_beta[2];
  double eps, decay;
  uint32_t rate_dtype, step_dtype;
};

// The numbers of one step in the dtype of the states.
template <class C>
struct Step {
  C beta1, rest1, beta2, rest2;
  C first, second_root;  // 1 - beta^step, and the root of that
  C eps, decay, rate;
};

template <class C>
struct Context {
  const State& s;
  Step<C> step;
};

template <class C>
C root(C x) {
  if constexpr (__is_same(C, double))
    return __builtin_sqrt(x);
  else
    return static_cast<C>(__builtin_sqrtf(static_cast<float>(x)));
}

template <class C>
inline void update(const Step<C>& c, C& p, C& m, C& v, C g) {
  m = m * c.beta1 + g * c.rest1;
  v = v * c.beta2 + g * (g * c.rest2);  // in this order since g * g may overflow
  C change = m / c.first / (root<C>(v) / c.second_root + c.eps);
  change = c.decay != C(0) ? change + p * c.decay : change;  // inf * 0 is no decay
  p = p - change * c.rate;
}

template <class C>
void update_line(const Step<C>& step, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kBytes = sizeof(C);
  bool adjacent = true;
  for (int i = 0; i < 4; ++i) adjacent = adjacent && strides[i] == kBytes;
  if (adjacent) {
    C* __restrict__ param = reinterpret_cast<C*>(p[kParam]);
    C* __restrict__ m = reinterpret_cast<C*>(p[kM]);
    C* __restrict__ v = reinterpret_cast<C*>(p[kV]);
    const C* __restrict__ grad = reinterpret_cast<const C*>(p[kGrad]);
    Step<C> c = step;
    for (int64_t i = 0; i < n; ++i) update(c, param[i], m[i], v[i], grad[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    update(step, *reinterpret_cast<C*>(p[kParam] + i * strides[kParam]),
           *reinterpret_cast<C*>(p[kM] + i * strides[kM]),
           *reinterpret_cast<C*>(p[kV] + i * strides[kV]),
           *reinterpret_cast<const C*>(p[kGrad] + i * strides[kGrad]));
}

template <class C>
void step_line(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  update_line(static_cast<const Context<C>*>(context)->step, p, strides, n);
}

// f16 and bf16 beside states of f32, in pieces.
void step_halves(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kPiece = 256;
  const Context<float>& c = *static_cast<const Context<float>*>(context);
  alignas(64) float param[kPiece], grad[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    int64_t count = n - i < kPiece ? n - i : kPiece;
    char* to = p[kParam] + i * strides[kParam];
    c.s.read(to, strides[kParam], count, param);
    c.s.read(p[kGrad] + i * strides[kGrad], strides[kGrad], count, grad);
    char* const ends[] = {reinterpret_cast<char*>(param), p[kM] + i * strides[kM],
                          p[kV] + i * strides[kV], reinterpret_cast<char*>(grad)};
    const int64_t steps[] = {4, strides[kM], strides[kV], 4};
    update_line(c.step, ends, steps, count);
    c.s.write(to, strides[kParam], count, param);
  }
}

template <class C>
Step<C> step_of(const State& s, char* const* data) {
  double rate = 0;
  if (s.rate_dtype == ANYHAL_DTYPE_F64) {
    memcpy(&rate, data[kRate], 8);
  } else {
    float single;
    memcpy(&single, data[kRate], 4);
    rate = static_cast<double>(single);
  }
  double count = static_cast<double>(read_index(s.step_dtype, data[kStep]));
  return {static_cast<C>(s.beta[0]),
          static_cast<C>(1 - s.beta[0]),
          static_cast<C>(s.beta[1]),
          static_cast<C>(1 - s.beta[1]),
          static_cast<C>(-__builtin_expm1(count * s.log_beta[0])),
          static_cast<C>(__builtin_sqrt(-__builtin_expm1(count * s.log_beta[1]))),
          static_cast<C>(s.eps),
          static_cast<C>(s.decay),
          static_cast<C>(rate)};
}

template <class C, Inner kLine>
anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  const int64_t number = read_index(s.step_dtype, data[kStep]);
  if (number < 1)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
                "step %lld has no bias correction; nothing was written; count steps from 1",
                static_cast<long long>(number));
  Context<C> context = {s, step_of<C>(s, data)};
  run_nest(plan, s.nest, data, kLine, &context, 2);
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_adamw_step(Plan& plan) {
  State& s = plan.make_state<State>();
  const auto& attributes = plan.attribute<anyhal_attrs_adamw_step>();
  // The last tensor orders the loops; all have the same dims.
  const Tensor* tensors[] = {&plan.input(kParam), &plan.input(kM), &plan.input(kV),
                             &plan.input(kGrad)};
  make_nest(s.nest, tensors, 4);
  uint32_t dtype = plan.input(kParam).dtype;
  s.read = reader_of(dtype);
  s.write = writer_of(dtype);
  const float betas[] = {attributes.beta1, attributes.beta2};
  for (int i = 0; i < 2; ++i) {
    s.beta[i] = static_cast<double>(betas[i]);
    s.log_beta[i] = __builtin_log(s.beta[i]);
  }
  s.eps = static_cast<double>(attributes.eps);
  s.decay = static_cast<double>(attributes.weight_decay);
  s.rate_dtype = plan.input(kRate).dtype;
  s.step_dtype = plan.input(kStep).dtype;
  plan.kernel = "one pass, in place";
  plan.run = dtype == ANYHAL_DTYPE_F64   ? run<double, step_line<double>>
             : dtype == ANYHAL_DTYPE_F32 ? run<float, step_line<float>>
                                         : run<float, step_halves>;
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
