// copy: x -> out, same dtype and dims, any strides; transposes and broadcasts are strides.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer copy_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  return all({dtypes_equal(desc, 1, 0), dims_equal(desc, 1, 0), output_is_single(desc),
              output_may_alias(desc, {0})});
}

void copy(const Call& call) {
  move(sdk::operand(call.desc(), 0), call.data(0), sdk::operand(call.desc(), 1), call.data(1));
}

}  // namespace hal::cpu_ref
