// softmax: exp(x - max(x)) / sum, along one axis.
// SPDX-License-Identifier: Apache-2.0
#include "lines.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct State {
  Lines lines;
  ReadRow read;
  WriteRow write;
  bool plain;
  bool wide;  // f64
  int64_t worker_bytes;
};

template <class T>
inline T lowest() {
  return static_cast<T>(-__builtin_inf());
}

// A row of -inf gives -inf - -inf, a row with +inf gives inf - inf: NaN, as the contract asks.
void softmax_f32(const float* x, float* out, int64_t n) {
  float high = highest_of(x, n);
  float sum = exponentials(x, high, out, n);
  for (int64_t j = 0; j < n; ++j) out[j] = out[j] / sum;
}

void softmax_f64(const char* x, int64_t x_stride, char* out, int64_t out_stride, int64_t n) {
  auto at = [&](int64_t i) { return *reinterpret_cast<const double*>(x + i * x_stride); };
  auto to = [&](int64_t i) -> double& { return *reinterpret_cast<double*>(out + i * out_stride); };
  double high = lowest<double>(), sum = 0;
  for (int64_t i = 0; i < n; ++i) high = at(i) > high ? at(i) : high;
  for (int64_t i = 0; i < n; ++i) {
    to(i) = __builtin_exp(at(i) - high);
    sum += to(i);
  }
  for (int64_t i = 0; i < n; ++i) to(i) /= sum;
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  int64_t n = s.lines.length;
  if (n == 0) return ANYHAL_STATUS_OK;
  if (s.plain || s.wide) {
    each_line(plan.team, s.lines, data, 4, [&](const char* x, char* out) {
      if (s.wide)
        softmax_f64(x, s.lines.stride[0], out, s.lines.stride[1], n);
      else
        softmax_f32(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(out), n);
    });
    return ANYHAL_STATUS_OK;
  }
  // Other layouts and halves: through an f32 copy of the line, one per part of the lines.
  int64_t parts = plan.team.threads;
  if (s.lines.outer.count * n < kParallelGrain / 4) parts = 1;
  int64_t step = (s.lines.outer.count + parts - 1) / parts;
  share_items(plan.team, parts, [&](int64_t part, int64_t) {
    struct Job {
      const State& s;
      float* line;
    };
    Job job = {s, reinterpret_cast<float*>(workspace + part * s.worker_bytes)};
    int64_t end = (part + 1) * step < s.lines.outer.count ? (part + 1) * step : s.lines.outer.count;
    if (part * step >= end) return;
    walk_nest(
        s.lines.outer, data, part * step, end,
        [](const void* context, char* const* p, const int64_t* strides, int64_t count) {
          const Job& j = *static_cast<const Job*>(context);
          for (int64_t i = 0; i < count; ++i) {
            j.s.read(p[0] + i * strides[0], j.s.lines.stride[0], j.s.lines.length, j.line);
            softmax_f32(j.line, j.line, j.s.lines.length);
            j.s.write(p[1] + i * strides[1], j.s.lines.stride[1], j.s.lines.length, j.line);
          }
        },
        &job);
  });
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_softmax(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &x = plan.input(0), &out = plan.output();
  make_lines(s.lines, x, out, positive_axis(plan.attribute<anyhal_attrs_softmax>().axis, x.rank));
  s.read = reader_of(x.dtype);
  s.write = writer_of(out.dtype);
  s.wide = x.dtype == ANYHAL_DTYPE_F64;
  s.plain = x.dtype == ANYHAL_DTYPE_F32 && out.dtype == ANYHAL_DTYPE_F32 &&
            s.lines.stride[0] == 4 && s.lines.stride[1] == 4;
  if (!s.plain && !s.wide) {
    if (s.read == nullptr || s.write == nullptr) return false;
    s.worker_bytes = round_up(s.lines.length * 4, 64);
    plan.workspace_bytes = static_cast<uint64_t>(s.worker_bytes) * plan.team.threads;
  }
  plan.run = run;
  plan.kernel = "row by row";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
