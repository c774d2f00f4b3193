// Questions that several ops ask of a description.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_OPENCL_KERNELS_CONDITIONS_H_
#define BACKENDS_OPENCL_KERNELS_CONDITIONS_H_

#include <initializer_list>

#include "ops.h"

namespace hal::opencl {

// The first answer that is not yes. Arguments are evaluated first, so each must stand alone.
inline Answer all(std::initializer_list<Answer> answers) {
  for (const Answer& answer : answers)
    if (!answer.yes()) return answer;
  return sdk::yes();
}

// Inputs before `required` and the first output are present.
inline Answer operands_are(const Desc& desc, uint32_t inputs, uint32_t required,
                           uint32_t outputs = 1) {
  if (desc.input_count != inputs || desc.operand_count != inputs + outputs)
    return sdk::invalid("the number of operands is wrong");
  for (uint32_t i = 0; i < required; ++i)
    if (absent(sdk::operand(desc, i)))
      return sdk::invalid("a required operand is absent", static_cast<int32_t>(i));
  if (absent(sdk::output(desc))) return sdk::invalid("the output is absent");
  return sdk::yes();
}

inline Answer operands_are(const Desc& desc, uint32_t inputs) {
  return operands_are(desc, inputs, inputs);
}

inline Answer rank_is(const Desc& desc, uint32_t i, uint32_t rank) {
  if (sdk::operand(desc, i).rank == rank) return sdk::yes();
  return sdk::invalid("an operand has the wrong rank", static_cast<int32_t>(i));
}

inline Answer dims_equal(const Desc& desc, uint32_t i, uint32_t j) {
  if (sdk::same_dims(sdk::operand(desc, i), sdk::operand(desc, j))) return sdk::yes();
  return sdk::invalid("dims must equal those of the output or first operand",
                      static_cast<int32_t>(i));
}

inline Answer dtype_in(const Desc& desc, uint32_t i, const sdk::Dtypes& allowed) {
  if (allowed.has(sdk::operand(desc, i).dtype)) return sdk::yes();
  return sdk::no(ANYHAL_REASON_DTYPE, "this combination of dtypes does not run here",
                 static_cast<int32_t>(i));
}

inline Answer dtypes_equal(const Desc& desc, uint32_t i, uint32_t j) {
  return dtype_in(desc, i, sdk::dtypes(sdk::operand(desc, j).dtype));
}

// Writes at one address from two positions would race.
inline Answer output_is_single(const Desc& desc) {
  for (uint32_t i = desc.input_count; i < desc.operand_count; ++i) {
    const Tensor& out = sdk::operand(desc, i);
    if (absent(out)) continue;
    for (uint32_t d = 0; d < out.rank; ++d)
      if (out.strides[d] == 0 && out.dims[d] > 1 && sdk::steps(out, d) > 1)
        return sdk::invalid("the output repeats elements (stride 0)", static_cast<int32_t>(i));
  }
  return sdk::yes();
}

// The alias_of of output `n` is 0 or input `i`, whose layout it then shares.
inline Answer output_may_alias(const Desc& desc, std::initializer_list<uint32_t> inputs,
                               uint32_t n = 0) {
  const Tensor& out = sdk::operand(desc, desc.input_count + n);
  if (out.alias_of == 0) return sdk::yes();
  for (uint32_t i : inputs) {
    const Tensor& in = sdk::operand(desc, i);
    bool same = out.alias_of == i + 1 && in.dtype == out.dtype && sdk::same_dims(in, out);
    for (uint32_t d = 0; same && d < out.rank; ++d) same = in.strides[d] == out.strides[d];
    if (same) return sdk::yes();
  }
  return sdk::no(ANYHAL_REASON_LAYOUT, "the output may not be the same memory as this input",
                 static_cast<int32_t>(out.alias_of - 1));
}

inline Answer axis_in(int32_t axis, uint32_t rank) {
  if (axis >= 0 && static_cast<uint32_t>(axis) < rank) return sdk::yes();
  return sdk::invalid("the axis is outside the operand");
}

inline Answer choice_in(int32_t value, int32_t last) {
  if (value >= 1 && value <= last) return sdk::yes();
  return sdk::no(ANYHAL_REASON_ATTRIBUTE, "an attribute has a value that is unknown here");
}

// `whole` with its dim `axis` replaced by those of `indices`.
inline bool dims_replaced(const Tensor& whole, uint32_t axis, const Tensor& indices,
                          const Tensor& found) {
  if (found.rank != whole.rank - 1 + indices.rank) return false;
  for (uint32_t d = 0; d < found.rank; ++d) {
    const int64_t want = d < axis                  ? whole.dims[d]
                         : d < axis + indices.rank ? indices.dims[d - axis]
                                                   : whole.dims[d - indices.rank + 1];
    if (found.dims[d] != want) return false;
  }
  return true;
}

inline uint32_t element_bytes(const Tensor& t) { return sdk::dtype_facts(t.dtype).block_bytes; }

// The walk of operands with the same dims.
template <class... T>
Walk walk_of(const Tensor& first, const T&... rest) {
  Walk walk;
  for (uint32_t d = 0; d < first.rank; ++d)
    walk.add(first.dims[d], {first.strides[d], rest.strides[d]...});
  return walk;
}

}  // namespace hal::opencl

#endif  // BACKENDS_OPENCL_KERNELS_CONDITIONS_H_
