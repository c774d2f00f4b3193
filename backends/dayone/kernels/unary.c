/* unary: one function of each element.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "../dayone.h"

static bool is_predicate(int32_t fn) {
  return fn >= ANYHAL_UNARY_FN_ISNAN && fn <= ANYHAL_UNARY_FN_ISFINITE;
}

refusal check_unary(const anyhal_plan* plan) {
  const uint32_t x = plan->t[0].dtype, out = plan->t[1].dtype;
  const int32_t fn = plan->fn;
  if (fn < ANYHAL_UNARY_FN_NEG || fn > ANYHAL_UNARY_FN_GELU_TANH)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "this function is unknown here");
  bool takes = is_float(x);
  if (fn <= ANYHAL_UNARY_FN_SIGN) takes = is_number(x);
  if (fn == ANYHAL_UNARY_FN_LOGICAL_NOT) takes = x == ANYHAL_DTYPE_BOOL;
  if (fn == ANYHAL_UNARY_FN_BITWISE_NOT) takes = is_integer(x) || x == ANYHAL_DTYPE_BOOL;
  if (!takes || out != (is_predicate(fn) ? (uint32_t)ANYHAL_DTYPE_BOOL : x)) return bad_dtype();
  return check_elementwise(plan, 2);
}

/* Neither branch overflows. */
static double sigmoid(double x) {
  const double e = exp(-fabs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* x * gate, with the limit -0 at -infinity instead of NaN. */
static double gated(double x, double gate) { return x == -HUGE_VAL ? -0.0 : x * gate; }

static double gelu_tanh(double x) { /* x/2 (1 + tanh u) = x sigmoid(2u) */
  return gated(x, sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

#define EACH(EXPRESSION)                \
  for (int64_t i = 0; i < count; ++i) { \
    const double x = v[i];              \
    v[i] = EXPRESSION;                  \
  }                                     \
  return

static void unary_f64(int32_t fn, double* v, int64_t count) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      EACH(-x);
    case ANYHAL_UNARY_FN_ABS:
      EACH(fabs(x));
    case ANYHAL_UNARY_FN_SIGN:
      EACH(x > 0 ? 1 : x < 0 ? -1 : x);
    case ANYHAL_UNARY_FN_EXP:
      EACH(exp(x));
    case ANYHAL_UNARY_FN_EXPM1:
      EACH(expm1(x));
    case ANYHAL_UNARY_FN_LOG:
      EACH(log(x));
    case ANYHAL_UNARY_FN_LOG1P:
      EACH(log1p(x));
    case ANYHAL_UNARY_FN_SQRT:
      EACH(sqrt(x));
    case ANYHAL_UNARY_FN_RSQRT:
      EACH(1 / sqrt(x));
    case ANYHAL_UNARY_FN_RECIPROCAL:
      EACH(1 / x);
    case ANYHAL_UNARY_FN_SIN:
      EACH(sin(x));
    case ANYHAL_UNARY_FN_COS:
      EACH(cos(x));
    case ANYHAL_UNARY_FN_TANH:
      EACH(tanh(x));
    case ANYHAL_UNARY_FN_ERF:
      EACH(erf(x));
    case ANYHAL_UNARY_FN_FLOOR:
      EACH(floor(x));
    case ANYHAL_UNARY_FN_CEIL:
      EACH(ceil(x));
    case ANYHAL_UNARY_FN_ROUND:
      EACH(nearbyint(x));
    case ANYHAL_UNARY_FN_TRUNC:
      EACH(trunc(x));
    case ANYHAL_UNARY_FN_ISNAN:
      EACH(isnan(x) != 0);
    case ANYHAL_UNARY_FN_ISINF:
      EACH(isinf(x) != 0);
    case ANYHAL_UNARY_FN_ISFINITE:
      EACH(isfinite(x) != 0);
    case ANYHAL_UNARY_FN_SIGMOID:
      EACH(sigmoid(x));
    case ANYHAL_UNARY_FN_RELU:
      EACH(x < 0 ? 0 : x);
    case ANYHAL_UNARY_FN_SILU:
      EACH(gated(x, sigmoid(x)));
    case ANYHAL_UNARY_FN_GELU:
      EACH(gated(x, erfc(-x * 0.70710678118654752440) / 2));
    case ANYHAL_UNARY_FN_GELU_TANH:
      EACH(gelu_tanh(x));
  }
}
#undef EACH

static void unary_i64(int32_t fn, bool unsigned_value, bool boolean, int64_t* v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t x = v[i], minus = (int64_t)(0 - (uint64_t)x);
    switch (fn) {
      case ANYHAL_UNARY_FN_NEG:
        v[i] = minus;
        break;
      case ANYHAL_UNARY_FN_ABS:
        v[i] = x < 0 && !unsigned_value ? minus : x;
        break;
      case ANYHAL_UNARY_FN_SIGN:
        v[i] = unsigned_value ? x != 0 : (x > 0) - (x < 0);
        break;
      default:
        v[i] = boolean ? x == 0 : ~x;
        break; /* logical_not, bitwise_not */
    }
  }
}

anyhal_status run_unary(const anyhal_plan* plan, char* const* data, char* workspace,
                        anyhal_error* error) {
  (void)workspace, (void)error;
  const uint32_t x = plan->t[0].dtype, out = plan->t[1].dtype;
  nest n = nest_of((const tensor*[]){&plan->t[0], &plan->t[1]}, data, 2);
  if (n.empty) return ANYHAL_STATUS_OK;
  do {
    for (int64_t i = 0; i < n.row; i += CHUNK) {
      double f[CHUNK];
      int64_t z[CHUNK];
      const int64_t count = least(CHUNK, n.row - i);
      const char* from = n.p[0] + i * n.row_strides[0] * element_bytes(x);
      char* to = n.p[1] + i * n.row_strides[1] * element_bytes(out);
      if (is_float(x)) {
        load_f64(x, from, n.row_strides[0], count, f);
        unary_f64(plan->fn, f, count);
        for (int64_t j = 0; j < count && !is_float(out); ++j) z[j] = (int64_t)f[j];
      } else {
        load_i64(x, from, n.row_strides[0], count, z);
        unary_i64(plan->fn, is_unsigned(x), x == ANYHAL_DTYPE_BOOL, z, count);
      }
      if (is_float(out)) {
        store_f64(out, to, n.row_strides[1], count, f);
      } else {
        store_i64(out, to, n.row_strides[1], count, z);
      }
    }
  } while (nest_next(&n));
  return ANYHAL_STATUS_OK;
}
