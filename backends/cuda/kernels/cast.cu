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
  const bool large = is_positive ? (unsigned long long)v >> 52 != 0
                                 : v > (1ll << 52) || v < -(1ll << 52);
  if (large && dtype != kF64) {
    const long long low = v & 0xfff;
    v = (long long)((unsigned long long)v - (unsigned long long)low) | (low != 0 ? 0x800 : 0);
  }
  return is_positive ? (double)(unsigned long long)v : (double)v;
}

HAL_KERNEL(anyhal_cast, Map) {
  HAL_EACH(i, p.walk.count) {
    const Place place = locate(p.walk, p.side, i);
    const unsigned char* from = data_of(p, 0);
    if (is_float(p.dtype)) {
      const double x = load_float(p.dtype, from, place.at[0]);
      if (is_float(p.out_dtype)) {
        store_float(p.out_dtype, p.side[1].data, place.at[1], x);
      } else {
        store_int(p.out_dtype, p.side[1].data, place.at[1], float_to_int(p.out_dtype, x));
      }
      continue;
    }
    const long long x = load_int(p.dtype, from, place.at[0]);
    if (is_float(p.out_dtype)) {
      store_float(p.out_dtype, p.side[1].data, place.at[1],
                  int_to_float(p.out_dtype, x, is_unsigned(p.dtype)));
    } else {
      store_int(p.out_dtype, p.side[1].data, place.at[1], x);
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
