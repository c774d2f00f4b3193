/* binary: one function of two elements; broadcasts are strides of 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "../dayone.h"

static bool is_comparison(int32_t fn) {
  return fn >= ANYHAL_BINARY_FN_EQUAL && fn <= ANYHAL_BINARY_FN_GREATER_EQUAL;
}

refusal check_binary(const anyhal_plan* plan) {
  const uint32_t a = plan->t[0].dtype, out = plan->t[2].dtype;
  const int32_t fn = plan->fn;
  if (fn < ANYHAL_BINARY_FN_ADD || fn > ANYHAL_BINARY_FN_SHIFT_RIGHT)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "this function is unknown here");
  bool takes = is_number(a);
  if (fn == ANYHAL_BINARY_FN_DIVIDE || fn == ANYHAL_BINARY_FN_ATAN2) takes = is_float(a);
  if (is_comparison(fn)) takes = is_plain(a);
  if (fn >= ANYHAL_BINARY_FN_LOGICAL_AND) takes = a == ANYHAL_DTYPE_BOOL;
  if (fn >= ANYHAL_BINARY_FN_BITWISE_AND) takes = is_integer(a) || a == ANYHAL_DTYPE_BOOL;
  if (fn >= ANYHAL_BINARY_FN_SHIFT_LEFT) takes = is_integer(a);
  if (!takes || plan->t[1].dtype != a ||
      out != (is_comparison(fn) ? (uint32_t)ANYHAL_DTYPE_BOOL : a))
    return bad_dtype();
  return check_elementwise(plan, 3);
}

static double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double mod = fmod(a, b);
  double quotient = (a - mod) / b; /* an integer but for rounding */
  if (mod != 0 && (mod < 0) != (b < 0)) quotient -= 1;
  return quotient == 0 ? copysign(0, a / b) : nearbyint(quotient);
}

static double remainder_of(double a, double b) {
  const double mod = fmod(a, b);
  if (mod == 0) return copysign(0, b);
  return (mod < 0) != (b < 0) ? mod + b : mod;
}

/* The result replaces x; comparisons give 0 or 1. */
#define EACH(EXPRESSION)                \
  for (int64_t i = 0; i < count; ++i) { \
    const double a = x[i], b = y[i];    \
    x[i] = EXPRESSION;                  \
  }                                     \
  return

static void binary_f64(int32_t fn, double* x, const double* y, int64_t count) {
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      EACH(a + b);
    case ANYHAL_BINARY_FN_SUBTRACT:
      EACH(a - b);
    case ANYHAL_BINARY_FN_MULTIPLY:
      EACH(a * b);
    case ANYHAL_BINARY_FN_DIVIDE:
      EACH(a / b);
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      EACH(floor_divide(a, b));
    case ANYHAL_BINARY_FN_REMAINDER:
      EACH(remainder_of(a, b));
    case ANYHAL_BINARY_FN_POW:
      EACH(pow(a, b));
    case ANYHAL_BINARY_FN_MAXIMUM:
      EACH(a != a || a > b ? a : b);
    case ANYHAL_BINARY_FN_MINIMUM:
      EACH(a != a || a < b ? a : b);
    case ANYHAL_BINARY_FN_ATAN2:
      EACH(atan2(a, b));
    case ANYHAL_BINARY_FN_EQUAL:
      EACH(a == b);
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      EACH(a != b);
    case ANYHAL_BINARY_FN_LESS:
      EACH(a < b);
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      EACH(a <= b);
    case ANYHAL_BINARY_FN_GREATER:
      EACH(a > b);
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
      EACH(a >= b);
  }
}
#undef EACH

/* Integers wrap; x // 0 = x % 0 = 0; a negative power is the truncated real value. */
static int64_t int_pow(int64_t a, int64_t b, bool negative_power) {
  if (negative_power) return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;
  uint64_t result = 1, base = (uint64_t)a;
  for (uint64_t n = (uint64_t)b; n != 0; n >>= 1, base *= base) {
    if (n & 1) result *= base;
  }
  return (int64_t)result;
}

