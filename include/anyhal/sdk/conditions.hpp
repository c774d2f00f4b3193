// Questions that the conditions of several ops ask of a description, each with its answer.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_CONDITIONS_HPP_
#define ANYHAL_SDK_CONDITIONS_HPP_

#include <initializer_list>

#include "anyhal/sdk/table.hpp"

namespace hal::sdk {

// The first answer that is not yes. Arguments are evaluated first, so each must stand alone.
inline Answer all(std::initializer_list<Answer> answers) {
  for (const Answer& answer : answers) {
    if (!answer.yes()) return answer;
  }
  return yes();
}

// `inputs` inputs and `outputs` outputs; inputs before `required` and the first output are present.
inline Answer operands_are(const anyhal_op_desc& desc, uint32_t inputs, uint32_t required,
                           uint32_t outputs = 1) {
  if (desc.input_count != inputs || desc.operand_count != inputs + outputs)
    return invalid("the number of operands is wrong");
  for (uint32_t i = 0; i < required; ++i) {
    if (absent(operand(desc, i)))
      return invalid("a required operand is absent", static_cast<int32_t>(i));
  }
  if (absent(output(desc))) return invalid("the output is absent");
  return yes();
}

inline Answer operands_are(const anyhal_op_desc& desc, uint32_t inputs) {
  return operands_are(desc, inputs, inputs);
}

inline Answer rank_is(const anyhal_op_desc& desc, uint32_t i, uint32_t rank) {
  if (operand(desc, i).rank == rank) return yes();
  return invalid("an operand has the wrong rank", static_cast<int32_t>(i));
}

inline Answer dims_equal(const anyhal_op_desc& desc, uint32_t i, uint32_t j) {
  if (same_dims(operand(desc, i), operand(desc, j))) return yes();
  return invalid("dims must equal those of the output or first operand", static_cast<int32_t>(i));
}

inline Answer dtype_in(const anyhal_op_desc& desc, uint32_t i, const Dtypes& allowed) {
  if (allowed.has(operand(desc, i).dtype)) return yes();
  return no(ANYHAL_REASON_DTYPE, "this combination of dtypes does not run here",
            static_cast<int32_t>(i));
}

inline Answer dtypes_equal(const anyhal_op_desc& desc, uint32_t i, uint32_t j) {
  return dtype_in(desc, i, dtypes(operand(desc, j).dtype));
}

// No output repeats itself, which check_record asks of tables too.
inline Answer output_is_single(const anyhal_op_desc& desc) {
  for (uint32_t i = desc.input_count; i < desc.operand_count; ++i) {
    if (!absent(operand(desc, i)) && repeats(operand(desc, i)))
      return invalid("the output repeats elements (stride 0)", static_cast<int32_t>(i));
  }
  return yes();
}

// The alias_of of output `n` is 0 or input `i`, whose layout it then shares.
inline Answer output_may_alias(const anyhal_op_desc& desc, std::initializer_list<uint32_t> inputs,
                               uint32_t n = 0) {
  const anyhal_tensor_desc& out = operand(desc, desc.input_count + n);
  if (out.alias_of == 0) return yes();
  for (uint32_t i : inputs) {
    const anyhal_tensor_desc& in = operand(desc, i);
    bool same = out.alias_of == i + 1 && in.dtype == out.dtype && same_dims(in, out);
    for (uint32_t d = 0; same && d < out.rank; ++d) same = in.strides[d] == out.strides[d];
    if (same) return yes();
  }
  return no(ANYHAL_REASON_LAYOUT, "the output may not be the same memory as this input",
            static_cast<int32_t>(out.alias_of - 1));
}

inline Answer axis_in(int32_t axis, uint32_t rank) {
  if (axis >= 0 && static_cast<uint32_t>(axis) < rank) return yes();
  return invalid("the axis is outside the operand");
}

inline Answer choice_in(int32_t value, int32_t last) {
  if (value >= 1 && value <= last) return yes();
  return no(ANYHAL_REASON_ATTRIBUTE, "an attribute has a value that is unknown here");
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_CONDITIONS_HPP_
