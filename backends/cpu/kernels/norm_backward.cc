// rms_norm_backward and layer_norm_backward: the gradients of a norm along the last dim.
// SPDX-License-Identifier: Apache-2.0
//
// dx = r (g - mean(g) - u mean(g u)) with u = (x - mean(x)) r and g = dout · weight; without the
// means of g and x for rms_norm. Rows are computed in f64. Sums over rows are kept by parts that
// depend on the shape alone, so they do not change with the number of threads.
#include "lines.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

enum Operand : uint32_t { kDout, kX, kWeight, kDx, kDweight, kDbias };
constexpr int64_t kRowsOfPart = 32, kPartsMax = 8;

struct State {
  LineSet lines;  // dout, x, dx
  bool centred;
  double eps;
  ReadRow read;
  WriteRow write;
  int64_t weight_stride, sums_stride[2];
  bool has_weight, wants[2];  // dweight, dbias
  int64_t parts, padded;      // padded: numbers of one line in the workspace
};

// What a part has for itself.
struct Part {
  double* sums[2];
  float *dout, *x, *dx;
};

int64_t part_bytes(const State& s) { return s.padded * (2 * 8 + 3 * 4); }

Part part_at(const State& s, char* workspace, int64_t number) {
  char* own = workspace + number * part_bytes(s);
  double* sums = reinterpret_cast<double*>(own);
  float* lines = reinterpret_cast<float*>(sums + 2 * s.padded);
  return {{sums, sums + s.padded}, lines, lines + s.padded, lines + 2 * s.padded};
}

void differentiate_line(const State& s, char* const* p, const float* weight, const Part& part) {
  const int64_t n = s.lines.length;
  const double size = static_cast<double>(n);
  const int64_t* stride = s.lines.stride;
  const float* d = line_at(p[0], s.lines.plain[0], s.read, stride[0], n, part.dout);
  const float* x = line_at(p[1], s.lines.plain[1], s.read, stride[1], n, part.x);
  auto wide = [&](int64_t i) { return static_cast<double>(x[i]); };
  double mean = s.centred ? sum_wide(n, wide) / size : 0.0;
  double squares = sum_wide(n, [&](int64_t i) { return (wide(i) - mean) * (wide(i) - mean); });
  double factor = 1.0 / __builtin_sqrt(squares / size + s.eps);
  auto unit = [&](int64_t i) { return (wide(i) - mean) * factor; };
  auto g = [&](int64_t i) { return static_cast<double>(d[i]) * static_cast<double>(weight[i]); };
  double along = sum_wide(n, [&](int64_t i) { return g(i) * unit(i); }) / size;
  double level = s.centred ? sum_wide(n, g) / size : 0.0;
  double* sums = part.sums[0];
  if (s.wants[0])
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(d[i]) * unit(i);
  sums = part.sums[1];
  if (s.wants[1])
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(d[i]);
  float* out = s.lines.plain[2] ? reinterpret_cast<float*>(p[2]) : part.dx;
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(factor * (g(i) - level - unit(i) * along));
  if (out == part.dx) s.write(p[2], stride[2], n, part.dx);
}

// The sums of all parts in the order of their rows.
void write_sums(const State& s, char* const* data, char* workspace) {
  Part first = part_at(s, workspace, 0);
  for (uint32_t k = 0; k < 2; ++k) {
    if (!s.wants[k]) continue;
    for (int64_t part = 1; part < s.parts; ++part) {
      const double* more = part_at(s, workspace, part).sums[k];
      for (int64_t i = 0; i < s.lines.length; ++i) first.sums[k][i] += more[i];
    }
    for (int64_t i = 0; i < s.lines.length; ++i) first.dx[i] = static_cast<float>(first.sums[k][i]);
    s.write(data[kDweight + k], s.sums_stride[k], s.lines.length, first.dx);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.lines.length == 0) return ANYHAL_STATUS_OK;
  float* weight = reinterpret_cast<float*>(workspace + s.parts * part_bytes(s));
  for (int64_t i = 0; i < s.lines.length; ++i) weight[i] = 1.0f;
  if (s.has_weight) s.read(data[kWeight], s.weight_stride, s.lines.length, weight);
  for (int64_t i = 0; i < s.parts; ++i)
    memset(part_at(s, workspace, i).sums[0], 0, static_cast<size_t>(s.padded) * 16);
  char* const ends[] = {data[kDout], data[kX], data[kDx]};
  Team solo = {nullptr, 1};
  bool small = s.lines.outer.count * s.lines.length < kParallelGrain / 2;
  each_part(small ? solo : plan.team, s.lines, ends, s.parts, [&](char* const* p, int64_t part) {
    differentiate_line(s, p, weight, part_at(s, workspace, part));
  });
  write_sums(s, data, workspace);
  return ANYHAL_STATUS_OK;
}

bool make_plan(Plan& plan, bool centred, float eps) {
  State& s = plan.make_state<State>();
  const Tensor* t = plan.operands;
  const Tensor* tensors[] = {&t[kDout], &t[kX], &t[kDx]};
  make_line_set(s.lines, tensors, 3, t[kX].rank - 1, 1);
  s.centred = centred;
  s.eps = static_cast<double>(eps);
  s.read = reader_of(t[kX].dtype);
  s.write = writer_of(t[kX].dtype);
  int64_t bytes = element_bytes(t[kX].dtype);
  s.has_weight = !t[kWeight].absent();
  s.weight_stride = s.has_weight ? t[kWeight].strides[0] * bytes : 0;
  for (uint32_t k = 0; k < (centred ? 2u : 1u); ++k) {
    s.wants[k] = !t[kDweight + k].absent();
    s.sums_stride[k] = s.wants[k] ? t[kDweight + k].strides[0] * bytes : 0;
  }
  int64_t parts = s.lines.outer.count / kRowsOfPart;
  s.parts = parts < 1 ? 1 : parts > kPartsMax ? kPartsMax : parts;
  s.padded = round_up(s.lines.length, 16);
  plan.workspace_bytes = static_cast<uint64_t>(s.parts * part_bytes(s) + s.padded * 4);
  plan.run = run;
  plan.kernel = "row by row";
  plan.library = "";
  return s.read != nullptr && s.write != nullptr;
}

}  // namespace

bool prepare_rms_norm_backward(Plan& plan) {
  return make_plan(plan, false, plan.attribute<anyhal_attrs_rms_norm_backward>().eps);
}

bool prepare_layer_norm_backward(Plan& plan) {
  return make_plan(plan, true, plan.attribute<anyhal_attrs_layer_norm_backward>().eps);
}

}  // namespace hal::cpu::HAL_CPU_ISA
