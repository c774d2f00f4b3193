// binary: FN of two elements of X; broadcasts are strides of 0. Integers wrap.
// SPDX-License-Identifier: Apache-2.0
typedef VALUE(X) T;

#define fn_equal(x, y) ((x) == (y))
#define fn_not_equal(x, y) ((x) != (y))
#define fn_less(x, y) ((x) < (y))
#define fn_less_equal(x, y) ((x) <= (y))
#define fn_greater(x, y) ((x) > (y))
#define fn_greater_equal(x, y) ((x) >= (y))

#if defined(FLOATS)
// Quotient and logarithm are formed in f64 where there is one, and rounded once.
#ifdef DOUBLES
typedef double Wide;
#else
typedef float Wide;
#endif

T floor_quotient(T a, T b) {
  const Wide x = a, y = b;
  if (y == 0) return (T)(x / y);
  const Wide rest = fmod(x, y);  // exact
  Wide quotient = (x - rest) / y;
  if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
  if (quotient == 0) return (T)copysign((Wide)0, x / y);
  return (T)rint(quotient);
}
T floor_rest(T a, T b) {
  const Wide y = b, rest = fmod((Wide)a, y);
  if (rest == 0) return (T)copysign((Wide)0, y);
  return (T)((rest < 0) != (y < 0) ? rest + y : rest);
}
T log_sum(T a, T b) {
  const Wide x = a, y = b;
  if (x == y) return (T)(x + (Wide)0.69314718055994530942);  // equal infinities too
  if (x != x || y != y) return (T)(x + y);
  return (T)(fmax(x, y) + log1p(exp(-fabs(x - y))));
}

#define fn_add(x, y) ((x) + (y))
#define fn_subtract(x, y) ((x) - (y))
#define fn_multiply(x, y) ((x) * (y))
#define fn_divide(x, y) DIVIDE(x, y)
#define fn_floor_divide(x, y) floor_quotient(x, y)
#define fn_remainder(x, y) floor_rest(x, y)
#define fn_pow(x, y) pow(x, y)
#define fn_maximum(x, y) ((x) != (x) || (x) > (y) ? (x) : (y))
#define fn_minimum(x, y) ((x) != (x) || (x) < (y) ? (x) : (y))
#define fn_atan2(x, y) atan2(x, y)
#define fn_logaddexp(x, y) log_sum(x, y)
#define fn_copysign(x, y) copysign(x, y)
#define fn_hypot(x, y) hypot(x, y)

#elif defined(TRUTHS)
#define fn_logical_and(x, y) ((x) & (y))
#define fn_logical_or(x, y) ((x) | (y))
#define fn_logical_xor(x, y) ((x) ^ (y))
#define fn_bitwise_and(x, y) ((x) & (y))
#define fn_bitwise_or(x, y) ((x) | (y))
#define fn_bitwise_xor(x, y) ((x) ^ (y))

#else
typedef UNSIGNED U;
#define BITS (8 * sizeof(T))
#define NEGATIVE(x) ((x) < (T)0)

// Division by -1 is a negation, which wraps where x / -1 would trap.
T floor_quotient(T a, T b) {
  if (b == 0) return 0;
  if (NEGATIVE(b) && b == (T)(-1)) return (T)((U)0 - (U)a);
  return (T)(a / b - (a % b != 0 && NEGATIVE(a) != NEGATIVE(b) ? 1 : 0));
}
T floor_rest(T a, T b) {
  if (b == 0 || (NEGATIVE(b) && b == (T)(-1))) return 0;
  const T rest = (T)(a % b);
  return (T)(rest != 0 && NEGATIVE(rest) != NEGATIVE(b) ? rest + b : rest);
}
// Products wrap; a negative power is the truncated real value.
T int_power(T a, T b) {
  if (NEGATIVE(b)) {
    if (a == 1) return 1;
    if (a != (T)(-1)) return 0;
    return b % 2 == 0 ? (T)1 : (T)(-1);
  }
  ulong result = 1, base = (ulong)a;
  for (ulong n = (ulong)b; n != 0; n >>= 1) {
    if (n & 1) result *= base;
    base *= base;
  }
  return (T)result;
}
// A negative shift is, as an unsigned number, past the width like any other.
bool past_width(T shift) { return (ulong)shift >= BITS; }

#define fn_add(x, y) ((T)((U)(x) + (U)(y)))
#define fn_subtract(x, y) ((T)((U)(x) - (U)(y)))
#define fn_multiply(x, y) ((T)((ulong)(x) * (ulong)(y)))
#define fn_floor_divide(x, y) floor_quotient(x, y)
#define fn_remainder(x, y) floor_rest(x, y)
#define fn_pow(x, y) int_power(x, y)
#define fn_maximum(x, y) ((x) > (y) ? (x) : (y))
#define fn_minimum(x, y) ((x) < (y) ? (x) : (y))
#define fn_bitwise_and(x, y) ((T)((x) & (y)))
#define fn_bitwise_or(x, y) ((T)((x) | (y)))
#define fn_bitwise_xor(x, y) ((T)((x) ^ (y)))
#define fn_shift_left(x, y) (past_width(y) ? (T)0 : (T)((ulong)(U)(x) << (ulong)(y)))
#define fn_shift_right(x, y) (past_width(y) ? (T)(NEGATIVE(x) ? -1 : 0) : (T)((x) >> (y)))
#endif

#ifdef NEIGHBOUR
// nextafter in the stored format: its bits, read as a number without the sign, are in the order of
// the magnitudes.
typedef UNSIGNED U;
__kernel void binary(In a, ulong a_at, In b, ulong b_at, Out out, ulong out_at, const Walk walk,
                     ulong count) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const long at_a = PLACE(walk, 0, i), at_b = PLACE(walk, 1, i);
  const T x = LOAD(X)(a + a_at, at_a), y = LOAD(X)(b + b_at, at_b);
  const U bits_a = ((__global const U*)(a + a_at))[at_a];
  const U bits_b = ((__global const U*)(b + b_at))[at_b];
  const U sign = (U)((U)1 << (8 * sizeof(U) - 1));
  U bits = x != x ? bits_a : bits_b;  // NaN, or b where they are equal
  if (x == x && y == y && x != y) {
    if (x == 0) {
      bits = (U)((bits_b & sign) | 1);
    } else {
      bits = (U)((x < y) == (x > 0) ? bits_a + 1 : bits_a - 1);
    }
  }
  ((__global U*)(out + out_at))[PLACE(walk, 2, i)] = bits;
}
#else
__kernel void binary(In a, ulong a_at, In b, ulong b_at, Out out, ulong out_at, const Walk walk,
                     ulong count) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const T x = LOAD(X)(a + a_at, PLACE(walk, 0, i));
  const T y = LOAD(X)(b + b_at, PLACE(walk, 1, i));
  STORE(Y)(out + out_at, PLACE(walk, 2, i), FN(x, y));
}
#endif
