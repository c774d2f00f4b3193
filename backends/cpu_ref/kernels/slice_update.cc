// slice_update: out = x, but the update from the starts (or positions) on.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer slice_update_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& update = sdk::operand(desc, 1);
  const Tensor& positions = sdk::operand(desc, 2);
  auto attributes = sdk::attributes<anyhal_attrs_slice_update>(desc);
  Answer rank = rank_is(desc, 1, x.rank);
  if (!rank.yes()) return rank;
  for (uint32_t d = 0; d < x.rank; ++d) {
    const int64_t room = x.dims[d] - update.dims[d];
    if (room < 0 || (absent(positions) && attributes.starts[d] > static_cast<uint64_t>(room)))
      return sdk::invalid("the update does not fit into x where it starts", 1);
  }
  if (!absent(positions)) {
    if (positions.rank != 1 || positions.dims[0] != x.rank)
      return sdk::invalid("positions must have one number for each axis", 2);
    Answer kind = dtype_in(desc, 2, sdk::kIndices);
    if (!kind.yes()) return kind;
  }
  return all({dtypes_equal(desc, 1, 0), dtypes_equal(desc, 3, 0), dims_equal(desc, 3, 0),
              output_is_single(desc), output_may_alias(desc, {0})});
}

void slice_update(const Call& call) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& update = sdk::operand(call.desc(), 1);
  const Tensor& positions = sdk::operand(call.desc(), 2);
  const Tensor& out = sdk::operand(call.desc(), 3);
  auto attributes = sdk::attributes<anyhal_attrs_slice_update>(call.desc());
  Part block(out);
  int64_t place = 0;
  for (uint32_t d = 0; d < out.rank; ++d) {
    int64_t start = static_cast<int64_t>(attributes.starts[d]);
    if (!absent(positions)) {
      Part one(positions);
      one.remove(0, 1);
      const char* at = call.data(2) + d * step_bytes(positions, 0);
      check_indices(one, at, x.dims[d] - update.dims[d] + 1);
      start = index_at(positions, at, 0);
    }
    block.cut(d, update.dims[d]);
    place += start * step_bytes(out, d);
  }
  move(x, call.data(0), out, call.data(3));
  move(update, call.data(1), block, call.data(3) + place);
}

}  // namespace hal::cpu_ref
