/* 8-bit floats, packed 4-bit integers, and block formats: elements that share scales.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "dayone.h"

/* ---- 8-bit floats ---- */

typedef struct f8 {
  int digits; /* of the fraction */
  int bias;
  int largest;  /* code without the sign */
  int infinity; /* 0: there is none */
  bool fnuz;    /* the code of -0 is the only NaN */
} f8;

static f8 f8_format(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F8_E4M3FN:
      return (f8){3, 7, 0x7e, 0, false};
    case ANYHAL_DTYPE_F8_E5M2:
      return (f8){2, 15, 0x7b, 0x7c, false};
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
      return (f8){3, 8, 0x7f, 0, true};
    default:
      return (f8){2, 16, 0x7f, 0, true};
  }
}

double f8_value(uint32_t dtype, uint8_t code) {
  const f8 f = f8_format(dtype);
  const int size = code & 0x7f;
  double value;
  if (size > f.largest || (f.fnuz && code == 0x80)) {
    value = f.infinity != 0 && size == f.infinity ? HUGE_VAL : NAN;
  } else {
    const int exponent = size >> f.digits, fraction = size & ((1 << f.digits) - 1);
    value = exponent == 0 ? ldexp(fraction, 1 - f.bias - f.digits)
                          : ldexp(fraction + (1 << f.digits), exponent - f.bias - f.digits);
  }
  return code & 0x80 ? -value : value;
}

uint8_t f8_code(uint32_t dtype, double value, bool saturate) {
  const f8 f = f8_format(dtype);
  const int nan = f.fnuz ? 0x80 : 0x7f;
  if (value != value) return (uint8_t)nan;
  const double size = fabs(value);
  int code = 0x80; /* past every format's largest */
  if (size < 0x1p17) {
    int exponent = size > 0 ? ilogb(size) : 1 - f.bias;
    if (exponent < 1 - f.bias) exponent = 1 - f.bias;
    /* In units of the last place; rounding up to the next binade carries into the exponent. */
    code = ((exponent + f.bias - 1) << f.digits) + (int)nearbyint(ldexp(size, f.digits - exponent));
  }
  if (code > f.largest) {
    if (!saturate && f.infinity == 0) return (uint8_t)nan;
    code = saturate ? f.largest : f.infinity;
  }
  if (f.fnuz && code == 0) return 0;
  return (uint8_t)(code | (signbit(value) ? 0x80 : 0));
}

/* ---- packed integers: the first of a pair in the low nibble ---- */

void load_pairs(uint32_t dtype, const char* from, int64_t count, int64_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const int byte = (uint8_t)from[i / 2], nibble = i % 2 == 0 ? byte & 15 : byte >> 4;
    to[i] = dtype == ANYHAL_DTYPE_I4 ? (nibble ^ 8) - 8 : nibble;
  }
}

void store_pairs(char* to, int64_t count, const int64_t* from) {
  for (int64_t i = 0; i < count; i += 2)
    to[i / 2] = (char)((from[i] & 15) | (from[i + 1] & 15) << 4);
}

/* ---- block formats ---- */

static double half_at(const char* from) {
  uint16_t half;
  memcpy(&half, from, sizeof half);
  return half_to_float(half);
}

/* 8 groups of 32, each with a scale and a minimum of 6 bits: groups 0 to 3 have a byte each, 4 to 7
 * a nibble, and their upper two bits above those of 0 to 3. */
static void decode_q4_k(const char* from, double* to) {
  const double d = half_at(from), m = half_at(from + 2);
  const uint8_t *packed = (const uint8_t*)from + 4, *nibbles = packed + 12;
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
    const int minimum = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    for (int i = 0; i < 32; ++i) {
      const int byte = nibbles[g / 2 * 32 + i];
      to[32 * g + i] = d * scale * (g % 2 == 0 ? byte & 15 : byte >> 4) - m * minimum;
    }
  }
}

/* Two halves of 128; a quarter takes its nibbles from the low or the high side of 32 bytes. */
static void decode_q6_k(const char* from, double* to) {
  const uint8_t *low = (const uint8_t*)from, *upper = low + 128;
  const int8_t* scales = (const int8_t*)from + 192;
  const double d = half_at(from + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const int byte = low[64 * half + quarter % 2 * 32 + at];
    const int top = upper[32 * half + at] >> 2 * quarter & 3;
    to[i] = d * scales[i / 16] * (((quarter < 2 ? byte & 15 : byte >> 4) | top << 4) - 32);
  }
}

/* 32 nibbles: byte j holds element j and j + 16. */
static void decode_nibbles(const char* from, double scale, double minimum, double* to) {
  const uint8_t* nibbles = (const uint8_t*)from;
  for (int i = 0; i < 16; ++i) to[i] = scale * (nibbles[i] & 15) + minimum;
  for (int i = 0; i < 16; ++i) to[i + 16] = scale * (nibbles[i] >> 4) + minimum;
}

void decode_block(uint32_t dtype, const char* from, double* to) {
  const double scale = half_at(from);
  switch (dtype) {
    case ANYHAL_DTYPE_Q4_K:
      decode_q4_k(from, to);
      return;
    case ANYHAL_DTYPE_Q6_K:
      decode_q6_k(from, to);
      return;
    case ANYHAL_DTYPE_Q4_0:
      decode_nibbles(from + 2, scale, -8 * scale, to);
      return;
    case ANYHAL_DTYPE_Q4_1:
      decode_nibbles(from + 4, scale, half_at(from + 2), to);
      return;
    default: /* q8_0 */
      for (int i = 0; i < 32; ++i) to[i] = scale * ((const int8_t*)from)[2 + i];
      return;
  }
}

/* Straight to f32: what a language model spends its time on, so the two formats that need no more
 * digits than f32 has on the way get loops of their own. */
void decode_blocks(uint32_t dtype, const char* from, int64_t blocks, float* to) {
  const uint32_t bytes = element_bytes(dtype), size = block_elements(dtype);
  for (int64_t b = 0; b < blocks; ++b, from += bytes, to += size) {
    if (dtype == ANYHAL_DTYPE_Q8_0) {
      const float scale = (float)half_at(from);
      const int8_t* values = (const int8_t*)from + 2;
      for (int i = 0; i < 32; ++i) to[i] = scale * (float)values[i];
    } else if (dtype == ANYHAL_DTYPE_Q4_1) {
      const float scale = (float)half_at(from), minimum = (float)half_at(from + 2);
      const uint8_t* nibbles = (const uint8_t*)from + 4;
      for (int i = 0; i < 16; ++i) to[i] = scale * (float)(nibbles[i] & 15) + minimum;
      for (int i = 0; i < 16; ++i) to[i + 16] = scale * (float)(nibbles[i] >> 4) + minimum;
    } else {
      double exact[BLOCK_MAX];
      decode_block(dtype, from, exact);
      for (uint32_t i = 0; i < size; ++i) to[i] = (float)exact[i];
    }
  }
}
