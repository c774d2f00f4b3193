// Vectors of the instruction set that this translation unit is compiled for.
// SPDX-License-Identifier: Apache-2.0
//
// Every kernel file is compiled once per instruction set, in a namespace of its own. Code shared by
// such files must have internal linkage or live in that namespace: an inline function with external
// linkage, compiled for AVX-512 and merged by the linker, would end the process on an older chip.
// For the same reason these files use no templates of the standard library.
#ifndef BACKENDS_CPU_KERNELS_VEC_H_
#define BACKENDS_CPU_KERNELS_VEC_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define HAL_CPU_ISA avx512
#elif defined(__AVX2__)
#define HAL_CPU_ISA avx2
#else
#define HAL_CPU_ISA baseline
#endif

namespace hal::cpu::HAL_CPU_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
struct VecOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

using F32 = Vec<float>;
using I32 = Vec<int32_t>;
constexpr int kF32Lanes = kLanes<float>;

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename VecOf<T>::unaligned*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<typename VecOf<T>::unaligned*>(p) = v;
}
template <class T>
inline Vec<T> splat(T x) {
  return x - Vec<T>{};  // exact for every x, -0 and NaN included; compiles to a broadcast
}

// a * b + c: one rounding where the instruction set has it, two otherwise. Integers wrap.
template <class T>
inline Vec<T> multiply_add(Vec<T> a, Vec<T> b, Vec<T> c) {
  return a * b + c;
}
#if defined(__AVX512F__)
template <>
inline F32 multiply_add<float>(F32 a, F32 b, F32 c) {
  return _mm512_fmadd_ps(a, b, c);
}
template <>
inline Vec<double> multiply_add<double>(Vec<double> a, Vec<double> b, Vec<double> c) {
  return _mm512_fmadd_pd(a, b, c);
}
#elif defined(__FMA__)
template <>
inline F32 multiply_add<float>(F32 a, F32 b, F32 c) {
  return _mm256_fmadd_ps(a, b, c);
}
template <>
inline Vec<double> multiply_add<double>(Vec<double> a, Vec<double> b, Vec<double> c) {
  return _mm256_fmadd_pd(a, b, c);
}
#endif

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_VEC_H_
