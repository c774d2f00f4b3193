// take_along_axis: out[a, i, b] = x[a, indices[a, i, b], b]. All indices are checked first.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer take_along_axis_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& out = sdk::operand(desc, 2);
  const int32_t axis = sdk::attributes<anyhal_attrs_take_along_axis>(desc).axis;
  Answer ranks = all({axis_in(axis, out.rank), rank_is(desc, 0, out.rank)});
  if (!ranks.yes()) return ranks;
  for (uint32_t d = 0; d < out.rank; ++d) {
    if (d != static_cast<uint32_t>(axis) && x.dims[d] != out.dims[d])
      return sdk::invalid("dims other than the axis must be the output's", 0);
  }
  return all({dims_equal(desc, 1, 2), dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0),
              output_is_single(desc), output_may_alias(desc, {})});
}

void take_along_axis(const Call& call) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& indices = sdk::operand(call.desc(), 1);
  const Tensor& out = sdk::operand(call.desc(), 2);
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_take_along_axis>(call.desc()).axis);
  check_indices(indices, call.data(1), x.dims[axis]);
  sdk::Odometer<3> walk;
  for (uint32_t d = 0; d < out.rank; ++d)
    walk.add(out.dims[d], {d == axis ? 0 : x.strides[d], indices.strides[d], out.strides[d]});
  if (walk.empty()) return;
  const int64_t bytes = sdk::dtype_facts(x.dtype).block_bytes;
  do {
    const int64_t index = index_at(indices, call.data(1), walk.at(1));
    std::memcpy(call.data(2) + walk.at(2) * bytes,
                call.data(0) + (walk.at(0) + index * x.strides[axis]) * bytes,
                static_cast<size_t>(bytes));
  } while (walk.next());
}

}  // namespace hal::cpu_ref
