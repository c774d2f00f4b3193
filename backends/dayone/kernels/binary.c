/* binary: one function of two elements; broadcasts are strides of 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "../dayone.h"

/* ---- of floats; comparisons give 0 or 1 ---- */

static double add(double a, double b) { return a + b; }
static double subtract(double a, double b) { return a - b; }
static double multiply(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double maximum(double a, double b) { return a != a || a > b ? a : b; } /* NaN wins */
static double minimum(double a, double b) { return a != a || a < b ? a : b; }
static double equal(double a, double b) { return a == b; }
static double not_equal(double a, double b) { return a != b; }
static double less(double a, double b) { return a < b; }
static double less_equal(double a, double b) { return a <= b; }
static double greater(double a, double b) { return a > b; }
static double greater_equal(double a, double b) { return a >= b; }

static double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double mod = fmod(a, b);
  double quotient = (a - mod) / b; /* an integer but for rounding */
  if (mod != 0 && (mod < 0) != (b < 0)) quotient -= 1;
  return quotient == 0 ? copysign(0, a / b) : nearbyint(quotient);
}

static double modulo(double a, double b) { /* with the sign of b */
  const double mod = fmod(a, b);
  if (mod == 0) return copysign(0, b);
  return (mod < 0) != (b < 0) ? mod + b : mod;
}

static double logaddexp(double a, double b) {
  if (a == b) return a + 0.69314718055994530942; /* equal infinities too */
  if (a != a || b != b) return a + b;
  return maximum(a, b) + log1p(exp(-fabs(a - b)));
}

static double (*const functions[])(double, double) = {
    [ANYHAL_BINARY_FN_ADD] = add,
    [ANYHAL_BINARY_FN_SUBTRACT] = subtract,
    [ANYHAL_BINARY_FN_MULTIPLY] = multiply,
    [ANYHAL_BINARY_FN_DIVIDE] = divide,
    [ANYHAL_BINARY_FN_FLOOR_DIVIDE] = floor_divide,
    [ANYHAL_BINARY_FN_REMAINDER] = modulo,
    [ANYHAL_BINARY_FN_POW] = pow,
    [ANYHAL_BINARY_FN_MAXIMUM] = maximum,
    [ANYHAL_BINARY_FN_MINIMUM] = minimum,
    [ANYHAL_BINARY_FN_ATAN2] = atan2,
    [ANYHAL_BINARY_FN_EQUAL] = equal,
    [ANYHAL_BINARY_FN_NOT_EQUAL] = not_equal,
    [ANYHAL_BINARY_FN_LESS] = less,
    [ANYHAL_BINARY_FN_LESS_EQUAL] = less_equal,
    [ANYHAL_BINARY_FN_GREATER] = greater,
    [ANYHAL_BINARY_FN_GREATER_EQUAL] = greater_equal,
    [ANYHAL_BINARY_FN_LOGADDEXP] = logaddexp,
    [ANYHAL_BINARY_FN_COPYSIGN] = copysign,
    [ANYHAL_BINARY_FN_HYPOT] = hypot,
};

/* The neighbour of a towards b among the numbers of a dtype: one unit of a's last place away. */
static double neighbour(uint32_t dtype, double a, double b) {
  if (a != a || b != b) return a + b;
  if (a == b) return b;
  if (dtype == ANYHAL_DTYPE_F64) return nextafter(a, b);
  if (dtype == ANYHAL_DTYPE_F32) return (double)nextafterf((float)a, (float)b);
  const bool f16 = dtype == ANYHAL_DTYPE_F16;                 /* else bf16 */
  const int digits = f16 ? 11 : 8, lowest = f16 ? -24 : -133; /* of the smallest subnormal */
  const double largest = f16 ? 65504 : 0x1.fep127;
  if (fabs(a) == HUGE_VAL) return copysign(largest, a);
  const bool grows = a == 0 || (a < b) == (a > 0);
  int exponent;
  if (frexp(fabs(a), &exponent) == 0.5 && !grows) --exponent; /* below a power of two */
  const int place = a == 0 || exponent - digits < lowest ? lowest : exponent - digits;
  const double result = grows ? fabs(a) + ldexp(1, place) : fabs(a) - ldexp(1, place);
  return copysign(result > largest ? HUGE_VAL : result, a == 0 ? b : a);
}

/* ---- of integers, which wrap; x // 0 = x % 0 = 0 ---- */

