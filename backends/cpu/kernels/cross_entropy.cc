// cross_entropy and its gradient: each row of logits is read once or twice, nothing of it is kept.
// SPDX-License-Identifier: Apache-2.0
#include "indexing.h"
#include "lines.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int64_t kPiece = 256;

struct State {
  int64_t rows, classes;
  int64_t stride, out_stride;  // bytes, along the classes
  bool plain, out_plain;
  int32_t reduction, ignored;
  float smoothing;
  ReadRow read;
  WriteRow write;
  int64_t padded;  // floats of one line in the workspace
};

// How many rows count. A target that is no class is the caller's mistake, found before anything is
// written.
anyhal_status count_targets(const State& s, const Tensor& targets, const char* data,
                            int64_t* counted, anyhal_error* error) {
  *counted = 0;
  for (int64_t i = 0; i < s.rows; ++i) {
    int64_t target = index_at(targets, data, i);
    if (target == s.ignored) continue;
    ++*counted;
    if (target >= 0 && target < s.classes) continue;
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
                "target %lld at position %lld is neither a class in [0, %lld) nor ignore_index; "
                "nothing was written; correct the targets",
                static_cast<long long>(target), static_cast<long long>(i),
                static_cast<long long>(s.classes));
  }
  return ANYHAL_STATUS_OK;
}

struct LogSum {
  float top, log;
};

LogSum log_sum_of(const float* x, int64_t n) {
  alignas(64) float e[kPiece];
  float top = highest_of(x, n), sum = 0.0f;
  for (int64_t i = 0; i < n; i += kPiece)
    sum += exponentials(x + i, top, e, n - i < kPiece ? n - i : kPiece);
  return {top, static_cast<float>(__builtin_log(static_cast<double>(sum)))};
}

// The loss of a row whose target is a class.
float loss_of(const State& s, const float* x, int64_t target, const LogSum& whole) {
  float picked = x[target] - whole.top;
  if (s.smoothing != 0.0f) {
    double sum =
        sum_wide(s.classes, [&](int64_t i) { return static_cast<double>(x[i] - whole.top); });
    float spread = static_cast<float>(sum / static_cast<double>(s.classes)) * s.smoothing;
    // At 1 the target has no weight of its own, and 0 · -inf is NaN.
    float kept = static_cast<float>(1.0 - static_cast<double>(s.smoothing));
    picked = s.smoothing < 1.0f ? picked * kept + spread : spread;
  }
  return whole.log - picked;
}

// Rows [begin, end) of each part: body(row, its part).
template <class Body>
void each_row(const State& s, const Team& team, const Body& body) {
  int64_t parts = s.rows * s.classes < kParallelGrain / 2 ? 1 : team.threads;
  int64_t step = (s.rows + parts - 1) / parts;
  share_items(team, parts, [&](int64_t part, int64_t) {
    int64_t end = (part + 1) * step < s.rows ? (part + 1) * step : s.rows;
    for (int64_t row = part * step; row < end; ++row) body(row, part);
  });
}

const float* logits_of(const State& s, const Tensor& logits, const char* data, int64_t row,
                       float* buffer) {
  return line_at(data + offset_of(logits, 0, logits.rank - 1, row), s.plain, s.read, s.stride,
                 s.classes, buffer);
}

float* at_row(const Tensor& t, char* data, int64_t row) {
  return reinterpret_cast<float*>(data + offset_of(t, 0, t.rank, row));
}

// ------------------------------------------------------------------------------------ the loss

enum Loss : uint32_t { kLogits, kTargets, kLoss, kLse };

anyhal_status run_loss(const Plan& plan, char* const* data, char* workspace, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  const Tensor* t = plan.operands;
  int64_t counted = 0;
  anyhal_status status = count_targets(s, t[kTargets], data[kTargets], &counted, error);
  if (status != ANYHAL_STATUS_OK) return status;
  float* losses = reinterpret_cast<float*>(workspace);
  float* lines = losses + round_up(s.rows, 16);
  bool each = s.reduction == ANYHAL_LOSS_REDUCTION_NONE;
  each_row(s, plan.team, [&](int64_t row, int64_t part) {
    const float* x = logits_of(s, t[kLogits], data[kLogits], row, lines + part * s.padded);
    int64_t target = index_at(t[kTargets], data[kTargets], row);
    LogSum whole = {};
    if (target != s.ignored || !t[kLse].absent()) whole = log_sum_of(x, s.classes);
    float loss = target == s.ignored ? 0.0f : loss_of(s, x, target, whole);
    *(each ? at_row(t[kLoss], data[kLoss], row) : losses + row) = loss;
    if (!t[kLse].absent()) *at_row(t[kLse], data[kLse], row) = whole.top + whole.log;
  });
  if (each) return ANYHAL_STATUS_OK;
  double total = sum_wide(s.rows, [&](int64_t i) { return static_cast<double>(losses[i]); });
  if (s.reduction == ANYHAL_LOSS_REDUCTION_MEAN) total /= static_cast<double>(counted);
  *reinterpret_cast<float*>(data[kLoss]) = static_cast<float>(total);
  return ANYHAL_STATUS_OK;
}

