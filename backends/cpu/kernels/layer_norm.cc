// layer_norm: (t - mean) / sqrt(variance + eps) · weight + bias of t = x + residual, along the last
// dims. SPDX-License-Identifier: Apache-2.0
//
// Sums and differences are f64: a mean far from the spread costs no digits, and squares stay in
// range.
#include "lines.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

enum Operand : uint32_t { kX, kWeight, kBias, kResidual, kOut, kTotal };

struct State {
  LineSet lines;  // x, residual or x, total or out, out
  double eps;
  ReadRow read, read_vector[2];  // of weight and bias; null = absent
  int64_t vector_stride[2];
  WriteRow write;
  bool residual;
  int64_t padded;  // floats of one line in the workspace
};

struct Vectors {
  const float *weight, *bias;
};

void norm_line(const State& s, char* const* p, const Vectors& v, float* buffer) {
  int64_t n = s.lines.length;
  const int64_t* stride = s.lines.stride;
  const float* t = line_at(p[0], s.lines.plain[0] && !s.residual, s.read, stride[0], n, buffer);
  if (s.residual) {
    float* sum = buffer + s.padded;
    s.read(p[1], stride[1], n, sum);
    for (int64_t i = 0; i < n; ++i) buffer[i] += sum[i];
    s.write(p[2], stride[2], n, buffer);
  }
  auto wide = [&](int64_t i) { return static_cast<double>(t[i]); };
  double mean = sum_wide(n, wide) / static_cast<double>(n);
  double squares = sum_wide(n, [&](int64_t i) { return (wide(i) - mean) * (wide(i) - mean); });
  double factor = 1.0 / __builtin_sqrt(squares / static_cast<double>(n) + s.eps);
  bool direct = s.lines.plain[3];
  float* out = direct ? reinterpret_cast<float*>(p[3]) : buffer;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>((wide(i) - mean) * factor);
  if (v.weight != nullptr)
    for (int64_t i = 0; i < n; ++i) out[i] *= v.weight[i];
  if (v.bias != nullptr)
    for (int64_t i = 0; i < n; ++i) out[i] += v.bias[i];
  if (!direct) s.write(p[3], stride[3], n, buffer);
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.lines.length == 0) return ANYHAL_STATUS_OK;
  float* buffers = reinterpret_cast<float*>(workspace);
  const float* vectors[2] = {};
  for (uint32_t i = 0; i < 2; ++i, buffers += s.padded)
    if (s.read_vector[i] != nullptr)
      vectors[i] = line_at(data[kWeight + i], false, s.read_vector[i], s.vector_stride[i],
                           s.lines.length, buffers);
  char* const ends[] = {data[kX], data[s.residual ? kResidual : kX],
                        data[s.residual ? kTotal : kOut], data[kOut]};
  each_part(plan.team, s.lines, ends, parts_for(plan.team, s.lines, 1),
            [&](char* const* p, int64_t part) {
              norm_line(s, p, {vectors[0], vectors[1]}, buffers + 2 * part * s.padded);
            });
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_layer_norm(Plan& plan) {
  State& s = plan.make_state<State>();
  const auto& attributes = plan.attribute<anyhal_attrs_layer_norm>();
  const Tensor* t = plan.operands;
  s.residual = !t[kResidual].absent();
  const Tensor* tensors[] = {&t[kX], &t[s.residual ? kResidual : kX],
                             &t[s.residual ? kTotal : kOut], &t[kOut]};
  uint32_t count = static_cast<uint32_t>(attributes.axes);
  make_line_set(s.lines, tensors, 4, t[kX].rank - count, count);
  s.eps = static_cast<double>(attributes.eps);
  s.read = reader_of(t[kX].dtype);
  s.write = writer_of(t[kX].dtype);
  for (uint32_t i = 0; i < 2; ++i) {
    const Tensor& vector = t[kWeight + i];
    s.read_vector[i] = vector.absent() ? nullptr : reader_of(vector.dtype);
    if (vector.absent()) continue;
    LineSet line;
    const Tensor* one[] = {&vector};
    make_line_set(line, one, 1, 0, vector.rank);
    s.vector_stride[i] = line.stride[0];
  }
  s.padded = round_up(s.lines.length, 16);
  plan.workspace_bytes = static_cast<uint64_t>(s.padded) * 4 * (2 + 2 * plan.team.threads);
  plan.run = run;
  plan.kernel = "row by row";
  plan.library = "";
  return s.read != nullptr && s.write != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
