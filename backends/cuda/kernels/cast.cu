// cast: the same values in another dtype; blocks of GGUF files are decoded, one element a thread.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

// Toward zero, saturated to the target's range; NaN gives 0.
HAL_DEVICE long long float_to_int(int dtype, double v) {
  if (dtype == kBool) return v != 0;
  if (v != v) return 0;
  const int bits = bits_in(dtype);
  if (is_unsigned(dtype)) {
    if (v <= 0) return 0;
    if (bits == 64) return v >= 18446744073709551616.0 ? -1 : (long long)(unsigned long long)v;
    const long long most = (1ll << bits) - 1;
    return v >= (double)most ? most : (long long)v;
  }
  const long long most = (long long)((1ull << (bits - 1)) - 1);
  if (bits == 64) {
    if (v >= 9223372036854775808.0) return most;
    return v <= -9223372036854775808.0 ? -most - 1 : (long long)v;
  }
  return v >= (double)most ? most : v <= (double)(-most - 1) ? -most - 1 : (long long)v;
}

// Of an integer with more digits than a double has, for a float with fewer: the first rounding
// leaves its mark in the last bit, so that rounding twice is rounding once.
HAL_DEVICE double int_to_float(int dtype, long long v, bool is_positive) {
  const bool large =
      is_positive ? (unsigned long long)v >> 52 != 0 : v > (1ll << 52) || v < -(1ll << 52);
  if (large && dtype != kF64) {
    const long long low = v & 0xfff;
    v = (long long)((unsigned long long)v - (unsigned long long)low) | (low != 0 ? 0x800 : 0);
  }
  return is_positive ? (double)(unsigned long long)v : (double)v;
}

// ------------------------------------------------------------------------------- 8-bit floats

HAL_DEVICE bool is_f8(int dtype) { return dtype >= kE4M3FN && dtype <= kE5M2FNUZ; }

struct Format {
  int digits;  // of the fraction
  int bias;
  int largest;   // code without the sign
  int infinity;  // 0: there is none
  bool fnuz;     // the code of -0 is the only NaN
};

HAL_DEVICE Format format_of(int dtype) {
  switch (dtype) {
    case kE4M3FN:
      return {3, 7, 0x7e, 0, false};
    case kE5M2:
      return {2, 15, 0x7b, 0x7c, false};
    case kE4M3FNUZ:
      return {3, 8, 0x7f, 0, true};
    default:
      return {2, 16, 0x7f, 0, true};
  }
}

HAL_DEVICE double f8_value(int dtype, int code) {
  const Format f = format_of(dtype);
  const int size = code & 0x7f, exponent = size >> f.digits,
            fraction = size & ((1 << f.digits) - 1);
  double value = exponent == 0
                     ? ldexp((double)fraction, 1 - f.bias - f.digits)
                     : ldexp((double)(fraction + (1 << f.digits)), exponent - f.bias - f.digits);
  if (size > f.largest || (f.fnuz && code == 0x80)) {
    value = 1e300 * 1e300;
    if (f.infinity == 0 || size != f.infinity) value -= value;  // NaN
  }
  return code & 0x80 ? -value : value;
}

// The nearest code, ties to even; past the largest the largest, infinity or NaN.
HAL_DEVICE int f8_code(int dtype, double value, bool saturate) {
  const Format f = format_of(dtype);
  const int nan = f.fnuz ? 0x80 : 0x7f;
  if (value != value) return nan;
  const double size = fabs(value);
  int code = 0x80;  // past every format's largest
  if (size < 131072) {
    int exponent = size > 0 ? ilogb(size) : 1 - f.bias;
    if (exponent < 1 - f.bias) exponent = 1 - f.bias;
    // In units of the last place; rounding up to the next binade carries into the exponent.
    code = ((exponent + f.bias - 1) << f.digits) + (int)rint(ldexp(size, f.digits - exponent));
  }
  if (code > f.largest) {
    if (!saturate && f.infinity == 0) return nan;
    code = saturate ? f.largest : f.infinity;
  }
  if (f.fnuz && code == 0) return 0;
  return code | (copysign(1.0, value) < 0 ? 0x80 : 0);
}

// ---------------------------------------------------------------------------- one of the kinds

struct Number {
  double f;
  long long z;
  bool floating;
};

HAL_DEVICE Number read(int dtype, const unsigned char* from, long long i) {
  if (is_f8(dtype)) return {f8_value(dtype, *reach(from + i)), 0, true};
  if (is_float(dtype)) return {load_float(dtype, from, i), 0, true};
  return {0, load_int(dtype, from, i), false};
}

HAL_DEVICE double as_float(const Map& p, const Number& x) {
  return x.floating ? x.f : int_to_float(p.out_dtype, x.z, is_unsigned(p.dtype));
}

