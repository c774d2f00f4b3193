// rms_norm: t / sqrt(mean(t^2) + eps) * weight along the last axis of t = x + residual.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

// Twin of Norm in rms_norm.cl.
struct Norm {
  int64_t size;
  int64_t x, out, residual, total, weight;
  float eps;
  int32_t padding;
};

// A description of two inputs is the form without a residual.
bool has_residual(const Desc& desc) {
  return desc.input_count == 3 && !absent(sdk::operand(desc, 2));
}

}  // namespace

Answer rms_norm_fits(const Desc& desc) {
  const bool long_form = desc.input_count == 3;
  Answer count = long_form ? operands_are(desc, 3, 1, 2) : operands_are(desc, 2, 1);
  if (!count.yes()) return count;
  const Tensor &x = sdk::operand(desc, 0), &weight = sdk::operand(desc, 1);
  if (x.rank == 0) return sdk::invalid("x must have a last axis", 0);
  if (!absent(weight) && (weight.rank != 1 || weight.dims[0] != sdk::dim(x, -1)))
    return sdk::invalid("the weight must have the last dim of x", 1);
  const uint32_t out = desc.input_count;
  Answer fits = all({absent(weight) ? sdk::yes() : dtypes_equal(desc, 1, 0),
                     dtypes_equal(desc, out, 0), dims_equal(desc, out, 0), output_is_single(desc)});
  if (!fits.yes() || !long_form) return fits.yes() ? output_may_alias(desc, {0}) : fits;
  if (absent(sdk::operand(desc, 2)) != absent(sdk::operand(desc, 4)))
    return sdk::invalid("the total is present exactly when the residual is", 2);
  if (!has_residual(desc)) return output_may_alias(desc, {0});
  return all({dtypes_equal(desc, 2, 0), dims_equal(desc, 2, 0), dtypes_equal(desc, 4, 0),
              dims_equal(desc, 4, 0), output_may_alias(desc, {0, 2}),
              output_may_alias(desc, {0, 2}, 1)});
}

void rms_norm_plan(Builder& builder) {
  const Desc& desc = builder.desc();
  const bool residual = has_residual(desc);
  const uint32_t out_at = desc.input_count;
  const Tensor &x = builder.operand(0), &out = builder.operand(out_at);
  const Tensor& added = builder.operand(residual ? 2 : 0);
  const Tensor& total = builder.operand(residual ? 4 : 0);
  Walk rows;
  for (uint32_t d = 0; d + 1 < x.rank; ++d)
    rows.add(x.dims[d], {x.strides[d], out.strides[d], added.strides[d], total.strides[d]});
  if (rows.count() == 0 || sdk::dim(x, -1) == 0) return;
  const Norm norm = {sdk::dim(x, -1),
                     sdk::stride(x, -1),
                     sdk::stride(out, -1),
                     sdk::stride(added, -1),
                     sdk::stride(total, -1),
                     builder.present(1) ? builder.operand(1).strides[0] : 0,
                     sdk::attributes<anyhal_attrs_rms_norm>(desc).eps,
                     0};
  const size_t group = builder.group(64);
  Options options;
  options.dtype("X", x).set("GROUP", static_cast<int64_t>(group));
  if (builder.present(1)) options.set("WEIGHT");
  if (residual) options.set("RESIDUAL");
  LaunchBuilder launch = builder.launch(kRmsNormSource, "rms_norm", options);
  launch.operand(0).operand(out_at);
  if (builder.present(1)) launch.operand(1);
  if (residual) launch.operand(2).operand(4);
  launch.walk(rows).value(norm).run({static_cast<size_t>(rows.count())}, {group});
}

}  // namespace hal::opencl
