// argmax: index of the largest element along one axis; the lowest on a tie; NaN is the largest.
// SPDX-License-Identifier: Apache-2.0
#include "math.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

using Find = int64_t (*)(const char* x, int64_t stride, int64_t n);

struct State {
  Lines lines;
  Find find;
  bool wide_index;
};

template <class T>
inline auto comparable(T x) {
  if constexpr (__is_same(T, F16) || __is_same(T, BF16))
    return to_f32(x);
  else
    return x;
}

template <class T>
int64_t find_any(const char* x, int64_t stride, int64_t n) {
  int64_t best = 0;
  auto high = comparable(*reinterpret_cast<const T*>(x));
  for (int64_t i = 1; i < n && high == high; ++i) {
    auto value = comparable(*reinterpret_cast<const T*>(x + i * stride));
    if (value > high || value != value) {
      high = value;
      best = i;
    }
  }
  return best;
}

// The maximum by vectors first, then where it stands.
int64_t find_f32(const char* data, int64_t stride, int64_t n) {
  if (stride != static_cast<int64_t>(sizeof(float)) || n < 4 * kF32Lanes)
    return find_any<float>(data, stride, n);
  const float* x = reinterpret_cast<const float*>(data);
  F32 high = load(x);
  I32 strange = high != high;
  int64_t i = kF32Lanes;
  for (; i + kF32Lanes <= n; i += kF32Lanes) {
    F32 v = load(x + i);
    strange |= v != v;
    high = v > high ? v : high;
  }
  float best = high[0];
  bool any_nan = false;
  for (int c = 0; c < kF32Lanes; ++c) {
    best = high[c] > best ? high[c] : best;
    any_nan |= strange[c] != 0;
  }
  for (; i < n; ++i) {
    any_nan |= x[i] != x[i];
    best = x[i] > best ? x[i] : best;
  }
  if (any_nan) {
    for (i = 0; i < n; ++i)
      if (x[i] != x[i]) return i;
  }
  for (i = 0; i < n; ++i)
    if (x[i] == best) return i;
  return 0;
}

Find finder_of(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return find_f32;
    case ANYHAL_DTYPE_F16:
      return find_any<F16>;
    case ANYHAL_DTYPE_BF16:
      return find_any<BF16>;
    case ANYHAL_DTYPE_F64:
      return find_any<double>;
    case ANYHAL_DTYPE_I64:
      return find_any<int64_t>;
    case ANYHAL_DTYPE_I32:
      return find_any<int32_t>;
    case ANYHAL_DTYPE_I16:
      return find_any<int16_t>;
    case ANYHAL_DTYPE_I8:
      return find_any<int8_t>;
    case ANYHAL_DTYPE_U64:
      return find_any<uint64_t>;
    case ANYHAL_DTYPE_U32:
      return find_any<uint32_t>;
    case ANYHAL_DTYPE_U16:
      return find_any<uint16_t>;
    case ANYHAL_DTYPE_U8:
    case ANYHAL_DTYPE_BOOL:
      return find_any<uint8_t>;
    default:
      return nullptr;
  }
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.lines.length == 0) return ANYHAL_STATUS_OK;
  each_line(plan.team, s.lines, data, 1, [&](const char* x, char* out) {
    int64_t index = s.find(x, s.lines.stride[0], s.lines.length);
    if (s.wide_index)
      *reinterpret_cast<int64_t*>(out) = index;
    else
      *reinterpret_cast<int32_t*>(out) = static_cast<int32_t>(index);
  });
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_argmax(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &x = plan.input(0), &out = plan.output();
  make_lines(s.lines, x, out, positive_axis(plan.attribute<anyhal_attrs_argmax>().axis, x.rank));
  s.find = finder_of(x.dtype);
  s.wide_index = out.dtype == ANYHAL_DTYPE_I64;
  plan.run = run;
  plan.kernel = "row by row";
  plan.library = "";
  return s.find != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