// -------------------------------------------------------------------------------- its gradient

enum Gradient : uint32_t { kDloss = 2, kGivenLse, kOut };

// out = (softmax(x) - weight) · scale.
void differentiate(const State& s, const float* x, const float* lse, int64_t target, float scale,
                   float* out) {
  int64_t n = s.classes;
  double part = static_cast<double>(s.smoothing), share = part / static_cast<double>(n);
  float other = static_cast<float>(share), own = static_cast<float>(1.0 - part + share);
  float at_target = x[target];  // out may lie in x's buffer
  float shift = lse != nullptr ? *lse : highest_of(x, n), total = 1.0f;
  float sum = exponentials(x, shift, out, n);
  if (lse == nullptr) total = sum;
  for (int64_t i = 0; i < n; ++i) out[i] = (out[i] / total - other) * scale;
  out[target] = (exp_f32(at_target - shift) / total - own) * scale;
}

anyhal_status run_gradient(const Plan& plan, char* const* data, char* workspace,
                           anyhal_error* error) {
  const State& s = plan.get_state<State>();
  const Tensor* t = plan.operands;
  int64_t counted = 0;
  anyhal_status status = count_targets(s, t[kTargets], data[kTargets], &counted, error);
  if (status != ANYHAL_STATUS_OK) return status;
  float* lines = reinterpret_cast<float*>(workspace);
  each_row(s, plan.team, [&](int64_t row, int64_t part) {
    float* line = lines + part * s.padded;
    int64_t target = index_at(t[kTargets], data[kTargets], row);
    char* to = data[kOut] + offset_of(t[kOut], 0, t[kOut].rank - 1, row);
    float* out = s.out_plain ? reinterpret_cast<float*>(to) : line;
    if (target == s.ignored) {
      for (int64_t i = 0; i < s.classes; ++i) out[i] = 0.0f;
    } else {
      const float* x = logits_of(s, t[kLogits], data[kLogits], row, line);
      bool each = s.reduction == ANYHAL_LOSS_REDUCTION_NONE;
      float scale = *at_row(t[kDloss], data[kDloss], each ? row : 0);
      if (s.reduction == ANYHAL_LOSS_REDUCTION_MEAN) scale /= static_cast<float>(counted);
      const float* lse =
          t[kGivenLse].absent() ? nullptr : at_row(t[kGivenLse], data[kGivenLse], row);
      differentiate(s, x, lse, target, scale, out);
    }
    if (!s.out_plain) s.write(to, s.out_stride, s.classes, line);
  });
  return ANYHAL_STATUS_OK;
}

template <class Attributes>
bool make_plan(Plan& plan, Run run, int64_t kept_rows) {
  State& s = plan.make_state<State>();
  const auto& attributes = plan.attribute<Attributes>();
  const Tensor &logits = plan.input(0), &targets = plan.input(1), &out = plan.output();
  s.rows = element_count(targets);
  s.classes = logits.dims[logits.rank - 1];
  s.stride = logits.strides[logits.rank - 1] * element_bytes(logits.dtype);
  s.plain = logits.dtype == ANYHAL_DTYPE_F32 && s.stride == 4;
  s.reduction = attributes.reduction;
  s.ignored = attributes.ignore_index;
  s.smoothing = attributes.label_smoothing;
  s.read = reader_of(logits.dtype);
  s.write = writer_of(logits.dtype);
  s.out_stride = out.rank == 0 ? 4 : out.strides[out.rank - 1] * element_bytes(out.dtype);
  s.out_plain = out.dtype == ANYHAL_DTYPE_F32 && s.out_stride == 4;
  s.padded = round_up(s.classes, 16);
  plan.workspace_bytes =
      static_cast<uint64_t>(round_up(s.rows, 16) * kept_rows + s.padded * plan.team.threads) * 4;
  plan.run = run;
  plan.kernel = "row by row";
  plan.library = "";
  return s.read != nullptr;
}

}  // namespace

bool prepare_cross_entropy(Plan& plan) {
  return make_plan<anyhal_attrs_cross_entropy>(plan, run_loss, 1);
}

bool prepare_cross_entropy_backward(Plan& plan) {
  return make_plan<anyhal_attrs_cross_entropy_backward>(plan, run_gradient, 0);
}

}  // namespace hal::cpu::HAL_CPU_ISA
