// unary: FN of each element of X; f16 and bf16 are computed in f32 and rounded once.
// SPDX-License-Identifier: Apache-2.0
typedef VALUE(X) T;

#ifdef FLOATS
T sigmoid(T x) {
  const T e = exp(-fabs(x));  // neither branch overflows
  return DIVIDE(x >= 0 ? (T)1 : e, (T)1 + e);
}
T gated(T x, T gate) { return x == (T)(-INFINITY) ? (T)(-0.0f) : x * gate; }

#define fn_neg(x) (-(x))
#define fn_abs(x) fabs(x)
#define fn_sign(x) ((x) > 0 ? (T)1 : (x) < 0 ? (T)(-1) : (x))
#define fn_exp(x) exp(x)
#define fn_expm1(x) expm1(x)
#define fn_log(x) log(x)
#define fn_log1p(x) log1p(x)
#define fn_sqrt(x) SQUARE_ROOT(x)
#define fn_rsqrt(x) DIVIDE((T)1, SQUARE_ROOT(x))
#define fn_reciprocal(x) DIVIDE((T)1, x)
#define fn_sin(x) sin(x)
#define fn_cos(x) cos(x)
#define fn_tanh(x) tanh(x)
#define fn_erf(x) erf(x)
#define fn_floor(x) floor(x)
#define fn_ceil(x) ceil(x)
#define fn_round(x) rint(x)
#define fn_trunc(x) trunc(x)
#define fn_isnan(x) ((x) != (x))
#define fn_isinf(x) (fabs(x) == (T)INFINITY)
#define fn_isfinite(x) (fabs(x) < (T)INFINITY)
#define fn_sigmoid(x) sigmoid(x)
#define fn_relu(x) ((x) < 0 ? (T)0 : (x))
#define fn_silu(x) gated(x, sigmoid(x))
// erfc keeps the digits of the negative tail, which 1 + erf would cancel.
#define fn_gelu(x) gated(x, erfc(-(x) * (T)0.70710678118654752440) / 2)
// x/2 (1 + tanh(u)) equals x sigmoid(2u), again without cancellation.
#define fn_gelu_tanh(x) \
  gated(x, sigmoid((T)1.5957691216057308 * ((x) + (T)0.044715 * (x) * (x) * (x))))
#define fn_tan(x) tan(x)
#define fn_asin(x) asin(x)
#define fn_acos(x) acos(x)
#define fn_atan(x) atan(x)
#define fn_sinh(x) sinh(x)
#define fn_cosh(x) cosh(x)
#define fn_asinh(x) asinh(x)
#define fn_acosh(x) acosh(x)
#define fn_atanh(x) atanh(x)
#define fn_log2(x) log2(x)
#define fn_log10(x) log10(x)
#define fn_exp2(x) exp2(x)
#define fn_square(x) ((x) * (x))
#define fn_positive(x) (x)
#define fn_signbit(x) (signbit(x) != 0)
#define fn_softplus(x) ((x) != (x) ? (x) : fmax(x, (T)0) + log1p(exp(-fabs(x))))
#else
// Unsigned numbers wrap where signed ones would overflow.
typedef UNSIGNED U;
#define fn_neg(x) ((T)((U)0 - (U)(x)))
#define fn_abs(x) ((x) < (T)0 ? (T)((U)0 - (U)(x)) : (x))
#define fn_sign(x) ((T)(((x) > (T)0) - ((x) < (T)0)))
#define fn_bitwise_not(x) ((T)~(x))
#define fn_logical_not(x) (!(x))
#define fn_square(x) ((T)((ulong)(x) * (ulong)(x)))
#define fn_positive(x) (x)
#endif

__kernel void unary(In x, ulong x_at, Out out, ulong out_at, const Walk walk, ulong count) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const T v = LOAD(X)(x + x_at, PLACE(walk, 0, i));
  STORE(Y)(out + out_at, PLACE(walk, 1, i), FN(v));
}
