// Casts of 8-bit floats and packed 4-bit integers, in two steps: small numbers to f64 or i64, which
// hold them exactly, and those to the other dtype.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_SMALL_H_
#define BACKENDS_CPU_KERNELS_SMALL_H_

#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {

struct F8 {
  int digits;  // of the fraction
  int bias;
  uint32_t largest;   // code without the sign
  uint32_t infinity;  // 0: there is none
  bool fnuz;          // the code of -0 is the only NaN
};

static inline F8 f8_format(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F8_E4M3FN:
      return {3, 7, 0x7e, 0, false};
    case ANYHAL_DTYPE_F8_E5M2:
      return {2, 15, 0x7b, 0x7c, false};
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
      return {3, 8, 0x7f, 0, true};
    default:
      return {2, 16, 0x7f, 0, true};
  }
}

static inline bool is_f8(uint32_t dtype) {
  return dtype >= ANYHAL_DTYPE_F8_E4M3FN && dtype <= ANYHAL_DTYPE_F8_E5M2FNUZ;
}
static inline bool is_packed(uint32_t dtype) {
  return dtype == ANYHAL_DTYPE_I4 || dtype == ANYHAL_DTYPE_U4;
}
static inline bool is_small(uint32_t dtype) { return is_f8(dtype) || is_packed(dtype); }

