// matmul_epilogue: act(scale * (a @ b) + bias) * multiplier + residual, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "product.h"

namespace hal::cpu_ref {

Answer matmul_epilogue_fits(const Desc& desc) {
  Answer count = operands_are(desc, 5, 2);
  if (!count.yes()) return count;
  auto attributes = sdk::attributes<anyhal_attrs_matmul_epilogue>(desc);
  // The epilogue's check looks at the output's last dim, so that there must be one.
  Answer dims = product_dims_fit(desc);
  if (!dims.yes()) return dims;
  return all({dtypes_equal(desc, 1, 0), epilogue_fits(desc, attributes.activation)});
}

void matmul_epilogue(const Call& call) {
  auto attributes = sdk::attributes<anyhal_attrs_matmul_epilogue>(call.desc());
  const Epilogue epilogue(call, attributes.activation, attributes.scale);
  const Tensor* const* t = epilogue.tensors();
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto type) {
    rows_of_product<double, typename decltype(type)::is, 3>(call, {t[1], t[2], t[3]}, epilogue);
  });
}

}  // namespace hal::cpu_ref
