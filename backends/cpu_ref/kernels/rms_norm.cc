// rms_norm: x / sqrt(mean(x^2) + eps) * weight along the last axis, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conditions.h"

namespace hal::cpu_ref {
namespace {

// Squares of f32 fit in f64; those of f64 need the longer exponent of long double.
template <class T>
void normalize(const Call& call) {
  using Acc = std::conditional_t<std::is_same_v<T, double>, long double, double>;
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& weight = sdk::operand(call.desc(), 1);
  const Tensor& out = sdk::operand(call.desc(), 2);
  const Acc eps = sdk::attributes<anyhal_attrs_rms_norm>(call.desc()).eps;
  const int64_t size = sdk::dim(x, -1), x_stride = sdk::stride(x, -1);
  const int64_t out_stride = sdk::stride(out, -1);
  const T* w = absent(weight) ? nullptr : call.view<const T>(1).data();
  const int64_t w_stride = w == nullptr ? 0 : weight.strides[0];
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d + 1 < x.rank; ++d) walk.add(x.dims[d], {x.strides[d], out.strides[d]});
  if (walk.empty()) return;
  do {
    const T* from = call.view<const T>(0).data() + walk.at(0);
    T* to = call.view<T>(2).data() + walk.at(1);
    Acc squares = 0;
    for (int64_t i = 0; i < size; ++i) {
      Acc value = static_cast<sdk::Compute<T>>(from[i * x_stride]);
      squares += value * value;
    }
    const Acc factor = 1 / std::sqrt(squares / static_cast<Acc>(size) + eps);
    for (int64_t i = 0; i < size; ++i) {
      Acc value = static_cast<sdk::Compute<T>>(from[i * x_stride]);
      value *= factor;
      if (w != nullptr) value *= static_cast<sdk::Compute<T>>(w[i * w_stride]);
      to[i * out_stride] = sdk::convert<T>(static_cast<double>(value));
    }
  } while (walk.next());
}

}  // namespace

Answer rms_norm_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2, 1);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& weight = sdk::operand(desc, 1);
  if (x.rank == 0) return sdk::invalid("x must have a last axis", 0);
  if (!absent(weight)) {
    Answer fits = all({rank_is(desc, 1, 1), dtypes_equal(desc, 1, 0)});
    if (!fits.yes()) return fits;
    if (weight.dims[0] != sdk::dim(x, -1)) return sdk::invalid("the weight must be [N]", 1);
  }
  return all({dtypes_equal(desc, 2, 0), dims_equal(desc, 2, 0), output_is_single(desc),
              output_may_alias(desc, {0})});
}

void rms_norm(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { normalize<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
