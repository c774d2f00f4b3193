// fill: one value (0-d) -> every element of out.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer fill_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  return all({rank_is(desc, 0, 0), dtypes_equal(desc, 1, 0), output_is_single(desc),
              output_may_alias(desc, {})});
}

// A fill is a copy whose source has stride 0 everywhere.
void fill(const Call& call) {
  const Tensor& out = sdk::operand(call.desc(), 1);
  static constexpr int64_t kZeros[sdk::kRankMax] = {};
  Tensor value = out;
  value.strides = kZeros;
  move(value, call.data(0), out, call.data(1));
}

}  // namespace hal::cpu_ref
