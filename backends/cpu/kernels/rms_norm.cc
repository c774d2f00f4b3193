// rms_norm: x / sqrt(mean(x²) + eps) · weight, along the last dim.
// SPDX-License-Identifier: Apache-2.0
//
// The squares are summed in f64: 1e30 squared leaves f32, its norm does not.
#include "math.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int64_t kPiece = 1024;

struct State {
  Lines lines;
  double eps;
  ReadRow read, read_weight;
  WriteRow write;
  int64_t weight_stride;
  bool plain;  // f32, adjacent: read and written in place
};

double sum_of_squares(const float* x, int64_t n) {
  double chains[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) {
      double v = static_cast<double>(x[i + c]);
      chains[c] += v * v;
    }
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (double c : chains) sum += c;
  return sum;
}

// The factor is an ordinary f32 nearly always; beyond its range the product is made in f64.
void scale_piece(const float* x, const float* weight, double factor, float* out, int64_t n) {
  if (factor > 1e-37 && factor < 1e38) {
    float f = static_cast<float>(factor);
    if (weight == nullptr)
      for (int64_t i = 0; i < n; ++i) out[i] = x[i] * f;
    else
      for (int64_t i = 0; i < n; ++i) out[i] = x[i] * f * weight[i];
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    float y = static_cast<float>(static_cast<double>(x[i]) * factor);
    out[i] = weight == nullptr ? y : y * weight[i];
  }
}

void norm_line(const State& s, const char* x, const char* weight, char* out) {
  float piece[kPiece], weights[kPiece];
  int64_t n = s.lines.length;
  double sum = 0;
  if (s.plain) {
    sum = sum_of_squares(reinterpret_cast<const float*>(x), n);
  } else {
    for (int64_t i = 0; i < n; i += kPiece) {
      int64_t count = n - i < kPiece ? n - i : kPiece;
      s.read(x + i * s.lines.stride[0], s.lines.stride[0], count, piece);
      sum += sum_of_squares(piece, count);
    }
  }
  double factor = 1.0 / __builtin_sqrt(sum / static_cast<double>(n) + s.eps);
  if (s.plain && (weight == nullptr || s.weight_stride == 4)) {
    scale_piece(reinterpret_cast<const float*>(x), reinterpret_cast<const float*>(weight), factor,
                reinterpret_cast<float*>(out), n);
    return;
  }
  for (int64_t i = 0; i < n; i += kPiece) {
    int64_t count = n - i < kPiece ? n - i : kPiece;
    s.read(x + i * s.lines.stride[0], s.lines.stride[0], count, piece);
    if (weight != nullptr)
      s.read_weight(weight + i * s.weight_stride, s.weight_stride, count, weights);
    scale_piece(piece, weight != nullptr ? weights : nullptr, factor, piece, count);
    s.write(out + i * s.lines.stride[1], s.lines.stride[1], count, piece);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  char* const ends[] = {data[0], data[plan.input_count]};
  const char* weight = s.read_weight != nullptr ? data[1] : nullptr;
  each_line(plan.team, s.lines, ends, 1,
            [&](const char* x, char* out) { norm_line(s, x, weight, out); });
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_rms_norm(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &x = plan.input(0), &weight = plan.input(1), &out = plan.output();
  make_lines(s.lines, x, out, x.rank - 1);
  s.eps = static_cast<double>(plan.attribute<anyhal_attrs_rms_norm>().eps);
  s.read = reader_of(x.dtype);
  s.write = writer_of(out.dtype);
  s.read_weight = weight.absent() ? nullptr : reader_of(weight.dtype);
  s.weight_stride = weight.absent() ? 0 : weight.strides[0] * element_bytes(weight.dtype);
  bool f32 = x.dtype == ANYHAL_DTYPE_F32 && out.dtype == ANYHAL_DTYPE_F32 &&
             (weight.absent() || weight.dtype == ANYHAL_DTYPE_F32);
  s.plain = f32 && s.lines.stride[0] == 4 && s.lines.stride[1] == 4;
  plan.run = run;
  plan.kernel = "row by row";
  plan.library = "";
  return s.read != nullptr && s.write != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
