// concat: the inputs one after the other along one axis.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer concat_fits(const Desc& desc) {
  Answer count = operands_are(desc, desc.operand_count - 1);
  if (!count.yes()) return count;
  const Tensor& out = sdk::output(desc);
  const int32_t axis = sdk::attributes<anyhal_attrs_concat>(desc).axis;
  Answer inside = axis_in(axis, out.rank);
  if (!inside.yes()) return inside;
  int64_t total = 0;
  for (uint32_t i = 0; i < desc.input_count; ++i) {
    const Tensor& x = sdk::operand(desc, i);
    Answer kind = all({rank_is(desc, i, out.rank), dtypes_equal(desc, i, desc.input_count)});
    if (!kind.yes()) return kind;
    for (uint32_t d = 0; d < out.rank; ++d) {
      if (d != static_cast<uint32_t>(axis) && x.dims[d] != out.dims[d])
        return sdk::invalid("dims other than the axis must agree", static_cast<int32_t>(i));
    }
    total += x.dims[axis];
  }
  if (total != out.dims[axis])
    return sdk::invalid("the sizes along the axis do not add up to the output's");
  return all({output_is_single(desc), output_may_alias(desc, {})});
}

void concat(const Call& call) {
  const Tensor& out = sdk::output(call.desc());
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_concat>(call.desc()).axis);
  char* to = call.data(call.desc().input_count);
  for (uint32_t i = 0; i < call.desc().input_count; ++i) {
    const Tensor& x = sdk::operand(call.desc(), i);
    Part part(out);
    part.cut(axis, x.dims[axis]);
    move(x, call.data(i), part, to);
    to += sdk::steps(x, axis) * step_bytes(out, axis);
  }
}

}  // namespace hal::cpu_ref
