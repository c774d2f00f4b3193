// reduce: x -> out over whole axes; out has x's rank, with 1 where x was reduced.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

constexpr int64_t kLong = 128;   // folds from here on take a group
constexpr int64_t kMany = 4096;  // results from here on keep every unit busy without

const char* const kNames[] = {"", "sum", "mean", "prod", "max", "min", "any", "all"};

// The smallest or largest value of a dtype, from which a maximum or minimum starts.
std::string extreme_of(const Tensor& x, bool smallest) {
  if (sdk::kFloats.has(x.dtype)) return smallest ? "(-INFINITY)" : "INFINITY";
  const std::string bits = std::to_string(8 * element_bytes(x));
  if (sdk::kUnsigned.has(x.dtype)) return smallest ? "0" : "(Acc)~(ulong)0";
  const std::string top = "(Acc)(1UL<<(" + bits + "-1))";
  return smallest ? top : "(Acc)~(1UL<<(" + bits + "-1))";
}

void set_numbers(Options& options, const Tensor& x, int32_t fn) {
  const bool extreme = fn == ANYHAL_REDUCE_FN_MAX || fn == ANYHAL_REDUCE_FN_MIN;
  const bool truths = fn == ANYHAL_REDUCE_FN_ANY || fn == ANYHAL_REDUCE_FN_ALL;
  const std::string own = std::string("value_") + token(x.dtype);
  // Integers wrap in 64 bits, as unsigned numbers; signed ones are extended before.
  options.set("SUM", sdk::kFloats.has(x.dtype) || extreme || truths ? own : "ulong");
  if (fn == ANYHAL_REDUCE_FN_MAX) {
    options.set("START", extreme_of(x, true));
  } else if (fn == ANYHAL_REDUCE_FN_MIN) {
    options.set("START", extreme_of(x, false));
  } else {
    options.set("START", fn == ANYHAL_REDUCE_FN_PROD || fn == ANYHAL_REDUCE_FN_ALL ? 1 : 0);
  }
  if (fn == ANYHAL_REDUCE_FN_MEAN) options.set("MEAN");
}

}  // namespace

void reduce_plan(Builder& builder) {
  const Tensor &x = builder.operand(0), &out = builder.operand(1);
  const auto attributes = sdk::attributes<anyhal_attrs_reduce>(builder.desc());
  Walk kept, axes;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (attributes.axes >> d & 1) {
      axes.add(x.dims[d], {x.strides[d]});
    } else {
      kept.add(x.dims[d], {x.strides[d], out.strides[d]});
    }
  }
  if (kept.count() == 0) return;
  const bool grouped = axes.count() >= kLong && kept.count() < kMany;
  const size_t group = builder.group(64);
  Options options;
  options.dtype("X", x).dtype("Y", out).set("FN",
                                            std::string("fn_") + kNames[attributes.fn] + "_step");
  options.set("GROUP", static_cast<int64_t>(group));
  set_numbers(options, x, attributes.fn);
  LaunchBuilder launch =
      builder.launch(kReduceSource, grouped ? "reduce_group" : "reduce_item", options);
  const size_t count = static_cast<size_t>(kept.count());
  launch.operand(0)
      .operand(1)
      .walk(kept)
      .walk(axes)
      .value(static_cast<uint64_t>(kept.count()))
      .value(static_cast<uint64_t>(axes.count()));
  if (grouped) {
    launch.run({count}, {group});
  } else {
    launch.run(count, group);
  }
}

}  // namespace hal::opencl