HAL_DEVICE void write(const Map& p, const Number& x, unsigned char* to, long long i) {
  if (is_float(p.out_dtype)) {
    store_float(p.out_dtype, to, i, as_float(p, x));
  } else if (is_f8(p.out_dtype)) {
    *reach(to + i) =
        (unsigned char)f8_code(p.out_dtype, as_float(p, x), p.fn == ANYHAL_OVERFLOW_SATURATE);
  } else {
    store_int(p.out_dtype, to, i, x.floating ? float_to_int(p.out_dtype, x.f) : x.z);
  }
}

HAL_KERNEL(anyhal_cast, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    write(p, read(p.dtype, data_of(p, 0), place.at[0]), p.side[1].data, place.at[1]);
  }
}

// ---------------------------------------------------------------------------- packed integers

// A thread takes a pair, the first in the low nibble: two may not write one byte.
HAL_DEVICE Number read_nibble(int dtype, const unsigned char* from, long long i, int second) {
  const int byte = *reach(from + i), nibble = second ? byte >> 4 : byte & 15;
  return {0, dtype == kI4 ? (nibble ^ 8) - 8 : nibble, false};
}

HAL_DEVICE int nibble_of(int dtype, const Number& x) {
  if (!x.floating) return (int)x.z & 15;
  if (x.f != x.f) return 0;
  const double least = dtype == kI4 ? -8 : 0, most = dtype == kI4 ? 7 : 15;
  return (int)(x.f < least ? least : x.f > most ? most : x.f) & 15;
}

HAL_KERNEL(anyhal_cast_pairs, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    Number x[2];
    for (int k = 0; k < 2; ++k)
      x[k] = p.dtype == kI4 || p.dtype == kU4
                 ? read_nibble(p.dtype, p.side[0].data, place.at[0], k)
                 : read(p.dtype, p.side[0].data, place.at[0] + k * p.pair[0]);
    if (p.out_dtype == kI4 || p.out_dtype == kU4) {
      *reach(p.side[1].data + place.at[1]) =
          (unsigned char)(nibble_of(p.out_dtype, x[0]) | nibble_of(p.out_dtype, x[1]) << 4);
    } else {
      for (int k = 0; k < 2; ++k) write(p, x[k], p.side[1].data, place.at[1] + k * p.pair[1]);
    }
  }
}

// ------------------------------------------------------------------------------ block formats

HAL_DEVICE float half_at(const unsigned char* from) {
  return half_to_float(*reach((const unsigned short*)from));
}

// 8 groups of 32, each with a scale and a minimum of 6 bits: groups 0 to 3 have a byte each, 4 to 7
// a nibble, and their upper two bits above those of 0 to 3.
HAL_DEVICE double element_q4_k(const unsigned char* block, int j) {
  const int g = j / 32;
  const unsigned char* packed = reach(block) + 4;
  const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
  const int minimum = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
  const int byte = packed[12 + g / 2 * 32 + j % 32];
  return (double)half_at(block) * scale * (g % 2 == 0 ? byte & 15 : byte >> 4) -
         (double)half_at(block + 2) * minimum;
}

// Two halves of 128; a quarter takes its nibbles from the low or the high side of 32 bytes.
HAL_DEVICE double element_q6_k(const unsigned char* block, int j) {
  const unsigned char* low = reach(block);
  const int half = j / 128, quarter = j % 128 / 32, at = j % 32;
  const int byte = low[64 * half + quarter % 2 * 32 + at];
  const int top = low[128 + 32 * half + at] >> 2 * quarter & 3;
  const int scale = (signed char)low[192 + j / 16];
  return (double)half_at(block + 208) * scale *
         (((quarter < 2 ? byte & 15 : byte >> 4) | top << 4) - 32);
}

HAL_DEVICE double element(int dtype, const unsigned char* block, int j) {
  if (dtype == kQ4_K) return element_q4_k(block, j);
  if (dtype == kQ6_K) return element_q6_k(block, j);
  const double scale = half_at(block);
  if (dtype == kQ8_0) return scale * (signed char)*reach(block + 2 + j);
  const int head = dtype == kQ4_1 ? 4 : 2, byte = *reach(block + head + j % 16);
  const int nibble = j < 16 ? byte & 15 : byte >> 4;
  return scale * nibble + (dtype == kQ4_1 ? (double)half_at(block + 2) : -8 * scale);
}

// Side 2 counts along the block: where it stands is which element is meant.
HAL_KERNEL(anyhal_cast_blocks, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    const unsigned char* block = p.side[0].data + place.at[0] * p.bytes;
    store_float(p.out_dtype, p.side[1].data, place.at[1],
                element(p.dtype, block, (int)place.at[2]));
  }
}

}  // namespace hal::cuda
