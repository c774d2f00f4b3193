// stack: the inputs side by side along a new axis.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer stack_fits(const Desc& desc) {
  Answer count = operands_are(desc, desc.operand_count - 1);
  if (!count.yes()) return count;
  const Tensor& out = sdk::output(desc);
  const int32_t axis = sdk::attributes<anyhal_attrs_stack>(desc).axis;
  Answer inside = axis_in(axis, out.rank);
  if (!inside.yes()) return inside;
  if (out.dims[axis] != desc.input_count) return sdk::invalid("the axis does not count the inputs");
  for (uint32_t i = 0; i < desc.input_count; ++i) {
    const Tensor& x = sdk::operand(desc, i);
    Answer kind = all({rank_is(desc, i, out.rank - 1), dtypes_equal(desc, i, desc.input_count)});
    if (!kind.yes()) return kind;
    for (uint32_t d = 0; d < x.rank; ++d) {
      if (x.dims[d] != out.dims[d < static_cast<uint32_t>(axis) ? d : d + 1])
        return sdk::invalid("dims must be those of the output", static_cast<int32_t>(i));
    }
  }
  return all({output_is_single(desc), output_may_alias(desc, {})});
}

void stack(const Call& call) {
  const Tensor& out = sdk::output(call.desc());
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_stack>(call.desc()).axis);
  Part part(out);
  part.remove(axis, 1);
  for (uint32_t i = 0; i < call.desc().input_count; ++i)
    move(sdk::operand(call.desc(), i), call.data(i), part,
         call.data(call.desc().input_count) + i * step_bytes(out, axis));
}

}  // namespace hal::cpu_ref
