// log_softmax, and the gradients of softmax and log_softmax from what they gave, along one axis.
// SPDX-License-Identifier: Apache-2.0
#include "lines.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

// (a, b, out) of one line as adjacent f32; b is null where the op has one input.
using Work = void (*)(const float* a, const float* b, float* out, int64_t n);

struct State {
  LineSet lines;  // the inputs, then the output
  int inputs;
  ReadRow read;
  WriteRow write;
  Work work;
  int64_t padded;
};

// The maximum goes first: added to the logarithm, a large one would swallow it. A row of -inf, one
// with +inf and one with NaN are NaN as a whole, by the arithmetic itself.
void log_softmax(const float* x, const float*, float* out, int64_t n) {
  constexpr int64_t kPiece = 256;
  alignas(64) float e[kPiece];
  float high = highest_of(x, n), sum = 0.0f;
  for (int64_t i = 0; i < n; i += kPiece)
    sum += exponentials(x + i, high, e, n - i < kPiece ? n - i : kPiece);
  float log = static_cast<float>(__builtin_log(static_cast<double>(sum)));
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] - high - log;
}

// Σ f(i) in f32 pieces that vectorise.
template <class F>
float sum_pieces(int64_t n, const F& f) {
  constexpr int64_t kPiece = 256;
  alignas(64) float terms[kPiece];
  float sum = 0.0f;
  for (int64_t i = 0; i < n; i += kPiece) {
    int64_t count = n - i < kPiece ? n - i : kPiece;
    for (int64_t j = 0; j < count; ++j) terms[j] = f(i + j);
    sum += sum_of(terms, count);
  }
  return sum;
}

void softmax_backward(const float* d, const float* y, float* out, int64_t n) {
  float total = sum_pieces(n, [&](int64_t i) { return d[i] * y[i]; });
  for (int64_t i = 0; i < n; ++i) out[i] = (d[i] - total) * y[i];
}

void log_softmax_backward(const float* d, const float* y, float* out, int64_t n) {
  float total = sum_pieces(n, [&](int64_t i) { return d[i]; });
  for (int64_t i = 0; i < n; ++i) out[i] = d[i] - exp_f32(y[i]) * total;
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  int64_t n = s.lines.length;
  if (n == 0) return ANYHAL_STATUS_OK;
  each_part(plan.team, s.lines, data, parts_for(plan.team, s.lines, 4),
            [&](char* const* p, int64_t part) {
              float* buffer = reinterpret_cast<float*>(workspace) + part * 3 * s.padded;
              const float* in[2] = {};
              for (int i = 0; i < s.inputs; ++i)
                in[i] = line_at(p[i], s.lines.plain[i], s.read, s.lines.stride[i], n,
                                buffer + i * s.padded);
              float* line = buffer + 2 * s.padded;
              bool direct = s.lines.plain[s.inputs];
              float* out = direct ? reinterpret_cast<float*>(p[s.inputs]) : line;
              s.work(in[0], in[1], out, n);
              if (!direct) s.write(p[s.inputs], s.lines.stride[s.inputs], n, line);
            });
  return ANYHAL_STATUS_OK;
}

bool make_plan(Plan& plan, int32_t axis, Work work) {
  State& s = plan.make_state<State>();
  const Tensor* tensors[] = {&plan.operands[0], &plan.operands[1], &plan.output()};
  s.inputs = static_cast<int>(plan.input_count);
  if (s.inputs == 1) tensors[1] = &plan.output();
  make_line_set(s.lines, tensors, s.inputs + 1, positive_axis(axis, plan.input(0).rank), 1);
  s.read = reader_of(plan.input(0).dtype);
  s.write = writer_of(plan.output().dtype);
  s.work = work;
  s.padded = round_up(s.lines.length, 16);
  plan.workspace_bytes = static_cast<uint64_t>(s.padded) * 4 * 3 * plan.team.threads;
  plan.run = run;
  plan.kernel = "row by row";
  plan.library = "";
  return s.read != nullptr && s.write != nullptr;
}

}  // namespace

bool prepare_log_softmax(Plan& plan) {
  return make_plan(plan, plan.attribute<anyhal_attrs_log_softmax>().axis, log_softmax);
}

bool prepare_softmax_backward(Plan& plan) {
  return make_plan(plan, plan.attribute<anyhal_attrs_softmax_backward>().axis, softmax_backward);
}

bool prepare_log_softmax_backward(Plan& plan) {
  return make_plan(plan, plan.attribute<anyhal_attrs_log_softmax_backward>().axis,
                   log_softmax_backward);
}

}  // namespace hal::cpu::HAL_CPU_ISA
