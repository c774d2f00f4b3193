// Blocks of GGUF files as exact numbers: formats that no product reads by itself, and casts of all.
// SPDX-License-Identifier: Apache-2.0
#include "cast.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

double half_at(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, 2);
  return to_f32(F16{bits});
}

// 8 groups of 32, each with a scale and a minimum of 6 bits: groups 0 to 3 have a byte each, 4 to 7
// a nibble, and their upper two bits above those of 0 to 3.
void decode_q4_k(const uint8_t* block, double* to) {
  const double d = half_at(block), m = half_at(block + 2);
  const uint8_t *packed = block + 4, *nibbles = block + 16;
  for (int g = 0; g < 8; ++g) {
    int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
    int minimum = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    const uint8_t* from = nibbles + g / 2 * 32;
    for (int i = 0; i < 32; ++i)
      to[32 * g + i] = d * scale * (g % 2 == 0 ? from[i] & 15 : from[i] >> 4) - m * minimum;
  }
}

// Two halves of 128; a quarter takes its nibbles from the low or the high side of 32 bytes, and its
// two groups of 16 have a scale each.
void decode_q6_k(const uint8_t* block, double* to) {
  const int8_t* scales = reinterpret_cast<const int8_t*>(block + 192);
  const double d = half_at(block + 208);
  for (int group = 0; group < 16; ++group) {
    const int half = group / 8, quarter = group % 8 / 2, first = group % 2 * 16;
    const uint8_t* low = block + 64 * half + quarter % 2 * 32 + first;
    const uint8_t* upper = block + 128 + 32 * half + first;
    const double scale = d * scales[group];
    const int low_shift = quarter < 2 ? 0 : 4, upper_shift = 2 * quarter;
    for (int i = 0; i < 16; ++i) {
      int q = (low[i] >> low_shift & 15) | (upper[i] >> upper_shift & 3) << 4;
      to[16 * group + i] = scale * (q - 32);
    }
  }
}

}  // namespace

void dequantise_exactly(uint32_t dtype, const uint8_t* block, double* to) {
  if (dtype == ANYHAL_DTYPE_Q4_K) return decode_q4_k(block, to);
  if (dtype == ANYHAL_DTYPE_Q6_K) return decode_q6_k(block, to);
  const double scale = half_at(block);
  if (dtype == ANYHAL_DTYPE_Q8_0) {
    const int8_t* q = reinterpret_cast<const int8_t*>(block + 2);
    for (int i = 0; i < 32; ++i) to[i] = scale * q[i];
    return;
  }
  const bool centred = dtype == ANYHAL_DTYPE_Q4_0;  // q - 8 in place of a minimum
  const uint8_t* nibbles = block + (centred ? 2 : 4);
  const double minimum = centred ? -8 * scale : half_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * (nibbles[i] & 15) + minimum;
    to[i + 16] = scale * (nibbles[i] >> 4) + minimum;
  }
}

}  // namespace hal::cpu::HAL_CPU_ISA
