/* Reading and writing runs of elements: conversions between dtypes, and block formats.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "dayone.h"

uint32_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F64:
    case ANYHAL_DTYPE_I64:
    case ANYHAL_DTYPE_U64:
      return 8;
    case ANYHAL_DTYPE_F32:
    case ANYHAL_DTYPE_I32:
    case ANYHAL_DTYPE_U32:
      return 4;
    case ANYHAL_DTYPE_F16:
    case ANYHAL_DTYPE_BF16:
    case ANYHAL_DTYPE_I16:
    case ANYHAL_DTYPE_U16:
      return 2;
    case ANYHAL_DTYPE_I8:
    case ANYHAL_DTYPE_U8:
    case ANYHAL_DTYPE_BOOL:
    case ANYHAL_DTYPE_F8_E4M3FN:
    case ANYHAL_DTYPE_F8_E5M2:
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
    case ANYHAL_DTYPE_F8_E5M2FNUZ:
    case ANYHAL_DTYPE_I4:
    case ANYHAL_DTYPE_U4:
      return 1;
    case ANYHAL_DTYPE_Q4_1:
      return 20;
    case ANYHAL_DTYPE_Q8_0:
      return 34;
    case ANYHAL_DTYPE_Q4_0:
      return 18;
    case ANYHAL_DTYPE_Q4_K:
      return 144;
    case ANYHAL_DTYPE_Q6_K:
      return 210;
    default:
      return 0;
  }
}

uint32_t block_elements(uint32_t dtype) {
  if (is_packed(dtype)) return 2;
  if (dtype < ANYHAL_DTYPE_Q4_1) return 1;
  return dtype == ANYHAL_DTYPE_Q4_K || dtype == ANYHAL_DTYPE_Q6_K ? 256 : 32;
}

bool is_float(uint32_t dtype) { return dtype >= ANYHAL_DTYPE_F32 && dtype <= ANYHAL_DTYPE_F64; }

bool is_f8(uint32_t dtype) {
  return dtype >= ANYHAL_DTYPE_F8_E4M3FN && dtype <= ANYHAL_DTYPE_F8_E5M2FNUZ;
}

bool is_packed(uint32_t dtype) { return dtype == ANYHAL_DTYPE_I4 || dtype == ANYHAL_DTYPE_U4; }

bool is_unsigned(uint32_t dtype) {
  return (dtype >= ANYHAL_DTYPE_U64 && dtype <= ANYHAL_DTYPE_U8) || dtype == ANYHAL_DTYPE_U4;
}

bool is_number(uint32_t dtype) { return dtype >= ANYHAL_DTYPE_F32 && dtype <= ANYHAL_DTYPE_U8; }

/* ---- 16-bit floats ---- */

static float bits_to_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t float_to_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

float half_to_float(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
  /* The exponent biases differ by 112; multiplying also normalises subnormal halves. */
  uint32_t bits = float_to_bits(bits_to_float(magnitude) * 0x1p112f);
  if (magnitude >= 0x0f800000u) bits |= 0x7f800000u; /* infinity and NaN */
  return bits_to_float(bits | (uint32_t)(h & 0x8000) << 16);
}

