// rope: rotates pairs of the first rotary dims by position-dependent angles.
// SPDX-License-Identifier: Apache-2.0
//
// Angles are formed and reduced in f64 (a position of 10^5 leaves no digits of an f32 angle), then
// one sine and cosine per (position, pair) serve all heads.
#include "math.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int64_t kTableMax = 256;

struct State {
  int64_t d, pairs;
  int32_t pairing;
  double base, position_scale;
  double frequency[kTableMax];                  // position_scale · base^(-2i/r)
  double frequency_max;                         // largest magnitude in the table
  int64_t x_stride, out_stride, factor_stride;  // bytes along D
  ReadRow read;
  WriteRow write;
  uint32_t position_dtype;
  // Leading dims, those with a position of their own first; byte strides.
  int32_t outer_rank, inner_rank;
  int64_t outer_count, inner_count;
  int64_t dims[kRankMax], x[kRankMax], out[kRankMax], position[kRankMax];
  int64_t worker_bytes;
};

// Beyond this the reduction below would lose digits; the C library takes over.
constexpr double kAngleMax = 1e6;

// sin and cos within 2 ulp for |x| up to kAngleMax.
inline void sine_cosine(double x, float* sine, float* cosine) {
  constexpr double kRoundToInteger = 6755399441055744.0;  // 1.5 · 2^52
  double shifted = x * 0.63661977236758134 + kRoundToInteger;
  double n = shifted - kRoundToInteger;
  double r64 = (x - n * 1.5707963267341256) - n * 6.0771005065061922e-11;
  uint32_t quadrant = static_cast<uint32_t>(bit_cast<uint64_t>(shifted));
  float r = static_cast<float>(r64);
  float z = r * r;
  float p = -1.9515295891e-4f;
  p = fused(p, z, 8.3321608736e-3f);
  p = fused(p, z, -1.6666654611e-1f);
  float s = fused(p * z, r, r);
  float q = 2.443315711809948e-5f;
  q = fused(q, z, -1.388731625493765e-3f);
  q = fused(q, z, 4.166664568298827e-2f);
  float c = fused(q, z * z, fused(-0.5f, z, 1.0f));
  bool swap = (quadrant & 1) != 0;
  float first = swap ? c : s;
  float second = swap ? s : c;
  *sine = bit_cast<float>(bit_cast<uint32_t>(first) ^ ((quadrant & 2) << 30));
  *cosine = bit_cast<float>(bit_cast<uint32_t>(second) ^ (((quadrant + 1) & 2) << 30));
}

double frequency_of(const State& s, int64_t pair) {
  double exponent = -static_cast<double>(pair) / static_cast<double>(s.pairs);
  return s.position_scale * __builtin_pow(s.base, exponent);
}

void angles_of(const State& s, int64_t position, const char* factors, float* sine, float* cosine) {
  double at = static_cast<double>(position);
  double largest = at * s.frequency_max;
  if (s.pairs <= kTableMax && factors == nullptr && largest < kAngleMax && largest > -kAngleMax) {
    for (int64_t i = 0; i < s.pairs; ++i) sine_cosine(at * s.frequency[i], &sine[i], &cosine[i]);
    return;
  }
  for (int64_t i = 0; i < s.pairs; ++i) {
    double frequency = i < kTableMax ? s.frequency[i] : frequency_of(s, i);
    if (factors != nullptr) {
      float factor;
      memcpy(&factor, factors + i * s.factor_stride, 4);
      frequency /= static_cast<double>(factor);
    }
    double angle = at * frequency;
    if (angle > -kAngleMax && angle < kAngleMax) {
      sine_cosine(angle, &sine[i], &cosine[i]);
    } else {
      sine[i] = static_cast<float>(__builtin_sin(angle));
      cosine[i] = static_cast<float>(__builtin_cos(angle));
    }
  }
}

