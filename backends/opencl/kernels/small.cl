// 8-bit floats: their values are exact in f32. SATURATES says what lies past the largest.
// SPDX-License-Identifier: Apache-2.0
#ifdef SATURATES
#define KEEPS_LARGEST true
#else
#define KEEPS_LARGEST false
#endif

float small_value(int code, int digits, int bias, int largest, int infinite, bool fnuz) {
  const int size = code & 0x7f;
  if (size > largest || (fnuz && code == 0x80))
    return infinite != 0 && size == infinite ? (code & 0x80 ? -INFINITY : INFINITY) : NAN;
  const int exponent = size >> digits, fraction = size & ((1 << digits) - 1);
  const int units = exponent == 0 ? fraction : fraction | 1 << digits;
  const float value = ldexp((float)units, (exponent == 0 ? 1 : exponent) - bias - digits);
  return code & 0x80 ? -value : value;
}

// The nearest code, ties to even.
uchar small_code(float v, int digits, int bias, int largest, int infinite, bool fnuz) {
  const int nan = fnuz ? 0x80 : 0x7f;
  if (v != v) return (uchar)nan;
  const float size = fabs(v);
  int code = 0x80;  // past every format's largest
  if (size < 0x1p17f) {
    int exponent = size > 0 ? ilogb(size) : 1 - bias;
    if (exponent < 1 - bias) exponent = 1 - bias;
    // Units of the last place; what rounds up to the next binade carries into the exponent.
    const int units = (int)rint(ldexp(size, digits - exponent));
    code = ((exponent + bias - 1) << digits) + units;
  }
  if (code > largest) {
    if (!KEEPS_LARGEST && infinite == 0) return (uchar)nan;
    code = KEEPS_LARGEST ? largest : infinite;
  }
  if (fnuz && code == 0) return 0;
  return (uchar)(code | (signbit(v) ? 0x80 : 0));
}

#define SMALL_FLOAT(D, digits, bias, largest, infinite, fnuz)                          \
  typedef float value_##D;                                                             \
  float load_##D(In p, long i) {                                                       \
    return small_value(p[i], digits, bias, largest, infinite, fnuz);                   \
  }                                                                                    \
  void store_##D(Out p, long i, float v) {                                             \
    p[i] = small_code(v, digits, bias, largest, infinite, fnuz);                       \
  }
SMALL_FLOAT(F8_E4M3FN, 3, 7, 0x7e, 0, false)
SMALL_FLOAT(F8_E5M2, 2, 15, 0x7b, 0x7c, false)
SMALL_FLOAT(F8_E4M3FNUZ, 3, 8, 0x7f, 0, true)
SMALL_FLOAT(F8_E5M2FNUZ, 2, 16, 0x7f, 0, true)
