// binary: one function of two elements; broadcasts are strides of 0. Integers wrap.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

// As binary.cl names them, by number in the contract.
const char* const kNames[] = {"",
                              "add",
                              "subtract",
                              "multiply",
                              "divide",
                              "floor_divide",
                              "remainder",
                              "pow",
                              "maximum",
                              "minimum",
                              "atan2",
                              "equal",
                              "not_equal",
                              "less",
                              "less_equal",
                              "greater",
                              "greater_equal",
                              "logical_and",
                              "logical_or",
                              "logical_xor",
                              "bitwise_and",
                              "bitwise_or",
                              "bitwise_xor",
                              "shift_left",
                              "shift_right",
                              "logaddexp",
                              "copysign",
                              "nextafter",
                              "hypot"};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == ANYHAL_BINARY_FN_HYPOT + 1);

}  // namespace

void binary_plan(Builder& builder) {
  const Tensor &a = builder.operand(0), &out = builder.operand(2);
  const Walk walk = walk_of(a, builder.operand(1), out);
  if (walk.count() == 0) return;
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(builder.desc()).fn;
  Options options;
  options.dtype("X", a).dtype("Y", out).set("FN", std::string("fn_") + kNames[fn]);
  if (fn == ANYHAL_BINARY_FN_NEXTAFTER) options.set("NEIGHBOUR");
  if (sdk::kFloats.has(a.dtype)) options.set("FLOATS");
  if (a.dtype == ANYHAL_DTYPE_BOOL) options.set("TRUTHS");
  options.set("UNSIGNED", unsigned_type(element_bytes(a)));
  if (walk.dense()) options.set("DENSE");
  builder.launch(kBinarySource, "binary", options)
      .operand(0)
      .operand(1)
      .operand(2)
      .walk(walk)
      .value(static_cast<uint64_t>(walk.count()))
      .run(static_cast<size_t>(walk.count()), builder.group(256));
}

}  // namespace hal::opencl
