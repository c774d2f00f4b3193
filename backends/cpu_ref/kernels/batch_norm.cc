// batch_norm: (x + residual - mean) / sqrt(variance + eps) * weight + bias, channel by channel.
// SPDX-License-Identifier: Apache-2.0
#include "norm.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void scale_channels(const Call& call) {
  const Desc& desc = call.desc();
  const NormOperands operands = {{0, 5, 3, 4, 6, 7}};
  const Tensor &x = sdk::operand(desc, 0), &means = sdk::operand(desc, 1);
  const Tensor& variances = sdk::operand(desc, 2);
  const Squares<T> eps = sdk::attributes<anyhal_attrs_batch_norm>(desc).eps;
  for (int64_t c = 0; c < x.dims[1]; ++c) {
    NormRows<T> rows(call, operands);
    for (int k = 0; k < NormOperands::kCount; ++k) {
      if (rows.data[k] == nullptr) continue;
      const Tensor& operand = sdk::operand(desc, operands.number[k]);
      const bool vector = k == NormOperands::kWeight || k == NormOperands::kBias;
      rows.data[k] += c * operand.strides[vector ? 0 : 1] * static_cast<int64_t>(sizeof(T));
    }
    for (uint32_t d = 0; d < x.rank; ++d) {
      if (d == 1) continue;
      auto stride = [&](int k) {
        return rows.data[k] == nullptr ? 0 : sdk::operand(desc, operands.number[k]).strides[d];
      };
      rows.inner.add(x.dims[d], {stride(0), stride(1), 0, 0, stride(4), stride(5)});
    }
    if (rows.inner.empty()) return;
    using C = sdk::Compute<T>;
    const Squares<T> mean = static_cast<C>(call.view<const T>(1).data()[c * means.strides[0]]);
    const Squares<T> variance =
        static_cast<C>(call.view<const T>(2).data()[c * variances.strides[0]]);
    const Squares<T> root = std::sqrt(variance + eps);
    do rows.finish((rows.value() - mean) / root);
    while (rows.inner.next());
  }
}

}  // namespace

Answer batch_norm_fits(const Desc& desc) {
  Answer count = operands_are(desc, 6, 3, 2);
  if (!count.yes()) return count;
  if (sdk::operand(desc, 0).rank < 2) return sdk::invalid("x must be [N, C, ...]", 0);
  return all({vector_fits(desc, 1, 1, 1), vector_fits(desc, 2, 1, 1), vector_fits(desc, 3, 1, 1),
              vector_fits(desc, 4, 1, 1), residual_fits(desc, 5)});
}

void batch_norm(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { scale_channels<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
