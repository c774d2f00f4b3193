// What the losses, backward ops and optimiser steps share.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_TRAINING_H_
#define BACKENDS_CPU_REF_KERNELS_TRAINING_H_

#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

// The type of losses and states beside values of type T.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The same for a dtype of the contract.
inline uint32_t wide_dtype(uint32_t dtype) {
  return dtype == ANYHAL_DTYPE_F64 ? ANYHAL_DTYPE_F64 : ANYHAL_DTYPE_F32;
}

inline Answer is_wide(const Desc& desc, uint32_t i, uint32_t main) {
  return dtype_in(desc, i, sdk::dtypes(wide_dtype(sdk::operand(desc, main).dtype)));
}

template <class T>
double value_of(const T& x) {
  return static_cast<double>(x);
}

// The operand, if it is present, is [N] like the last axis of operand `main` and has its dtype.
inline Answer is_last_axis(const Desc& desc, uint32_t i, uint32_t main) {
  if (absent(sdk::operand(desc, i))) return sdk::yes();
  Answer kind = all({rank_is(desc, i, 1), dtypes_equal(desc, i, main)});
  if (!kind.yes()) return kind;
  if (sdk::operand(desc, i).dims[0] != sdk::dim(sdk::operand(desc, main), -1))
    return sdk::invalid("this operand must be [N]", static_cast<int32_t>(i));
  return sdk::yes();
}

// No output is the memory of an input.
inline Answer outputs_stand_alone(const Desc& desc) {
  for (uint32_t i = desc.input_count; i < desc.operand_count; ++i) {
    const Tensor& out = sdk::operand(desc, i);
    if (!absent(out) && out.alias_of != 0)
      return sdk::no(ANYHAL_REASON_LAYOUT, "this output may not be the memory of an input",
                     static_cast<int32_t>(i));
  }
  return output_is_single(desc);
}

// Output i is input i, for the first `count`.
inline Answer outputs_are_inputs(const Desc& desc, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t out = desc.input_count + i;
    const Tensor& written = sdk::operand(desc, out);
    if (written.alias_of != i + 1 && sdk::element_count(written) != 0)
      return sdk::no(ANYHAL_REASON_LAYOUT, "each output must be the input of its place",
                     static_cast<int32_t>(out));
    Answer same = all({dims_equal(desc, out, i), dtypes_equal(desc, out, i)});
    if (!same.yes()) return same;
  }
  return output_is_single(desc);
}

// Targets are [...] of logits [..., C]; the loss is [...], or one number unless reduction is none.
template <class Attributes>
Answer loss_fits(const Desc& desc, uint32_t loss) {
  const Tensor& logits = sdk::operand(desc, 0);
  const Tensor& targets = sdk::operand(desc, 1);
  const int32_t reduction = sdk::attributes<Attributes>(desc).reduction;
  bool fits = logits.rank == targets.rank + 1;
  for (uint32_t d = 0; fits && d < targets.rank; ++d) fits = logits.dims[d] == targets.dims[d];
  if (!fits) return sdk::invalid("logits must be [..., C] and targets [...]", 1);
  if (sdk::dim(logits, -1) == 0 && sdk::element_count(targets) != 0)
    return sdk::invalid("there is no class", 0);
  const bool each = reduction == ANYHAL_LOSS_REDUCTION_NONE;
  return all({choice_in(reduction, ANYHAL_LOSS_REDUCTION_SUM), dtype_in(desc, 1, sdk::kIndices),
              is_wide(desc, loss, 0), each ? dims_equal(desc, loss, 1) : rank_is(desc, loss, 0)});
}

// How many targets count. Throws for one that is no class. Called before anything is written.
inline int64_t count_targets(const Call& call, const char* op, int64_t classes, int64_t ignored) {
  const Tensor& targets = sdk::operand(call.desc(), 1);
  int64_t count = 0;
  sdk::Rows<1> rows({&targets});
  rows.each([&](const int64_t (&at)[1]) {
    for (int64_t i = 0; i < rows.row_count; ++i) {
      const int64_t target = index_at(targets, call.data(1), at[0] + i * rows.row_strides[0]);
      if (target == ignored) continue;
      if (target < 0 || target >= classes)
        throw sdk::Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                           "%s on cpu_ref: target %lld is neither a class in [0, %lld) nor "
                           "ignore_index %lld; correct the targets (nothing was written)",
                           op, static_cast<long long>(target), static_cast<long long>(classes),
                           static_cast<long long>(ignored));
      ++count;
    }
  });
  return count;
}

// One row of logits: its maximum, and the logarithm of the sum of exp(x - top). NaN as the rule is.
struct LogSum {
  double top, total = 0, log;

  template <class T>
  LogSum(const T* row, int64_t stride, int64_t count) {
    top = value_of(row[0]);
    for (int64_t i = 1; i < count; ++i)
      top = value_of(row[i * stride]) > top ? value_of(row[i * stride]) : top;
    for (int64_t i = 0; i < count; ++i) total += std::exp(value_of(row[i * stride]) - top);
    log = std::log(total);
  }
};

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_TRAINING_H_
