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

bool is_comparison(int32_t fn) {
  return fn >= ANYHAL_BINARY_FN_EQUAL && fn <= ANYHAL_BINARY_FN_GREATER_EQUAL;
}

sdk::Dtypes inputs_of(int32_t fn) {
  if (is_comparison(fn)) return sdk::kPlain;
  switch (fn) {
    case ANYHAL_BINARY_FN_DIVIDE:
    case ANYHAL_BINARY_FN_ATAN2:
    case ANYHAL_BINARY_FN_LOGADDEXP:
    case ANYHAL_BINARY_FN_COPYSIGN:
    case ANYHAL_BINARY_FN_NEXTAFTER:
    case ANYHAL_BINARY_FN_HYPOT:
      return sdk::kFloats;
    case ANYHAL_BINARY_FN_LOGICAL_AND:
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
      return sdk::kBool;
    case ANYHAL_BINARY_FN_BITWISE_AND:
    case ANYHAL_BINARY_FN_BITWISE_OR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return sdk::kInts | sdk::kBool;
    case ANYHAL_BINARY_FN_SHIFT_LEFT:
    case ANYHAL_BINARY_FN_SHIFT_RIGHT:
      return sdk::kInts;
    default:
      return sdk::kNumbers;
  }
}

}  // namespace

Answer binary_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  return all({choice_in(fn, ANYHAL_BINARY_FN_HYPOT), dtype_in(desc, 0, inputs_of(fn)),
              dtypes_equal(desc, 1, 0),
              is_comparison(fn) ? dtype_in(desc, 2, sdk::kBool) : dtypes_equal(desc, 2, 0),
              dims_equal(desc, 0, 2), dims_equal(desc, 1, 2), output_is_single(desc),
              output_may_alias(desc, {0, 1})});
}

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
