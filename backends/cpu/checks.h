// Checks of op descriptions that the conditions of several ops share.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_CHECKS_H_
#define BACKENDS_CPU_CHECKS_H_

#include "anyhal/sdk/table.hpp"

namespace hal::cpu {

using sdk::absent;
using sdk::Answer;
using sdk::dim;
using sdk::Dtypes;
using sdk::invalid;
using sdk::no;
using sdk::operand;
using sdk::output;
using sdk::same_dims;
using sdk::yes;
using Desc = anyhal_op_desc;
using Description = anyhal_tensor_desc;

inline constexpr Dtypes kComputed = sdk::kSmallFloats;
inline constexpr Dtypes kFloats = sdk::kFloats;
inline constexpr Dtypes kNumbers = sdk::kNumbers;
inline constexpr Dtypes kPlain = sdk::kPlain;
inline constexpr Dtypes kStored = sdk::kStored;
inline constexpr Dtypes kAny = sdk::kAny;
// The block formats that products read themselves; others are cast first.
inline constexpr Dtypes kBlocks = sdk::dtypes(ANYHAL_DTYPE_Q4_1, ANYHAL_DTYPE_Q8_0);
inline constexpr Dtypes kProducts =
    kFloats | sdk::dtypes(ANYHAL_DTYPE_I64, ANYHAL_DTYPE_I32, ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8);
inline constexpr Dtypes kJoined =
    sdk::kStored | sdk::kPacked | kBlocks;    // others are copied part by part
inline constexpr uint32_t kOperandsMax = 64;  // of concat; calls keep their addresses on the stack

inline bool is_index(const Description& t) {
  return t.dtype == ANYHAL_DTYPE_I64 || t.dtype == ANYHAL_DTYPE_I32;
}

// Number of operands, and that only those from `optional` on may be absent.
inline Answer shape_of_call(const Desc& d, uint32_t operands, uint32_t optional) {
  if (d.operand_count != operands || d.input_count + 1 != operands)
    return invalid("the number of operands is wrong");
  for (uint32_t i = 0; i < operands; ++i) {
    bool may = i >= optional && i + 1 < operands;
    if (absent(operand(d, i)) && !may) return invalid("a required operand is absent", int32_t(i));
    if (operand(d, i).rank > 16) return no(ANYHAL_REASON_RANK, "more than 16 dims", int32_t(i));
  }
  return yes();
}

// The output stands apart, or is exactly one of the inputs below `inputs`, element by element.
inline Answer in_place(const Desc& d, uint32_t inputs) {
  const Description& out = output(d);
  if (out.alias_of == 0) return yes();
  if (out.alias_of > inputs)
    return no(ANYHAL_REASON_LAYOUT, "this op cannot write over that operand",
              int32_t(d.input_count));
  const Description& in = operand(d, out.alias_of - 1);
  bool same = !absent(in) && in.dtype == out.dtype && same_dims(in, out);
  for (uint32_t i = 0; same && i < out.rank; ++i)
    same = out.dims[i] == 1 || in.strides[i] == out.strides[i];
  if (!same)
    return no(ANYHAL_REASON_LAYOUT, "in place needs equal dtypes and strides",
              int32_t(d.input_count));
  return yes();
}

// Checks in turn; the first refusal counts.
template <class... Rest>
inline Answer all(Answer first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return first;
  } else {
    return first.yes() ? all(rest...) : first;
  }
}
inline Answer require(bool holds, int32_t reason, const char* why, int32_t number) {
  return holds ? yes() : no(reason, why, number);
}
inline Answer mistake_unless(bool holds, const char* why, int32_t number) {
  return holds ? yes() : invalid(why, number);
}

inline constexpr char kBadAxis[] = "the axis is outside the operand";  // as every backend says it

inline bool is_axis(int32_t axis, const Description& x) {
  return axis >= 0 && axis < int32_t(x.rank);
}

inline Answer same_dtype(const Desc& d, uint32_t a, uint32_t b) {
  return require(operand(d, a).dtype == operand(d, b).dtype, ANYHAL_REASON_DTYPE,
                 "the dtypes must be equal", int32_t(b));
}
inline Answer dims_equal(const Desc& d, uint32_t a, uint32_t b) {
  return mistake_unless(same_dims(operand(d, a), operand(d, b)), "the dims must be equal",
                        int32_t(b));
}

}  // namespace hal::cpu

#endif  // BACKENDS_CPU_CHECKS_H_
