// gather: out[a..., i..., b...] = x[a..., indices[i...], b...]. All indices are checked first.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {

Answer gather_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const Tensor &x = sdk::operand(desc, 0), &indices = sdk::operand(desc, 1);
  const int32_t axis = sdk::attributes<anyhal_attrs_gather>(desc).axis;
  Answer inside = axis_in(axis, x.rank);
  if (!inside.yes()) return inside;
  const uint32_t at = static_cast<uint32_t>(axis);
  if (!dims_replaced(x, at, indices, sdk::operand(desc, 2)))
    return sdk::invalid("the output's dims do not fit", 2);
  if (sdk::dtype_facts(x.dtype).block_elements > 1 && at + 1 == x.rank)
    return sdk::no(ANYHAL_REASON_LAYOUT, "gathering along the last axis would cut blocks", 0);
  return all({dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0), output_is_single(desc),
              output_may_alias(desc, {})});
}

void gather_plan(Builder& builder) {
  const Tensor &x = builder.operand(0), &indices = builder.operand(1), &out = builder.operand(2);
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_gather>(builder.desc()).axis);
  const Units units = units_of(x);
  Walk walk;  // x, indices, out
  for (uint32_t d = 0; d < out.rank; ++d) {
    const bool picks = d >= axis && d < axis + indices.rank;
    const uint32_t own = d < axis ? d : d - indices.rank + 1;
    walk.add(sdk::steps(out, d),
             {picks ? 0 : x.strides[own] * units.count, picks ? indices.strides[d - axis] : 0,
              out.strides[d] * units.count});
  }
  walk.add(units.count, {1, 0, 1});
  builder.check_indices(1, x.dims[axis]);
  if (walk.count() == 0) return;
  builder
      .launch(kGatherSource, "gather",
              Options().dtype("INDEX", indices).set("UNIT", unsigned_type(units.bytes)))
      .operand(0)
      .operand(1)
      .operand(2)
      .walk(walk)
      .value(static_cast<uint64_t>(walk.count()))
      .value(x.strides[axis] * units.count)
      .fault()
      .run(static_cast<size_t>(walk.count()), builder.group(256));
}

}  // namespace hal::opencl
