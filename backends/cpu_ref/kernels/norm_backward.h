// The gradients of a norm over the last axis; with a mean taken off first, or without.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_NORM_BACKWARD_H_
#define BACKENDS_CPU_REF_KERNELS_NORM_BACKWARD_H_

#include <cmath>

#include "training.h"

namespace hal::cpu_ref {

// Operands: dout, x, weight (may be absent), then dx, dweight, and dbias when kCentred. The sums
// over rows stand in the workspace, N numbers each.
template <class T, bool kCentred>
void norm_backward(const Call& call, float given_eps) {
  // Squares of f32 fit in f64; those of f64 need the longer exponent of long double.
  using Acc = std::conditional_t<std::is_same_v<T, double>, long double, double>;
  const Tensor& dout = sdk::operand(call.desc(), 0);
  const Tensor& x = sdk::operand(call.desc(), 1);
  const Tensor& weight = sdk::operand(call.desc(), 2);
  const Tensor& dx = sdk::operand(call.desc(), 3);
  const int64_t size = sdk::dim(x, -1);
  double* weight_sums = reinterpret_cast<double*>(call.workspace());
  double* bias_sums = weight_sums + size;
  for (int64_t i = 0; i < 2 * size; ++i) weight_sums[i] = 0;
  const T* w = absent(weight) ? nullptr : call.view<const T>(2).data();
  sdk::Odometer<3> walk;
  for (uint32_t d = 0; d + 1 < x.rank; ++d)
    walk.add(x.dims[d], {dout.strides[d], x.strides[d], dx.strides[d]});
  if (!walk.empty()) {
    do {
      const T* gradient = call.view<const T>(0).data() + walk.at(0);
      const T* from = call.view<const T>(1).data() + walk.at(1);
      T* to = call.view<T>(3).data() + walk.at(2);
      const Acc n = static_cast<Acc>(size);
      Acc mean = 0, squares = 0, along = 0, level = 0;
      auto input = [&](int64_t i) {
        return static_cast<Acc>(value_of(from[i * sdk::stride(x, -1)])) - mean;
      };
      auto d = [&](int64_t i) {
        return static_cast<Acc>(value_of(gradient[i * sdk::stride(dout, -1)]));
      };
      auto g = [&](int64_t i) {
        return w == nullptr ? d(i) : d(i) * static_cast<Acc>(value_of(w[i * weight.strides[0]]));
      };
      if constexpr (kCentred) {
        Acc sum = 0;
        for (int64_t i = 0; i < size; ++i) sum += input(i);
        mean = sum / n;
      }
      for (int64_t i = 0; i < size; ++i) squares += input(i) * input(i);
      const Acc factor = 1 / std::sqrt(squares / n + static_cast<Acc>(given_eps));
      for (int64_t i = 0; i < size; ++i) {
        along += g(i) * input(i) * factor / n;
        if (kCentred) level += g(i) / n;
        weight_sums[i] += static_cast<double>(d(i) * input(i) * factor);
        bias_sums[i] += static_cast<double>(d(i));
      }
      for (int64_t i = 0; i < size; ++i) {
        const Acc value = factor * (g(i) - level - input(i) * factor * along);
        to[i * sdk::stride(dx, -1)] = sdk::convert<T>(static_cast<double>(value));
      }
    } while (walk.next());
  }
  for (uint32_t o = 4; o < (kCentred ? 6u : 5u); ++o) {
    const Tensor& out = sdk::operand(call.desc(), o);
    if (absent(out)) continue;
    const double* sums = o == 4 ? weight_sums : bias_sums;
    for (int64_t i = 0; i < size; ++i)
      call.view<T>(o).data()[i * out.strides[0]] = sdk::convert<T>(sums[i]);
  }
}

inline uint64_t norm_backward_workspace(const Desc& desc) {
  return static_cast<uint64_t>(sdk::dim(sdk::operand(desc, 1), -1)) * 2 * sizeof(double);
}

inline Answer norm_backward_fits(const Desc& desc, uint32_t outputs) {
  Answer count = operands_are(desc, 3, 2, outputs);
  if (!count.yes()) return count;
  if (sdk::operand(desc, 1).rank == 0) return sdk::invalid("x must have a last axis", 1);
  if (absent(sdk::operand(desc, 2)) && !absent(sdk::operand(desc, 4)))
    return sdk::invalid("there is no dweight without a weight", 4);
  for (uint32_t i : {2u, 4u, outputs + 2}) {
    Answer fits = is_last_axis(desc, i, 1);
    if (!fits.yes()) return fits;
  }
  return all({dtypes_equal(desc, 0, 1), dims_equal(desc, 0, 1), dtypes_equal(desc, 3, 1),
              dims_equal(desc, 3, 1), outputs_stand_alone(desc)});
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_NORM_BACKWARD_H_
