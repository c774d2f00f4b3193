// unary: one function of each element. f16 and bf16 are computed in f32 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

// As unary.cl names them, by number in the contract.
const char* const kNames[] = {
    "",        "neg",    "abs",        "sign",        "exp",         "expm1", "log",   "log1p",
    "sqrt",    "rsqrt",  "reciprocal", "sin",         "cos",         "tanh",  "erf",   "floor",
    "ceil",    "round",  "trunc",      "logical_not", "bitwise_not", "isnan", "isinf", "isfinite",
    "sigmoid", "relu",   "silu",       "gelu",        "gelu_tanh",   "tan",   "asin",  "acos",
    "atan",    "sinh",   "cosh",       "asinh",       "acosh",       "atanh", "log2",  "log10",
    "exp2",    "square", "positive",   "signbit",     "softplus"};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == ANYHAL_UNARY_FN_SOFTPLUS + 1);

}  // namespace

void unary_plan(Builder& builder) {
  const Tensor &x = builder.operand(0), &out = builder.operand(1);
  const Walk walk = walk_of(x, out);
  if (walk.count() == 0) return;
  int32_t fn = sdk::attributes<anyhal_attrs_unary>(builder.desc()).fn;
  if (x.dtype == ANYHAL_DTYPE_BOOL) fn = ANYHAL_UNARY_FN_LOGICAL_NOT;  // both functions of bool
  Options options;
  options.dtype("X", x).dtype("Y", out).set("FN", std::string("fn_") + kNames[fn]);
  if (sdk::kFloats.has(x.dtype)) {
    options.set("FLOATS");
  } else {
    options.set("UNSIGNED", unsigned_type(element_bytes(x)));
  }
  if (walk.dense()) options.set("DENSE");
  builder.launch(kUnarySource, "unary", options)
      .operand(0)
      .operand(1)
      .walk(walk)
      .value(static_cast<uint64_t>(walk.count()))
      .run(static_cast<size_t>(walk.count()), builder.group(256));
}

}  // namespace hal::opencl
