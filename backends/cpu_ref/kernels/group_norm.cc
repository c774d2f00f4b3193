// group_norm: as layer_norm, over groups of channels and all that follows them.
// SPDX-License-Identifier: Apache-2.0
#include "norm.h"

namespace hal::cpu_ref {

Answer group_norm_fits(const Desc& desc) {
  Answer count = operands_are(desc, 4, 1, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const int32_t groups = sdk::attributes<anyhal_attrs_group_norm>(desc).groups;
  if (x.rank < 2 || groups < 1 || x.dims[1] % groups != 0)
    return sdk::invalid("the groups must divide the channels of x [N, C, ...]", 0);
  return all({vector_fits(desc, 1, 1, 1), vector_fits(desc, 2, 1, 1), residual_fits(desc, 3)});
}

void group_norm(const Call& call) {
  const Desc& desc = call.desc();
  const auto attrs = sdk::attributes<anyhal_attrs_group_norm>(desc);
  const NormOperands operands = {{0, 3, 1, 2, 4, 5}};
  const Tensor& x = sdk::operand(desc, 0);
  const int64_t width = x.dims[1] / attrs.groups;
  sdk::visit(sdk::FloatTypes{}, x.dtype, [&](auto t) {
    NormRows<typename decltype(t)::is> rows(call, operands);
    // `times` steps of dim d at once; weight and bias have the channel's dim only.
    auto add = [&](auto& walk, int64_t dim, uint32_t d, int64_t times) {
      int64_t strides[NormOperands::kCount] = {};
      for (int k = 0; k < NormOperands::kCount; ++k) {
        if (rows.data[k] == nullptr) continue;
        const Tensor& operand = sdk::operand(desc, operands.number[k]);
        const bool vector = k == NormOperands::kWeight || k == NormOperands::kBias;
        if (vector && d != 1) continue;
        strides[k] = operand.strides[vector ? 0 : d] * times;
      }
      walk.add(dim, strides);
    };
    add(rows.outer, x.dims[0], 0, 1);
    add(rows.outer, attrs.groups, 1, width);
    add(rows.inner, width, 1, 1);
    for (uint32_t d = 2; d < x.rank; ++d) add(rows.inner, x.dims[d], d, 1);
    rows.normalize(attrs.eps, true);
  });
}

}  // namespace hal::cpu_ref
