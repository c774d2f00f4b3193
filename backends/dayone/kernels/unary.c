/* unary: one function of each element.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "../dayone.h"

static double negative(double x) { return -x; }
static double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; } /* NaN stays */
static double rsqrt(double x) { return 1 / sqrt(x); }
static double reciprocal(double x) { return 1 / x; }
static double is_nan(double x) { return x != x; }
static double is_inf(double x) { return fabs(x) == HUGE_VAL; }
static double is_finite(double x) { return fabs(x) < HUGE_VAL; }
static double relu(double x) { return x < 0 ? 0 : x; } /* NaN stays */

static double sigmoid(double x) { /* neither branch overflows */
  const double e = exp(-fabs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* x * gate, with the limit -0 at -infinity instead of NaN. */
static double gated(double x, double gate) { return x == -HUGE_VAL ? -0.0 : x * gate; }

static double silu(double x) { return gated(x, sigmoid(x)); }

static double gelu(double x) { /* erfc keeps the digits that 1 + erf would cancel */
  return gated(x, erfc(-x * 0.70710678118654752440) / 2);
}

static double gelu_tanh(double x) { /* x/2 (1 + tanh u) = x sigmoid(2u) */
  return gated(x, sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double softplus(double x) { /* log(1 + e^x) without overflow; NaN stays */
  return (x > 0 ? x : x != x ? x : 0) + log1p(exp(-fabs(x)));
}

static double square(double x) { return x * x; }
static double positive(double x) { return x; }
static double sign_bit(double x) { return signbit(x) != 0; }

static double (*const functions[])(double) = {
    [ANYHAL_UNARY_FN_NEG] = negative,
    [ANYHAL_UNARY_FN_ABS] = fabs,
    [ANYHAL_UNARY_FN_SIGN] = sign,
    [ANYHAL_UNARY_FN_EXP] = exp,
    [ANYHAL_UNARY_FN_EXPM1] = expm1,
    [ANYHAL_UNARY_FN_LOG] = log,
    [ANYHAL_UNARY_FN_LOG1P] = log1p,
    [ANYHAL_UNARY_FN_SQRT] = sqrt,
    [ANYHAL_UNARY_FN_RSQRT] = rsqrt,
    [ANYHAL_UNARY_FN_RECIPROCAL] = reciprocal,
    [ANYHAL_UNARY_FN_SIN] = sin,
    [ANYHAL_UNARY_FN_COS] = cos,
    [ANYHAL_UNARY_FN_TANH] = tanh,
    [ANYHAL_UNARY_FN_ERF] = erf,
    [ANYHAL_UNARY_FN_FLOOR] = floor,
    [ANYHAL_UNARY_FN_CEIL] = ceil,
    [ANYHAL_UNARY_FN_ROUND] = nearbyint, /* half to even */
    [ANYHAL_UNARY_FN_TRUNC] = trunc,
    [ANYHAL_UNARY_FN_ISNAN] = is_nan,
    [ANYHAL_UNARY_FN_ISINF] = is_inf,
    [ANYHAL_UNARY_FN_ISFINITE] = is_finite,
    [ANYHAL_UNARY_FN_SIGMOID] = sigmoid,
    [ANYHAL_UNARY_FN_RELU] = relu,
    [ANYHAL_UNARY_FN_SILU] = silu,
    [ANYHAL_UNARY_FN_GELU] = gelu,
    [ANYHAL_UNARY_FN_GELU_TANH] = gelu_tanh,
    [ANYHAL_UNARY_FN_TAN] = tan,
    [ANYHAL_UNARY_FN_ASIN] = asin,
    [ANYHAL_UNARY_FN_ACOS] = acos,
    [ANYHAL_UNARY_FN_ATAN] = atan,
    [ANYHAL_UNARY_FN_SINH] = sinh,
    [ANYHAL_UNARY_FN_COSH] = cosh,
    [ANYHAL_UNARY_FN_ASINH] = asinh,
    [ANYHAL_UNARY_FN_ACOSH] = acosh,
    [ANYHAL_UNARY_FN_ATANH] = atanh,
    [ANYHAL_UNARY_FN_LOG2] = log2,
    [ANYHAL_UNARY_FN_LOG10] = log10,
    [ANYHAL_UNARY_FN_EXP2] = exp2,
    [ANYHAL_UNARY_FN_SQUARE] = square,
    [ANYHAL_UNARY_FN_POSITIVE] = positive,
    [ANYHAL_UNARY_FN_SIGNBIT] = sign_bit,
    [ANYHAL_UNARY_FN_SOFTPLUS] = softplus,
};

static int64_t of_integer(int32_t fn, uint32_t dtype, int64_t x) {
  const int64_t minus = (int64_t)(0 - (uint64_t)x); /* wraps */
  if (fn == ANYHAL_UNARY_FN_NEG) return minus;
  if (fn == ANYHAL_UNARY_FN_ABS) return x < 0 && !is_unsigned(dtype) ? minus : x;
  if (fn == ANYHAL_UNARY_FN_SIGN) return is_unsigned(dtype) ? x != 0 : (x > 0) - (x < 0);
  if (fn == ANYHAL_UNARY_FN_SQUARE) return (int64_t)((uint64_t)x * (uint64_t)x);
  if (fn == ANYHAL_UNARY_FN_POSITIVE) return x;
  return dtype == ANYHAL_DTYPE_BOOL ? x == 0 : ~x; /* logical_not, bitwise_not */
}

refusal check_unary(const anyhal_plan* plan) {
  const uint32_t x = plan->t[0].dtype;
  const int32_t fn = plan->fn;
  if (fn < ANYHAL_UNARY_FN_NEG || fn > ANYHAL_UNARY_FN_SOFTPLUS)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "this function is unknown here");
  bool takes = is_float(x);
  if (fn <= ANYHAL_UNARY_FN_SIGN || fn == ANYHAL_UNARY_FN_SQUARE || fn == ANYHAL_UNARY_FN_POSITIVE)
    takes = is_number(x);
  if (fn == ANYHAL_UNARY_FN_LOGICAL_NOT) takes = x == ANYHAL_DTYPE_BOOL;
  if (fn == ANYHAL_UNARY_FN_BITWISE_NOT) takes = is_integer(x) || x == ANYHAL_DTYPE_BOOL;
  const bool asks = (fn >= ANYHAL_UNARY_FN_ISNAN && fn <= ANYHAL_UNARY_FN_ISFINITE) ||
                    fn == ANYHAL_UNARY_FN_SIGNBIT;
  if (!takes || plan->t[1].dtype != (asks ? (uint32_t)ANYHAL_DTYPE_BOOL : x)) return bad_dtype();
  return check_elementwise(plan, 2);
}

static void compute(const anyhal_plan* plan, lane* v, int64_t count) {
  const uint32_t x = plan->t[0].dtype;
  if (!is_float(x)) {
    for (int64_t i = 0; i < count; ++i) v[1].z[i] = of_integer(plan->fn, x, v[0].z[i]);
  } else if (is_float(plan->t[1].dtype)) {
    for (int64_t i = 0; i < count; ++i) v[1].f[i] = functions[plan->fn](v[0].f[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) v[1].z[i] = functions[plan->fn](v[0].f[i]) != 0;
  }
}

RUN(unary) {
  (void)workspace, (void)error;
  each_chunk(plan, data, compute);
  return ANYHAL_STATUS_OK;
}
