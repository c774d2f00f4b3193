// What the norms share: rows of x + residual, brought to a mean square or variance of 1.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_NORM_H_
#define BACKENDS_CPU_REF_KERNELS_NORM_H_

#include <cmath>

#include "conditions.h"

namespace hal::cpu_ref {

// Squares of f32 fit in f64; those of f64 need the longer exponent of long double.
template <class T>
using Squares = std::conditional_t<std::is_same_v<T, double>, long double, double>;

// Where the operands of a norm are. Absent ones have no data and strides of 0.
struct NormOperands {
  enum { kX, kResidual, kWeight, kBias, kOut, kTotal, kCount };
  int64_t number[kCount];  // in the description; -1 = the op has none
};

template <class T>
struct NormRows {
  using Walk = sdk::Odometer<NormOperands::kCount>;
  Walk outer, inner;
  char* data[NormOperands::kCount] = {};

  NormRows(const Call& call, const NormOperands& operands) {
    for (int k = 0; k < NormOperands::kCount; ++k) {
      const int64_t i = operands.number[k];
      if (i < 0 || absent(sdk::operand(call.desc(), static_cast<uint32_t>(i)))) continue;
      data[k] = call.data(static_cast<uint32_t>(i));
    }
  }

  // x + residual at the position of both walks, in what sums of T are formed in.
  sdk::Compute<T> value() const {
    sdk::Compute<T> sum = *at(NormOperands::kX);
    if (data[NormOperands::kResidual] != nullptr)
      sum += static_cast<sdk::Compute<T>>(*at(NormOperands::kResidual));
    return sum;
  }

  // Writes total, and y * weight + bias.
  void finish(Squares<T> y) const {
    const sdk::Compute<T> total = value();
    if (data[NormOperands::kWeight] != nullptr)
      y *= static_cast<sdk::Compute<T>>(*at(NormOperands::kWeight));
    if (data[NormOperands::kBias] != nullptr)
      y += static_cast<sdk::Compute<T>>(*at(NormOperands::kBias));
    *at(NormOperands::kOut) = sdk::convert<T>(static_cast<double>(y));
    if (data[NormOperands::kTotal] != nullptr) *at(NormOperands::kTotal) = sdk::convert<T>(total);
  }

  // Each position of `outer`: the values along `inner` over the root of their mean square + eps,
  // their mean taken off before where `centred`.
  void normalize(double eps, bool centred) {
    if (outer.empty() || inner.empty()) return;
    const auto count = static_cast<Squares<T>>(inner.count());
    do {
      Squares<T> mean = 0, squares = 0;
      for (int pass = 0; centred && pass < 2; ++pass) {  // the second finds the first one's error
        Squares<T> sum = 0;
        do sum += value() - mean;
        while (inner.next());
        mean += sum / count;
      }
      do {
        const Squares<T> d = value() - mean;
        squares += d * d;
      } while (inner.next());
      const Squares<T> root = std::sqrt(squares / count + static_cast<Squares<T>>(eps));
      do finish((value() - mean) / root);
      while (inner.next());
    } while (outer.next());
  }

 private:
  T* at(int k) const { return reinterpret_cast<T*>(data[k]) + outer.at(k) + inner.at(k); }
};

// The operands from the residual on: dims and dtypes of x, and a total exactly with a residual.
inline Answer residual_fits(const Desc& desc, uint32_t residual) {
  const Tensor& added = sdk::operand(desc, residual);
  const uint32_t out = desc.input_count;
  const bool total = desc.operand_count > out + 1 && !absent(sdk::operand(desc, out + 1));
  if (total == absent(added))
    return sdk::invalid("the total is present exactly when the residual is",
                        static_cast<int32_t>(residual));
  Answer fits = all({dtypes_equal(desc, out, 0), dims_equal(desc, out, 0), output_is_single(desc),
                     output_may_alias(desc, {0, residual})});
  if (!fits.yes() || !total) return fits;
  return all({dtypes_equal(desc, residual, 0), dims_equal(desc, residual, 0),
              dtypes_equal(desc, out + 1, 0), dims_equal(desc, out + 1, 0),
              output_may_alias(desc, {0, residual}, 1)});
}

// Operand i is absent, or has x's dtype and dims `first`... of x.
inline Answer vector_fits(const Desc& desc, uint32_t i, uint32_t first, uint32_t count) {
  const Tensor &x = sdk::operand(desc, 0), &vector = sdk::operand(desc, i);
  if (absent(vector)) return sdk::yes();
  bool fits = vector.rank == count;
  for (uint32_t d = 0; fits && d < count; ++d) fits = vector.dims[d] == x.dims[first + d];
  if (!fits) return sdk::invalid("weight, bias and statistics have dims of x", int32_t(i));
  return dtypes_equal(desc, i, 0);
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_NORM_H_
