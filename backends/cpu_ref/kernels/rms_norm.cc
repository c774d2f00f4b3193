// rms_norm: t / sqrt(mean(t^2) + eps) * weight along the last axis of t = x + residual.
// SPDX-License-Identifier: Apache-2.0
#include "norm.h"

namespace hal::cpu_ref {
namespace {

// A description of two inputs is the form without a residual.
bool has_residual(const Desc& desc) { return desc.input_count == 3; }

}  // namespace

Answer rms_norm_fits(const Desc& desc) {
  Answer count = has_residual(desc) ? operands_are(desc, 3, 1, 2) : operands_are(desc, 2, 1);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  if (x.rank == 0) return sdk::invalid("x must have a last axis", 0);
  Answer weight = vector_fits(desc, 1, x.rank - 1, 1);
  if (!weight.yes()) return weight;
  if (has_residual(desc)) return residual_fits(desc, 2);
  return all({dtypes_equal(desc, 2, 0), dims_equal(desc, 2, 0), output_is_single(desc),
              output_may_alias(desc, {0})});
}

void rms_norm(const Call& call) {
  const Desc& desc = call.desc();
  const bool residual = has_residual(desc);
  const int64_t inputs = desc.input_count;
  const NormOperands operands = {{0, residual ? 2 : -1, 1, -1, inputs, residual ? inputs + 1 : -1}};
  const Tensor& x = sdk::operand(desc, 0);
  sdk::visit(sdk::FloatTypes{}, x.dtype, [&](auto t) {
    NormRows<typename decltype(t)::is> rows(call, operands);
    auto stride = [&](int k, uint32_t d) {
      return rows.data[k] == nullptr ? 0 : sdk::operand(desc, operands.number[k]).strides[d];
    };
    for (uint32_t d = 0; d < x.rank; ++d) {
      const bool last = d + 1 == x.rank;
      (last ? rows.inner : rows.outer)
          .add(x.dims[d], {x.strides[d], stride(1, d), last ? stride(2, 0) : 0, 0, stride(4, d),
                           stride(5, d)});
    }
    rows.normalize(sdk::attributes<anyhal_attrs_rms_norm>(desc).eps, false);
  });
}

}  // namespace hal::cpu_ref
