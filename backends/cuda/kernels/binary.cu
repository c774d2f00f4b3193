// binary: one function of two elements; broadcasts are strides of 0.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

// ------------------------------------------------------- of floats; comparisons give 0 or 1

HAL_DEVICE double maximum(double a, double b) { return a != a || a > b ? a : b; }  // NaN wins
HAL_DEVICE double minimum(double a, double b) { return a != a || a < b ? a : b; }

HAL_DEVICE double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double mod = fmod(a, b);
  double quotient = (a - mod) / b;  // an integer but for rounding
  if (mod != 0 && (mod < 0) != (b < 0)) quotient -= 1;
  return quotient == 0 ? copysign(0.0, a / b) : rint(quotient);
}
HAL_DEVICE double modulo(double a, double b) {  // with the sign of b
  const double mod = fmod(a, b);
  if (mod == 0) return copysign(0.0, b);
  return (mod < 0) != (b < 0) ? mod + b : mod;
}
HAL_DEVICE double logaddexp(double a, double b) {
  if (a == b) return a + 0.69314718055994530942;  // equal infinities too
  if (a != a || b != b) return a + b;
  return maximum(a, b) + log1p(exp(-fabs(a - b)));
}

// The neighbour of a towards b among the numbers of a dtype: one unit of a's last place away.
HAL_DEVICE double neighbour(int dtype, double a, double b) {
  if (a != a || b != b) return a + b;
  if (a == b) return b;
  if (dtype == kF64) return nextafter(a, b);
  if (dtype == kF32) return (double)nextafterf((float)a, (float)b);
  const bool half = dtype == kF16;                               // else bf16
  const int digits = half ? 11 : 8, lowest = half ? -24 : -133;  // of the smallest subnormal
  const double largest = half ? 65504 : 338953138925153547590470800371487866880.0;
  if (fabs(a) > 1.7976931348623157e308) return copysign(largest, a);
  const bool grows = a == 0 || (a < b) == (a > 0);
  int exponent;
  if (frexp(fabs(a), &exponent) == 0.5 && !grows) --exponent;  // below a power of two
  const int place = a == 0 || exponent - digits < lowest ? lowest : exponent - digits;
  const double result = grows ? fabs(a) + ldexp(1.0, place) : fabs(a) - ldexp(1.0, place);
  return copysign(result > largest ? largest * 1e300 : result, a == 0 ? b : a);
}

HAL_DEVICE double of_floats(int fn, int dtype, double a, double b) {
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return a + b;
    case ANYHAL_BINARY_FN_SUBTRACT:
      return a - b;
    case ANYHAL_BINARY_FN_MULTIPLY:
      return a * b;
    case ANYHAL_BINARY_FN_DIVIDE:
      return a / b;
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return floor_divide(a, b);
    case ANYHAL_BINARY_FN_REMAINDER:
      return modulo(a, b);
    case ANYHAL_BINARY_FN_POW:
      return pow(a, b);
    case ANYHAL_BINARY_FN_MAXIMUM:
      return maximum(a, b);
    case ANYHAL_BINARY_FN_MINIMUM:
      return minimum(a, b);
    case ANYHAL_BINARY_FN_ATAN2:
      return atan2(a, b);
    case ANYHAL_BINARY_FN_EQUAL:
      return a == b;
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      return a != b;
    case ANYHAL_BINARY_FN_LESS:
      return a < b;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return a <= b;
    case ANYHAL_BINARY_FN_GREATER:
      return a > b;
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
      return a >= b;
    case ANYHAL_BINARY_FN_LOGADDEXP:
      return logaddexp(a, b);
    case ANYHAL_BINARY_FN_COPYSIGN:
      return copysign(a, b);
    case ANYHAL_BINARY_FN_NEXTAFTER:
      return neighbour(dtype, a, b);
    default:
      return hypot(a, b);
  }
}

// ------------------------------------------------ of integers, which wrap; x // 0 = x % 0 = 0

HAL_DEVICE long long quotient(bool is_signed, long long a, long long b) {  // rounded down
  if (b == 0) return 0;
  if (!is_signed) return (long long)((unsigned long long)a / (unsigned long long)b);
  if (b == -1) return (long long)(0 - (unsigned long long)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
HAL_DEVICE long long power(bool is_signed, long long a, long long b) {
  if (is_signed && b < 0)  // the truncated real value
    return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;
  unsigned long long result = 1, base = (unsigned long long)a;
  for (unsigned long long n = (unsigned long long)b; n != 0; n >>= 1, base *= base) {
    if (n & 1) result *= base;
  }
  return (long long)result;
}
// A shift by the width or more gives 0 or the sign; a negative one, read as unsigned, is one.
HAL_DEVICE long long shifted(bool is_signed, bool left, int width, long long a,
                             unsigned long long b) {
  const bool far = b >= (unsigned long long)width;
  if (left) return far ? 0 : (long long)((unsigned long long)a << b);
  if (!is_signed) return far ? 0 : (long long)((unsigned long long)a >> b);
  return far ? -(a < 0) : a >> b;
}

HAL_DEVICE long long of_integers(int fn, int dtype, long long a, long long b) {
  const unsigned long long ua = (unsigned long long)a, ub = (unsigned long long)b;
  const bool is_signed = !is_unsigned(dtype), below = is_signed ? a < b : ua < ub;
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return (long long)(ua + ub);
    case ANYHAL_BINARY_FN_SUBTRACT:
      return (long long)(ua - ub);
    case ANYHAL_BINARY_FN_MULTIPLY:
      return (long long)(ua * ub);
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return quotient(is_signed, a, b);
    case ANYHAL_BINARY_FN_REMAINDER:
      return b == 0 ? 0 : (long long)(ua - (unsigned long long)quotient(is_signed, a, b) * ub);
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
    case ANYHAL_BINARY_FN_LOGICAL_AND:  // booleans are 0 or 1 when loaded
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return a & b;
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return a | b;
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return a ^ b;
    default:
      return shifted(is_signed, fn == ANYHAL_BINARY_FN_SHIFT_LEFT, bits_in(dtype), a, ub);
  }
}

HAL_KERNEL(anyhal_binary, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    if (!is_float(p.dtype)) {
      const long long a = load_int(p.dtype, data_of(p, 0), place.at[0]);
      const long long b = load_int(p.dtype, data_of(p, 1), place.at[1]);
      store_int(p.out_dtype, p.side[2].data, place.at[2], of_integers(p.fn, p.dtype, a, b));
      continue;
    }
    const double a = load_float(p.dtype, data_of(p, 0), place.at[0]);
    const double y = of_floats(p.fn, p.dtype, a, load_float(p.dtype, data_of(p, 1), place.at[1]));
    if (is_float(p.out_dtype)) {
      store_float(p.out_dtype, p.side[2].data, place.at[2], y);
    } else {
      store_int(p.out_dtype, p.side[2].data, place.at[2], y != 0);
    }
  }
}

}  // namespace hal::cuda