void rotate_line(const State& s, const float* x, const float* sine, const float* cosine,
                 float* out) {
  if (s.pairing == ANYHAL_PAIRING_HALF_SPLIT) {
    for (int64_t i = 0; i < s.pairs; ++i) {
      float a = x[i], b = x[i + s.pairs];
      out[i] = a * cosine[i] - b * sine[i];
      out[i + s.pairs] = b * cosine[i] + a * sine[i];
    }
  } else {
    for (int64_t i = 0; i < s.pairs; ++i) {
      float a = x[2 * i], b = x[2 * i + 1];
      out[2 * i] = a * cosine[i] - b * sine[i];
      out[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
  }
  for (int64_t i = 2 * s.pairs; i < s.d; ++i) out[i] = x[i];
}

struct At {
  int64_t x = 0, out = 0, position = 0;
};

// Offsets of flat index `index` over dims [first, last).
At offsets_of(const State& s, int32_t first, int32_t last, int64_t index) {
  At at;
  for (int32_t d = last - 1; d >= first; --d) {
    int64_t i = index % s.dims[d];
    index /= s.dims[d];
    at.x += i * s.x[d];
    at.out += i * s.out[d];
    at.position += i * s.position[d];
  }
  return at;
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.outer_count * s.inner_count == 0) return ANYHAL_STATUS_OK;
  const char* factors = plan.input(2).absent() ? nullptr : data[2];
  int64_t parts = plan.team.threads;
  if (s.outer_count * s.inner_count * s.d < kParallelGrain) parts = 1;
  int64_t step = (s.outer_count + parts - 1) / parts;
  share_items(plan.team, parts, [&](int64_t part, int64_t) {
    float* sine = reinterpret_cast<float*>(workspace + part * s.worker_bytes);
    float* cosine = sine + round_up(s.pairs, 16);
    float* from = cosine + round_up(s.pairs, 16);
    float* to = from + round_up(s.d, 16);
    int64_t end = (part + 1) * step < s.outer_count ? (part + 1) * step : s.outer_count;
    for (int64_t i = part * step; i < end; ++i) {
      At outer = offsets_of(s, 0, s.outer_rank, i);
      angles_of(s, read_index(s.position_dtype, data[1] + outer.position), factors, sine, cosine);
      for (int64_t j = 0; j < s.inner_count; ++j) {
        At inner = offsets_of(s, s.outer_rank, s.outer_rank + s.inner_rank, j);
        s.read(data[0] + outer.x + inner.x, s.x_stride, s.d, from);
        rotate_line(s, from, sine, cosine, to);
        s.write(data[3] + outer.out + inner.out, s.out_stride, s.d, to);
      }
    }
  });
  return ANYHAL_STATUS_OK;
}

void add_dims(State& s, const Tensor& x, const Tensor& positions, const Tensor& out, bool own,
              int32_t* rank, int64_t* count) {
  int64_t lead = static_cast<int64_t>(x.rank) - 1;
  int32_t at = own ? 0 : s.outer_rank;
  *count = 1;
  for (int64_t d = 0; d < lead; ++d) {
    int64_t p = d - (lead - static_cast<int64_t>(positions.rank));
    int64_t stride = p >= 0 && positions.dims[p] != 1 ? positions.strides[p] : 0;
    if ((stride != 0) != own) continue;
    s.dims[at] = x.dims[d];
    s.x[at] = x.strides[d] * element_bytes(x.dtype);
    s.out[at] = out.strides[d] * element_bytes(out.dtype);
    s.position[at++] = stride * element_bytes(positions.dtype);
    *count *= x.dims[d];
  }
  *rank = at - (own ? 0 : s.outer_rank);
}

}  // namespace

bool prepare_rope(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &x = plan.input(0), &positions = plan.input(1), &factors = plan.input(2);
  const Tensor& out = plan.output();
  const auto& attrs = plan.attribute<anyhal_attrs_rope>();
  s.d = x.dims[x.rank - 1];
  s.pairs = (attrs.rotary_dims == 0 ? s.d : attrs.rotary_dims) / 2;
  s.pairing = attrs.pairing;
  s.base = static_cast<double>(attrs.base);
  s.position_scale = static_cast<double>(attrs.position_scale);
  s.frequency_max = 0;
  for (int64_t i = 0; i < s.pairs && i < kTableMax; ++i) {
    s.frequency[i] = frequency_of(s, i);
    double magnitude = __builtin_fabs(s.frequency[i]);
    if (magnitude > s.frequency_max) s.frequency_max = magnitude;
  }
  s.x_stride = x.strides[x.rank - 1] * element_bytes(x.dtype);
  s.out_stride = out.strides[out.rank - 1] * element_bytes(out.dtype);
  s.factor_stride = factors.absent() ? 0 : factors.strides[0] * 4;
  s.read = reader_of(x.dtype);
  s.write = writer_of(out.dtype);
  s.position_dtype = positions.dtype;
  s.outer_rank = 0;
  add_dims(s, x, positions, out, true, &s.outer_rank, &s.outer_count);
  add_dims(s, x, positions, out, false, &s.inner_rank, &s.inner_count);
  s.worker_bytes = (2 * round_up(s.pairs, 16) + 2 * round_up(s.d, 16)) * 4;
  s.worker_bytes = round_up(s.worker_bytes, 64);
  plan.workspace_bytes = static_cast<uint64_t>(s.worker_bytes) * plan.team.threads;
  plan.run = run;
  plan.kernel = "shared angles";
  plan.library = "";
  return s.read != nullptr && s.write != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
