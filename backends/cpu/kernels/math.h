// Elementary functions written without branches, so that loops over them vectorise.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_MATH_H_
#define BACKENDS_CPU_KERNELS_MATH_H_

#include "anyhal/ops.h"
#include "vec.h"

namespace hal::cpu::HAL_CPU_ISA {

#if defined(__FMA__)
static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static inline float fused(float a, float b, float c) { return a * b + c; }
#endif

// eˣ within 2 ulp; subnormal results are rounded once, overflow gives +inf, NaN stays.
static inline float exp_f32(float x) {
  constexpr float kRoundToInteger = 12582912.0f;  // 1.5 · 2²³
  float clamped = x < -104.0f ? -104.0f : x;
  clamped = clamped > 89.0f ? 89.0f : clamped;
  float shifted = fused(clamped, 1.44269504f, kRoundToInteger);
  float n = shifted - kRoundToInteger;
  // ln 2 in two parts, the first short enough that n times it is exact.
  float r = fused(n, -0.693359375f, clamped);
  r = fused(n, 2.12194440e-4f, r);
  float p = 1.98412698e-4f;
  p = fused(p, r, 1.38888889e-3f);
  p = fused(p, r, 8.33333377e-3f);
  p = fused(p, r, 4.16666679e-2f);
  p = fused(p, r, 1.66666672e-1f);
  p = fused(p, r, 0.5f);
  p = fused(r * r, p, r) + 1.0f;
  // 2ⁿ in two factors: one alone cannot express the subnormal end.
  uint32_t exponent = bit_cast<uint32_t>(shifted) - bit_cast<uint32_t>(kRoundToInteger);
  uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  float first = bit_cast<float>((half + 127u) << 23);
  float second = bit_cast<float>((exponent - half + 127u) << 23);
  return p * first * second;
}

static inline float absolute(float x) {
  return bit_cast<float>(bit_cast<uint32_t>(x) & 0x7fffffffu);
}
static inline float with_sign_of(float magnitude, float sign) {
  return bit_cast<float>((bit_cast<uint32_t>(magnitude) & 0x7fffffffu) |
                         (bit_cast<uint32_t>(sign) & 0x80000000u));
}

static inline float sigmoid_f32(float x) {
  float e = exp_f32(-absolute(x));
  float r = 1.0f / (1.0f + e);
  return x < 0.0f ? e * r : r;
}

// x · sigmoid(x); its limit at -inf is -0, where the product itself would be NaN.
static inline float silu_f32(float x) {
  float y = x * sigmoid_f32(x);
  return x == -__builtin_inff() ? -0.0f : y;
}

static inline float tanh_f32(float x) {
  float a = absolute(x);
  float z = x * x;
  float p = -5.70498872745e-3f;
  p = fused(p, z, 2.06390887954e-2f);
  p = fused(p, z, -5.37397155531e-2f);
  p = fused(p, z, 1.33314422036e-1f);
  p = fused(p, z, -3.33332819422e-1f);
  float small = fused(p * z, x, x);
  float large = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);
  return with_sign_of(a < 0.625f ? small : large, x);  // of zero too
}

// 0.5 x (1 + tanh(u)) written as x · sigmoid(2u), which keeps the negative tail's digits.
static inline float gelu_tanh_f32(float x) {
  float u = 1.59576912f * fused(0.044715f * x * x, x, x);
  float y = x * sigmoid_f32(u);
  return x == -__builtin_inff() ? -0.0f : y;
}

// erf for |x| < 1: x times a polynomial in x², fitted at Chebyshev nodes to 1.3e-9.
static inline float erf_near(float x) {
  float z = x * x;
  float p = 7.84725926e-5f;
  p = fused(p, z, -8.00818903e-4f);
  p = fused(p, z, 5.18809911e-3f);
  p = fused(p, z, -2.68536918e-2f);
  p = fused(p, z, 1.12835824e-1f);
  p = fused(p, z, -3.76126260e-1f);
  p = fused(p, z, 1.12837911f);
  return p * x;
}

// 1 - erf for x >= 1: e^(-x²) t times a polynomial in t = 1 / (x + 1.5), fitted likewise to 8.5e-9.
static inline float erfc_far(float x) {
  float t = 1.0f / (x + 1.5f);
  float p = -5.20133066f;
  p = fused(p, t, 5.12485361f);
  p = fused(p, t, 2.85068727f);
  p = fused(p, t, -4.59998131f);
  p = fused(p, t, 1.14075974e-1f);
  p = fused(p, t, 5.42169809e-1f);
  p = fused(p, t, 9.95049417e-1f);
  p = fused(p, t, 8.45938504e-1f);
  p = fused(p, t, 5.64195991e-1f);
  return exp_f32(-(x * x)) * t * p;
}

static inline float erf_f32(float x) {
  float a = absolute(x);
  float far = with_sign_of(1.0f - erfc_far(a), x);
  return a < 1.0f ? erf_near(x) : far;
}

// x times the share of a normal distribution below x; the negative tail keeps its digits.
static inline float gelu_erf_f32(float x) {
  float z = x * 0.70710678f, a = absolute(z);
  float tail = 0.5f * erfc_far(a);
  float share = x < 0.0f ? tail : 1.0f - tail;
  float y = x * (a < 1.0f ? fused(0.5f, erf_near(z), 0.5f) : share);
  return x == -__builtin_inff() ? -0.0f : y;
}

static inline float relu_f32(float x) { return x < 0.0f ? 0.0f : x; }

// In place over n contiguous numbers.
static inline void activate(int32_t activation, float* x, int64_t n) {
  switch (activation) {
    case ANYHAL_ACTIVATION_RELU:
      for (int64_t i = 0; i < n; ++i) x[i] = relu_f32(x[i]);
      break;
    case ANYHAL_ACTIVATION_GELU:
      for (int64_t i = 0; i < n; ++i) x[i] = gelu_erf_f32(x[i]);
      break;
    case ANYHAL_ACTIVATION_GELU_TANH:
      for (int64_t i = 0; i < n; ++i) x[i] = gelu_tanh_f32(x[i]);
      break;
    case ANYHAL_ACTIVATION_SILU:
      for (int64_t i = 0; i < n; ++i) x[i] = silu_f32(x[i]);
      break;
    case ANYHAL_ACTIVATION_SIGMOID:
      for (int64_t i = 0; i < n; ++i) x[i] = sigmoid_f32(x[i]);
      break;
    case ANYHAL_ACTIVATION_TANH:
      for (int64_t i = 0; i < n; ++i) x[i] = tanh_f32(x[i]);
      break;
    default:
      break;
  }
}

static inline float horizontal_sum(F32 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(v);
#else
  float sum = 0.0f;
  for (int i = 0; i < kF32Lanes; ++i) sum += v[i];
  return sum;
#endif
}

// The larger of two; NaN wins.
static inline float max_nan(float a, float b) { return a > b || a != a ? a : b; }
static inline float min_nan(float a, float b) { return a < b || a != a ? a : b; }

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_MATH_H_