static uint16_t float_to_half(float f) {
  uint32_t bits = float_to_bits(f), sign = bits >> 16 & 0x8000, x = bits & 0x7fffffff;
  if (x > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (x < 0x38800000) /* subnormal: at 1/2 a float has the last place of a subnormal half */
    return (uint16_t)(sign | (float_to_bits(bits_to_float(x) + 0.5f) - 0x3f000000));
  uint32_t h = (x + 0xfff + (x >> 13 & 1) - (112u << 23)) >> 13;
  return (uint16_t)(sign | (h > 0x7c00 ? 0x7c00 : h));
}

static uint16_t float_to_bfloat(float f) {
  uint32_t x = float_to_bits(f);
  if ((x & 0x7fffffff) > 0x7f800000) return (uint16_t)(x >> 16 | 0x40);
  return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

/* A float that is rounded again afterwards: inexact values get an odd last bit, so that rounding
 * twice gives what rounding once would. */
static float to_odd(double d) {
  float f = (float)d;
  if (d != d || (double)f == d) return f;
  uint32_t bits = float_to_bits(f);
  if (fabs((double)f) > fabs(d)) --bits;
  return bits_to_float(bits | 1);
}

/* ---- runs of elements ---- */

/* stride == 1 gets a loop of its own, which compilers vectorise. */
#define LOAD(TYPE, EXPRESSION)              \
  {                                         \
    const TYPE* x = (const TYPE*)from;      \
    if (stride == 1) {                      \
      for (int64_t i = 0; i < count; ++i) { \
        TYPE v = x[i];                      \
        to[i] = EXPRESSION;                 \
      }                                     \
    } else {                                \
      for (int64_t i = 0; i < count; ++i) { \
        TYPE v = x[i * stride];             \
        to[i] = EXPRESSION;                 \
      }                                     \
    }                                       \
    return;                                 \
  }

void load_f64(uint32_t dtype, const char* from, int64_t stride, int64_t count, double* to) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      LOAD(float, (double)v)
    case ANYHAL_DTYPE_F64:
      LOAD(double, v)
    case ANYHAL_DTYPE_F16:
      LOAD(uint16_t, (double)half_to_float(v))
    case ANYHAL_DTYPE_BF16:
      LOAD(uint16_t, (double)bits_to_float((uint32_t)v << 16))
    default:
      return;
  }
}

void load_i64(uint32_t dtype, const char* from, int64_t stride, int64_t count, int64_t* to) {
  switch (dtype) {
    case ANYHAL_DTYPE_I64:
    case ANYHAL_DTYPE_U64:
      LOAD(int64_t, v)
    case ANYHAL_DTYPE_I32:
      LOAD(int32_t, v)
    case ANYHAL_DTYPE_U32:
      LOAD(uint32_t, v)
    case ANYHAL_DTYPE_I16:
      LOAD(int16_t, v)
    case ANYHAL_DTYPE_U16:
      LOAD(uint16_t, v)
    case ANYHAL_DTYPE_I8:
      LOAD(int8_t, v)
    case ANYHAL_DTYPE_U8:
    case ANYHAL_DTYPE_F8_E4M3FN: /* the codes */
    case ANYHAL_DTYPE_F8_E5M2:
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
    case ANYHAL_DTYPE_F8_E5M2FNUZ:
      LOAD(uint8_t, v)
    case ANYHAL_DTYPE_BOOL:
      LOAD(uint8_t, v != 0)
    default:
      return;
  }
}

#define STORE(TYPE, EXPRESSION)                                               \
  {                                                                           \
    TYPE* x = (TYPE*)to;                                                      \
    if (stride == 1) {                                                        \
      for (int64_t i = 0; i < count; ++i) x[i] = (TYPE)(EXPRESSION);          \
    } else {                                                                  \
      for (int64_t i = 0; i < count; ++i) x[i * stride] = (TYPE)(EXPRESSION); \
    }                                                                         \
    return;                                                                   \
  }

void store_f64(uint32_t dtype, char* to, int64_t stride, int64_t count, const double* from) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      STORE(float, from[i])
    case ANYHAL_DTYPE_F64:
      STORE(double, from[i])
    case ANYHAL_DTYPE_F16:
      STORE(uint16_t, float_to_half(to_odd(from[i])))
    case ANYHAL_DTYPE_BF16:
      STORE(uint16_t, float_to_bfloat(to_odd(from[i])))
    default:
      return;
  }
}

void store_i64(uint32_t dtype, char* to, int64_t stride, int64_t count, const int64_t* from) {
  switch (element_bytes(dtype)) {
    case 8:
      STORE(int64_t, from[i])
    case 4:
      STORE(uint32_t, from[i])
    case 2:
      STORE(uint16_t, from[i])
    case 1:
      if (dtype == ANYHAL_DTYPE_BOOL) STORE(uint8_t, from[i] != 0)
      STORE(uint8_t, from[i])
    default:
      return;
  }
}
