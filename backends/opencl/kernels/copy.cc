// copy: x -> out, same dtype and dims, any strides; transposes and broadcasts are strides.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {

// Blocks have odd sizes: the largest power of two that divides one, as far as it is aligned.
Units units_of(const Tensor& t) {
  const uint32_t bytes = element_bytes(t);
  uint32_t unit = bytes & ~(bytes - 1);
  if (sdk::dtype_facts(t.dtype).block_elements > 1 && unit > 2) unit = 2;
  return {unit, bytes / unit};
}

void move_plan(Builder& builder, uint32_t from, uint32_t to, bool repeats) {
  const Tensor &x = builder.operand(from), &out = builder.operand(to);
  const Units units = units_of(out);
  Walk walk;
  for (uint32_t d = 0; d < out.rank; ++d)
    walk.add(sdk::steps(out, d),
             {repeats ? 0 : x.strides[d] * units.count, out.strides[d] * units.count});
  walk.add(units.count, {1, 1});
  if (walk.count() == 0) return;
  Options options;
  options.set("UNIT", unsigned_type(units.bytes));
  if (walk.dense()) options.set("DENSE");
  builder.launch(kCopySource, "copy", options)
      .operand(from)
      .operand(to)
      .walk(walk)
      .value(static_cast<uint64_t>(walk.count()))
      .run(static_cast<size_t>(walk.count()), builder.group(256));
}

Answer copy_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  return all({dtypes_equal(desc, 1, 0), dims_equal(desc, 1, 0), output_is_single(desc),
              output_may_alias(desc, {0})});
}

void copy_plan(Builder& builder) {
  if (builder.operand(1).alias_of == 0) move_plan(builder, 0, 1, false);
}

}  // namespace hal::opencl
