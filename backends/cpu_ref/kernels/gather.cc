// gather: out[a..., i..., b...] = x[a..., indices[i...], b...]. All indices are checked first.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer gather_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& indices = sdk::operand(desc, 1);
  const Tensor& out = sdk::operand(desc, 2);
  const int32_t axis = sdk::attributes<anyhal_attrs_gather>(desc).axis;
  Answer inside = axis_in(axis, x.rank);
  if (!inside.yes()) return inside;
  const uint32_t at = static_cast<uint32_t>(axis);
  if (out.rank != x.rank - 1 + indices.rank)
    return sdk::invalid("the output's rank does not fit", 2);
  bool fits = true;
  for (uint32_t d = 0; d < out.rank; ++d) {
    int64_t want = d < at                  ? x.dims[d]
                   : d < at + indices.rank ? indices.dims[d - at]
                                           : x.dims[d - indices.rank + 1];
    fits = fits && out.dims[d] == want;
  }
  if (!fits) return sdk::invalid("the output's dims do not fit", 2);
  if (sdk::dtype_facts(x.dtype).block_elements > 1 && at + 1 == x.rank)
    return sdk::no(ANYHAL_REASON_LAYOUT, "gathering along the last axis would cut blocks", 0);
  return all({dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0), output_is_single(desc),
              output_may_alias(desc, {})});
}

void gather(const Call& call) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& indices = sdk::operand(call.desc(), 1);
  const Tensor& out = sdk::operand(call.desc(), 2);
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_gather>(call.desc()).axis);
  check_indices(indices, call.data(1), x.dims[axis]);
  Part from(x), to(out);
  from.remove(axis, 1);
  to.remove(axis, indices.rank);
  sdk::Odometer<2> walk = index_walk(indices, out, axis);
  if (walk.empty()) return;
  do {
    int64_t index = index_at(indices, call.data(1), walk.at(0));
    move(from, call.data(0) + index * step_bytes(x, axis), to, call.data(2) + walk.at(1));
  } while (walk.next());
}

}  // namespace hal::cpu_ref