static int64_t quotient(bool is_signed, int64_t a, int64_t b) { /* rounded down */
  if (b == 0) return 0;
  if (!is_signed) return (int64_t)((uint64_t)a / (uint64_t)b);
  if (b == -1) return (int64_t)(0 - (uint64_t)a); /* where the processor may trap */
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t power(bool is_signed, int64_t a, int64_t b) {
  if (is_signed && b < 0) /* the truncated real value */
    return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;
  uint64_t result = 1, base = (uint64_t)a;
  for (uint64_t n = (uint64_t)b; n != 0; n >>= 1, base *= base) {
    if (n & 1) result *= base;
  }
  return (int64_t)result;
}

/* A shift by the width or more gives 0 or the sign; a negative one, read as unsigned, is one. */
static int64_t shifted(bool is_signed, bool left, uint64_t width, int64_t a, uint64_t b) {
  if (left) return b >= width ? 0 : (int64_t)((uint64_t)a << b);
  if (!is_signed) return b >= width ? 0 : (int64_t)((uint64_t)a >> b);
  return b >= width ? -(a < 0) : a >> b;
}

static int64_t of_integers(int32_t fn, uint32_t dtype, int64_t a, int64_t b) {
  const uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
  const bool is_signed = !is_unsigned(dtype);
  const bool below = is_signed ? a < b : ua < ub;
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return (int64_t)(ua + ub);
    case ANYHAL_BINARY_FN_SUBTRACT:
      return (int64_t)(ua - ub);
    case ANYHAL_BINARY_FN_MULTIPLY:
      return (int64_t)(ua * ub);
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return quotient(is_signed, a, b);
    case ANYHAL_BINARY_FN_REMAINDER:
      return b == 0 ? 0 : (int64_t)(ua - (uint64_t)quotient(is_signed, a, b) * ub);
    case ANYHAL_BINARY_FN_POW:
      return power(is_signed, a, b);
    case ANYHAL_BINARY_FN_MAXIMUM:
      return below ? b : a;
    case ANYHAL_BINARY_FN_MINIMUM:
      return below ? a : b;
    case ANYHAL_BINARY_FN_EQUAL:
      return a == b;
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      return a != b;
    case ANYHAL_BINARY_FN_LESS:
      return below;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return below || a == b;
    case ANYHAL_BINARY_FN_GREATER:
      return !below && a != b;
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
      return !below;
    case ANYHAL_BINARY_FN_LOGICAL_AND: /* booleans are 0 or 1 when loaded */
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return a & b;
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return a | b;
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return a ^ b;
    default:
      return shifted(is_signed, fn == ANYHAL_BINARY_FN_SHIFT_LEFT, 8 * element_bytes(dtype), a, ub);
  }
}

refusal check_binary(const anyhal_plan* plan) {
  const uint32_t a = plan->t[0].dtype;
  const int32_t fn = plan->fn;
  if (fn < ANYHAL_BINARY_FN_ADD || fn > ANYHAL_BINARY_FN_HYPOT)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "this function is unknown here");
  const bool compares = fn >= ANYHAL_BINARY_FN_EQUAL && fn <= ANYHAL_BINARY_FN_GREATER_EQUAL;
  bool takes = compares ? is_plain(a) : is_number(a);
  if (fn == ANYHAL_BINARY_FN_DIVIDE || fn == ANYHAL_BINARY_FN_ATAN2) takes = is_float(a);
  if (fn >= ANYHAL_BINARY_FN_LOGICAL_AND) takes = a == ANYHAL_DTYPE_BOOL;
  if (fn >= ANYHAL_BINARY_FN_BITWISE_AND) takes = is_integer(a) || a == ANYHAL_DTYPE_BOOL;
  if (fn >= ANYHAL_BINARY_FN_SHIFT_LEFT) takes = is_integer(a);
  if (fn >= ANYHAL_BINARY_FN_LOGADDEXP) takes = is_float(a);
  if (!takes || plan->t[1].dtype != a ||
      plan->t[2].dtype != (compares ? (uint32_t)ANYHAL_DTYPE_BOOL : a))
    return bad_dtype();
  return check_elementwise(plan, 3);
}

static void compute(const anyhal_plan* plan, lane* v, int64_t count) {
  const uint32_t dtype = plan->t[0].dtype;
  const int32_t fn = plan->fn;
  if (!is_float(dtype)) {
    for (int64_t i = 0; i < count; ++i) v[2].z[i] = of_integers(fn, dtype, v[0].z[i], v[1].z[i]);
  } else if (fn == ANYHAL_BINARY_FN_NEXTAFTER) {
    for (int64_t i = 0; i < count; ++i) v[2].f[i] = neighbour(dtype, v[0].f[i], v[1].f[i]);
  } else if (is_float(plan->t[2].dtype)) {
    for (int64_t i = 0; i < count; ++i) v[2].f[i] = functions[fn](v[0].f[i], v[1].f[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) v[2].z[i] = functions[fn](v[0].f[i], v[1].f[i]) != 0;
  }
}

RUN(binary) {
  (void)workspace, (void)error;
  each_chunk(plan, data, compute);
  return ANYHAL_STATUS_OK;
}
