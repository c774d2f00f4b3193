// Inner loops of elementwise ops, made from one scalar function each.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_ELEMENTWISE_H_
#define BACKENDS_CPU_KERNELS_ELEMENTWISE_H_

#include "loops.h"
#include "math.h"

namespace hal::cpu::HAL_CPU_ISA {

// out[i] = F(a[i])
template <class F, class In, class Out>
static void map_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  if (strides[0] == static_cast<int64_t>(sizeof(In)) &&
      strides[1] == static_cast<int64_t>(sizeof(Out))) {
    const In* a = reinterpret_cast<const In*>(p[0]);
    Out* out = reinterpret_cast<Out*>(p[1]);
    for (int64_t i = 0; i < n; ++i) out[i] = F::apply(a[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<Out*>(p[1] + i * strides[1]) =
        F::apply(*reinterpret_cast<const In*>(p[0] + i * strides[0]));
}

// out[i] = F(a[i], b[i])
template <class F, class In, class Out>
static void zip_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kIn = sizeof(In);
  const In* a = reinterpret_cast<const In*>(p[0]);
  const In* b = reinterpret_cast<const In*>(p[1]);
  Out* out = reinterpret_cast<Out*>(p[2]);
  if (strides[2] == static_cast<int64_t>(sizeof(Out))) {
    if (strides[0] == kIn && strides[1] == kIn) {
      for (int64_t i = 0; i < n; ++i) out[i] = F::apply(a[i], b[i]);
      return;
    }
    if (strides[0] == kIn && strides[1] == 0) {
      In y = *b;
      for (int64_t i = 0; i < n; ++i) out[i] = F::apply(a[i], y);
      return;
    }
    if (strides[0] == 0 && strides[1] == kIn) {
      In x = *a;
      for (int64_t i = 0; i < n; ++i) out[i] = F::apply(x, b[i]);
      return;
    }
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<Out*>(p[2] + i * strides[2]) =
        F::apply(*reinterpret_cast<const In*>(p[0] + i * strides[0]),
                 *reinterpret_cast<const In*>(p[1] + i * strides[1]));
}

// f16 and bf16 go through the f32 loop in pieces and are rounded once at the end.
struct HalfContext {
  ReadRow read;
  WriteRow write;  // null: the f32 loop's output is not a float (comparisons)
  Inner inner;
};

template <int kInputs>
static void half_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kPiece = 256;
  const HalfContext& c = *static_cast<const HalfContext*>(context);
  alignas(64) float in[kInputs][kPiece];
  alignas(64) float out[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    int64_t count = n - i < kPiece ? n - i : kPiece;
    char* q[kInputs + 1];
    int64_t steps[kInputs + 1];
    for (int t = 0; t < kInputs; ++t) {
      c.read(p[t] + i * strides[t], strides[t], count, in[t]);
      q[t] = reinterpret_cast<char*>(in[t]);
      steps[t] = sizeof(float);
    }
    char* to = p[kInputs] + i * strides[kInputs];
    q[kInputs] = c.write != nullptr ? reinterpret_cast<char*>(out) : to;
    steps[kInputs] = c.write != nullptr ? static_cast<int64_t>(sizeof(float)) : strides[kInputs];
    c.inner(nullptr, q, steps, count);
    if (c.write != nullptr) c.write(to, strides[kInputs], count, out);
  }
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_ELEMENTWISE_H_
