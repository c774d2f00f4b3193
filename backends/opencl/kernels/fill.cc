// fill: one value (0-d) -> every element of out; a copy whose source has stride 0 everywhere.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {

Answer fill_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  return all({rank_is(desc, 0, 0), dtypes_equal(desc, 1, 0), output_is_single(desc),
              output_may_alias(desc, {})});
}

void fill_plan(Builder& builder) { move_plan(builder, 0, 1, true); }

}  // namespace hal::opencl