static int64_t signed_one(int32_t fn, int64_t a, int64_t b) {
  switch (fn) {
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE: /* dividing by -1 negates, where the processor may trap */
      if (b == 0 || b == -1) return b == 0 ? 0 : (int64_t)(0 - (uint64_t)a);
      return a / b - (a % b != 0 && (a < 0) != (b < 0));
    case ANYHAL_BINARY_FN_REMAINDER:
      if (b == 0 || b == -1) return 0;
      return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    case ANYHAL_BINARY_FN_POW:
      return int_pow(a, b, b < 0);
    case ANYHAL_BINARY_FN_MAXIMUM:
      return a > b ? a : b;
    case ANYHAL_BINARY_FN_MINIMUM:
      return a < b ? a : b;
    case ANYHAL_BINARY_FN_LESS:
      return a < b;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return a <= b;
    case ANYHAL_BINARY_FN_GREATER:
      return a > b;
    default:
      return a >= b;
  }
}

static int64_t unsigned_one(int32_t fn, uint64_t a, uint64_t b) {
  switch (fn) {
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return b == 0 ? 0 : (int64_t)(a / b);
    case ANYHAL_BINARY_FN_REMAINDER:
      return b == 0 ? 0 : (int64_t)(a % b);
    case ANYHAL_BINARY_FN_POW:
      return int_pow((int64_t)a, (int64_t)b, false);
    case ANYHAL_BINARY_FN_MAXIMUM:
      return (int64_t)(a > b ? a : b);
    case ANYHAL_BINARY_FN_MINIMUM:
      return (int64_t)(a < b ? a : b);
    case ANYHAL_BINARY_FN_LESS:
      return a < b;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return a <= b;
    case ANYHAL_BINARY_FN_GREATER:
      return a > b;
    default:
      return a >= b;
  }
}

static int64_t int_one(int32_t fn, uint32_t dtype, int64_t a, int64_t b) {
  const uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
  const uint64_t width = 8 * element_bytes(dtype); /* a negative shift is past it, too */
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return (int64_t)(ua + ub);
    case ANYHAL_BINARY_FN_SUBTRACT:
      return (int64_t)(ua - ub);
    case ANYHAL_BINARY_FN_MULTIPLY:
      return (int64_t)(ua * ub);
    case ANYHAL_BINARY_FN_EQUAL:
      return a == b;
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      return a != b;
    case ANYHAL_BINARY_FN_LOGICAL_AND:
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return a & b; /* booleans are 0 or 1 when loaded */
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return a | b;
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return a ^ b;
    case ANYHAL_BINARY_FN_SHIFT_LEFT:
      return ub >= width ? 0 : (int64_t)(ua << ub);
    case ANYHAL_BINARY_FN_SHIFT_RIGHT:
      if (is_unsigned(dtype)) return ub >= width ? 0 : (int64_t)(ua >> ub);
      return ub >= width ? -(a < 0) : a >> ub;
    default:
      return is_unsigned(dtype) ? unsigned_one(fn, ua, ub) : signed_one(fn, a, b);
  }
}

anyhal_status run_binary(const anyhal_plan* plan, char* const* data, char* workspace,
                         anyhal_error* error) {
  (void)workspace, (void)error;
  const tensor* t = plan->t;
  const uint32_t dtype = t[0].dtype, out = t[2].dtype;
  const int64_t bytes = element_bytes(dtype);
  nest n = nest_of((const tensor*[]){&t[0], &t[1], &t[2]}, data, 3);
  if (n.empty) return ANYHAL_STATUS_OK;
  do {
    for (int64_t i = 0; i < n.row; i += CHUNK) {
      double x[CHUNK], y[CHUNK];
      int64_t a[CHUNK], b[CHUNK];
      const int64_t count = least(CHUNK, n.row - i), *s = n.row_strides;
      char* to = n.p[2] + i * s[2] * element_bytes(out);
      if (is_float(dtype)) {
        load_f64(dtype, n.p[0] + i * s[0] * bytes, s[0], count, x);
        load_f64(dtype, n.p[1] + i * s[1] * bytes, s[1], count, y);
        binary_f64(plan->fn, x, y, count);
        for (int64_t j = 0; j < count && !is_float(out); ++j) a[j] = (int64_t)x[j];
      } else {
        load_i64(dtype, n.p[0] + i * s[0] * bytes, s[0], count, a);
        load_i64(dtype, n.p[1] + i * s[1] * bytes, s[1], count, b);
        for (int64_t j = 0; j < count; ++j) a[j] = int_one(plan->fn, dtype, a[j], b[j]);
      }
      if (is_float(out)) {
        store_f64(out, to, s[2], count, x);
      } else {
        store_i64(out, to, s[2], count, a);
      }
    }
  } while (nest_next(&n));
  return ANYHAL_STATUS_OK;
}
