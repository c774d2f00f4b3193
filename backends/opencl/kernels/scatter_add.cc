// scatter_add: out = target, then out[a..., indices[i...], b...] += updates[a..., i..., b...].
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

const char* sum_of(uint32_t dtype) {
  if (dtype == ANYHAL_DTYPE_F64) return "double";
  return sdk::kFloats.has(dtype) ? "float" : "ulong";
}

}  // namespace

Answer scatter_add_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  const Tensor &target = sdk::operand(desc, 0), &indices = sdk::operand(desc, 1);
  const int32_t axis = sdk::attributes<anyhal_attrs_scatter_add>(desc).axis;
  Answer inside = axis_in(axis, target.rank);
  if (!inside.yes()) return inside;
  if (!dims_replaced(target, static_cast<uint32_t>(axis), indices, sdk::operand(desc, 2)))
    return sdk::invalid("the dims of the updates do not fit", 2);
  return all({dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0), dtypes_equal(desc, 3, 0),
              dims_equal(desc, 3, 0), output_is_single(desc), output_may_alias(desc, {0})});
}

void scatter_add_plan(Builder& builder) {
  const Tensor &target = builder.operand(0), &indices = builder.operand(1);
  const Tensor &updates = builder.operand(2), &out = builder.operand(3);
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_scatter_add>(builder.desc()).axis);
  Walk places, list;
  int64_t inner = 1;
  for (uint32_t d = 0; d < out.rank; ++d) {
    const int64_t update = d < axis    ? updates.strides[d]
                           : d == axis ? 0
                                       : updates.strides[d - 1 + indices.rank];
    places.add(out.dims[d], {target.strides[d], out.strides[d], update});
    if (d > axis) inner *= out.dims[d];
  }
  for (uint32_t d = 0; d < indices.rank; ++d)
    list.add(indices.dims[d], {indices.strides[d], updates.strides[axis + d]});
  builder.check_indices(1, target.dims[axis]);
  if (places.count() == 0) return;
  builder
      .launch(kScatterAddSource, "scatter_add",
              Options().dtype("X", out).dtype("INDEX", indices).set("SUM", sum_of(out.dtype)))
      .operand(0)
      .operand(1)
      .operand(2)
      .operand(3)
      .walk(places)
      .walk(list)
      .value(static_cast<uint64_t>(places.count()))
      .value(static_cast<uint64_t>(list.count()))
      .value(static_cast<uint64_t>(inner))
      .value(out.dims[axis])
      .fault()
      .run(static_cast<size_t>(places.count()), builder.group(64));
}

}  // namespace hal::opencl
