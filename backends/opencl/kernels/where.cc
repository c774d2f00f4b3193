// where: cond ? a : b, element by element; broadcasts are strides of 0.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {

void where_plan(Builder& builder) {
  const Walk walk =
      walk_of(builder.operand(0), builder.operand(1), builder.operand(2), builder.operand(3));
  if (walk.count() == 0) return;
  Options options;
  options.set("UNIT", unsigned_type(element_bytes(builder.operand(3))));
  if (walk.dense()) options.set("DENSE");
  builder.launch(kWhereSource, "where", options)
      .operand(0)
      .operand(1)
      .operand(2)
      .operand(3)
      .walk(walk)
      .value(static_cast<uint64_t>(walk.count()))
      .run(static_cast<size_t>(walk.count()), builder.group(256));
}

}  // namespace hal::opencl
