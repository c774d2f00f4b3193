// softmax: exp(x - max(x)) over their sum, along one axis.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {

Answer softmax_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  return all({axis_in(sdk::attributes<anyhal_attrs_softmax>(desc).axis, sdk::operand(desc, 0).rank),
              dtypes_equal(desc, 1, 0), dims_equal(desc, 1, 0), output_is_single(desc),
              output_may_alias(desc, {0})});
}

void softmax_plan(Builder& builder) {
  const Tensor &x = builder.operand(0), &out = builder.operand(1);
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_softmax>(builder.desc()).axis);
  Walk slices;
  for (uint32_t d = 0; d < x.rank; ++d)
    if (d != axis) slices.add(x.dims[d], {x.strides[d], out.strides[d]});
  if (slices.count() == 0 || x.dims[axis] == 0) return;
  const size_t group = builder.group(64);
  builder
      .launch(kSoftmaxSource, "softmax",
              Options().dtype("X", x).set("GROUP", static_cast<int64_t>(group)))
      .operand(0)
      .operand(1)
      .walk(slices)
      .value(x.dims[axis])
      .value(x.strides[axis])
      .value(out.strides[axis])
      .run({static_cast<size_t>(slices.count())}, {group});
}

}  // namespace hal::opencl
