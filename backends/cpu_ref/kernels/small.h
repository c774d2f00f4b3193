// Elements of 8-bit floats and packed integers, one at a time. All have exact values in double.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_SMALL_H_
#define BACKENDS_CPU_REF_KERNELS_SMALL_H_

#include <cmath>

#include "kernels.h"

namespace hal::cpu_ref {

constexpr bool is_packed(uint32_t dtype) {
  return dtype == ANYHAL_DTYPE_I4 || dtype == ANYHAL_DTYPE_U4;
}

// Packed integers lie two in a byte on the last dim; `at` counts elements there, as everywhere.
inline int64_t nibble_at(uint32_t dtype, const char* data, int64_t at) {
  const int byte = static_cast<unsigned char>(data[at / 2]);
  const int nibble = at % 2 == 0 ? byte & 15 : byte >> 4;
  return dtype == ANYHAL_DTYPE_I4 ? (nibble ^ 8) - 8 : nibble;
}

inline void put_nibble(char* data, int64_t at, int64_t value) {
  const int low = static_cast<int>(value) & 15, byte = static_cast<unsigned char>(data[at / 2]);
  data[at / 2] = static_cast<char>(at % 2 == 0 ? (byte & 0xf0) | low : (byte & 15) | low << 4);
}

inline double small_at(uint32_t dtype, const char* data, int64_t at) {
  if (is_packed(dtype)) return static_cast<double>(nibble_at(dtype, data, at));
  return sdk::f8_value(sdk::f8_format(dtype), static_cast<uint8_t>(data[at]));
}

// Toward zero and saturated, as for the wider integers; NaN gives 0.
inline int64_t saturated_nibble(uint32_t dtype, double value) {
  const double least = dtype == ANYHAL_DTYPE_I4 ? -8 : 0, most = dtype == ANYHAL_DTYPE_I4 ? 7 : 15;
  if (value != value) return 0;
  return static_cast<int64_t>(std::trunc(value < least ? least : value > most ? most : value));
}

inline void put_small(uint32_t dtype, char* data, int64_t at, double value, bool saturate) {
  if (is_packed(dtype)) return put_nibble(data, at, saturated_nibble(dtype, value));
  data[at] = static_cast<char>(sdk::f8_code(sdk::f8_format(dtype), value, saturate));
}

// Walks the rows of an operand that may be packed together with N - 1 others of its dims: offsets
// and steps of a row in elements. A packed row is dense.
template <int N, class Fn>
void each_row(const Tensor* const (&tensors)[N], Fn fn) {
  const Tensor& first = *tensors[0];
  sdk::Odometer<N> walk;
  int64_t steps[N];
  for (int k = 0; k < N; ++k) steps[k] = 1;
  for (uint32_t d = 0; d < first.rank; ++d) {
    int64_t strides[N];
    for (int k = 0; k < N; ++k) {
      const bool last = d + 1 == first.rank;
      strides[k] = tensors[k]->strides[d] * (is_packed(tensors[k]->dtype) && !last ? 2 : 1);
      if (last) steps[k] = is_packed(tensors[k]->dtype) ? 1 : strides[k];
    }
    if (d + 1 < first.rank) walk.add(first.dims[d], strides);
  }
  const int64_t count = first.rank == 0 ? 1 : sdk::dim(first, -1);
  if (walk.empty() || count == 0) return;
  do {
    int64_t at[N];
    for (int k = 0; k < N; ++k) at[k] = walk.at(k);
    fn(at, steps, count);
  } while (walk.next());
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_SMALL_H_
