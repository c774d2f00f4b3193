// layer_norm: (t - mean) / sqrt(variance + eps) * weight + bias over the last axes of x + residual.
// SPDX-License-Identifier: Apache-2.0
#include "norm.h"

namespace hal::cpu_ref {

Answer layer_norm_fits(const Desc& desc) {
  Answer count = operands_are(desc, 4, 1, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const int32_t axes = sdk::attributes<anyhal_attrs_layer_norm>(desc).axes;
  if (axes < 1 || axes > static_cast<int32_t>(x.rank))
    return sdk::invalid("axes counts the last axes of x", 0);
  const uint32_t over = static_cast<uint32_t>(axes), first = x.rank - over;
  return all({vector_fits(desc, 1, first, over), vector_fits(desc, 2, first, over),
              residual_fits(desc, 3)});
}

void layer_norm(const Call& call) {
  const Desc& desc = call.desc();
  const auto attrs = sdk::attributes<anyhal_attrs_layer_norm>(desc);
  const NormOperands operands = {{0, 3, 1, 2, 4, 5}};
  const Tensor& x = sdk::operand(desc, 0);
  const uint32_t first = x.rank - static_cast<uint32_t>(attrs.axes);
  sdk::visit(sdk::FloatTypes{}, x.dtype, [&](auto t) {
    NormRows<typename decltype(t)::is> rows(call, operands);
    auto stride = [&](int k, uint32_t d) {
      return rows.data[k] == nullptr ? 0 : sdk::operand(desc, operands.number[k]).strides[d];
    };
    for (uint32_t d = 0; d < x.rank; ++d) {
      const bool in = d >= first;
      (in ? rows.inner : rows.outer)
          .add(x.dims[d], {x.strides[d], stride(1, d), in ? stride(2, d - first) : 0,
                           in ? stride(3, d - first) : 0, stride(4, d), stride(5, d)});
    }
    rows.normalize(attrs.eps, true);
  });
}

}  // namespace hal::cpu_ref