static inline float power_of_two(int exponent) {
  return bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

static inline double f8_value(const F8& f, uint8_t code) {
  uint32_t size = code & 0x7fu;
  bool special = size > f.largest || (f.fnuz && code == 0x80);
  // In a float's fields the code is the value with another bias, subnormals too.
  float value = bit_cast<float>(size << (23 - f.digits)) * power_of_two(127 - f.bias);
  bool infinite = f.infinity != 0 && size == f.infinity;
  if (special) value = bit_cast<float>(infinite ? 0x7f800000u : 0x7fc00000u);
  return static_cast<double>((code & 0x80) != 0 ? -value : value);
}

static inline uint8_t f8_code(const F8& f, double value, bool saturate) {
  uint32_t nan = f.fnuz ? 0x80 : 0x7f;
  if (value != value) return static_cast<uint8_t>(nan);
  uint64_t bits = bit_cast<uint64_t>(value);
  double size = bit_cast<double>(bits & ~(uint64_t{1} << 63));
  uint32_t code = 0x80;  // past every format's largest
  if (size < 0x1p17) {
    int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
    if (exponent < 1 - f.bias) exponent = 1 - f.bias;
    // Added to it, the FPU rounds at the last place of the format.
    uint64_t place = static_cast<uint64_t>(1023 + 52 + exponent - f.digits) << 52;
    double shifter = 1.5 * bit_cast<double>(place);
    float rounded = static_cast<float>((size + shifter) - shifter);
    code = bit_cast<uint32_t>(rounded * power_of_two(f.bias - 127 + 1) * 0.5f) >> (23 - f.digits);
  }
  if (code > f.largest) {
    if (!saturate && f.infinity == 0) return static_cast<uint8_t>(nan);
    code = saturate ? f.largest : f.infinity;
  }
  if (f.fnuz && code == 0) return 0;
  return static_cast<uint8_t>(code | (bits >> 63 != 0 ? 0x80u : 0u));
}

// One of the dtypes is small. `stage` is the cast between the other and f64 or i64, if it is not.
struct Small {
  uint32_t from, to;
  bool whole, saturate;        // whole: by way of i64
  int64_t from_step, to_step;  // bytes, inside a pair
  Inner stage;
};

union Lane {
  double f[64];
  int64_t z[64];
};

static inline void load_small(uint32_t dtype, const char* p, int64_t stride, int64_t n, bool whole,
                              Lane& v) {
  if (is_f8(dtype)) {
    F8 f = f8_format(dtype);
    for (int64_t i = 0; i < n; ++i) v.f[i] = f8_value(f, static_cast<uint8_t>(p[i * stride]));
    return;
  }
  uint8_t byte = static_cast<uint8_t>(*p);  // a pair
  for (int i = 0; i < 2; ++i) {
    int nibble = i == 0 ? byte & 15 : byte >> 4;
    int number = dtype == ANYHAL_DTYPE_I4 ? (nibble ^ 8) - 8 : nibble;
    if (whole) {
      v.z[i] = number;
    } else {
      v.f[i] = number;
    }
  }
}

static inline int64_t to_nibble(uint32_t dtype, double v) {  // toward zero, saturated, NaN to 0
  double least = dtype == ANYHAL_DTYPE_I4 ? -8 : 0, most = dtype == ANYHAL_DTYPE_I4 ? 7 : 15;
  if (v != v) return 0;
  return static_cast<int64_t>(v < least ? least : v > most ? most : v);
}

static inline void store_small(const Small& s, char* p, int64_t stride, int64_t n, const Lane& v) {
  if (is_f8(s.to)) {
    F8 f = f8_format(s.to);
    for (int64_t i = 0; i < n; ++i)
      p[i * stride] = static_cast<char>(f8_code(f, v.f[i], s.saturate));
    return;
  }
  int64_t low = s.whole ? v.z[0] : to_nibble(s.to, v.f[0]);
  int64_t high = s.whole ? v.z[1] : to_nibble(s.to, v.f[1]);
  *p = static_cast<char>((low & 15) | (high & 15) << 4);
}

// Packed numbers come one pair at a time.
static inline void convert_small(const Small& s, const char* from, int64_t from_stride, char* to,
                                 int64_t to_stride, int64_t n) {
  Lane v;
  char* lane = reinterpret_cast<char*>(&v);
  for (int64_t i = 0; i < n; i += 64) {
    int64_t count = n - i < 64 ? n - i : 64;
    char* source = const_cast<char*>(from) + i * from_stride;
    char* target = to + i * to_stride;
    if (is_small(s.from)) {
      load_small(s.from, source, from_stride, count, s.whole, v);
    } else {
      char* const ends[] = {source, lane};
      const int64_t strides[] = {from_stride, 8};
      s.stage(nullptr, ends, strides, count);
    }
    if (is_small(s.to)) {
      store_small(s, target, to_stride, count, v);
    } else {
      char* const ends[] = {lane, target};
      const int64_t strides[] = {8, to_stride};
      s.stage(nullptr, ends, strides, count);
    }
  }
}

Inner cast_of(uint32_t from, uint32_t to);

// Plans such a cast; the elements of one step: 2 where one side is packed.
static inline int64_t make_small(Small& s, Nest& nest, const Tensor& x, const Tensor& out,
                                 bool saturate) {
  s.from = x.dtype;
  s.to = out.dtype;
  s.saturate = saturate;
  bool pairs = is_packed(s.from) || is_packed(s.to);
  bool floats = is_f8(s.from) || is_f8(s.to) || is_float(s.from);
  s.whole = !floats;
  uint32_t middle = floats ? uint32_t{ANYHAL_DTYPE_F64} : uint32_t{ANYHAL_DTYPE_I64};
  s.stage = !is_small(s.from) ? cast_of(s.from, middle) : cast_of(middle, s.to);
  Tensor from = x, to = out;
  if (pairs) {
    uint32_t last = out.rank - 1;
    s.from_step = x.strides[last] * element_bytes(x.dtype);
    s.to_step = out.strides[last] * element_bytes(out.dtype);
    if (!is_packed(s.from)) from.strides[last] *= 2;
    if (!is_packed(s.to)) to.strides[last] *= 2;
    // A packed output is counted in pairs by the nest itself.
    if (!is_packed(s.to)) to.dims[last] /= 2;
  }
  const Tensor* tensors[] = {&from, &to};
  make_nest(nest, tensors, 2);
  return pairs ? 2 : 1;
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_SMALL_H_
