// Dtypes, dims, attributes and layouts that the kernels take; anything else is refused by reason.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

#include "layout.h"

namespace hal::cuda {

// The library takes part of what the kernel does, at relaxed numerics too: see product.cc.
bool library_takes(const anyhal_op_desc& desc);

namespace {

using sdk::Answer;

Answer first_no(std::initializer_list<Answer> answers) {
  for (const Answer& answer : answers)
    if (!answer.yes()) return answer;
  return sdk::yes();
}

Answer bad_dtype(uint32_t operand) {
  return sdk::no(ANYHAL_REASON_DTYPE, "this combination of dtypes is not among those of the op",
                 static_cast<int32_t>(operand));
}

Answer dtype_in(const Desc& desc, uint32_t i, const sdk::Dtypes& allowed) {
  return allowed.has(sdk::operand(desc, i).dtype) ? sdk::yes() : bad_dtype(i);
}

Answer dtype_like(const Desc& desc, uint32_t i, uint32_t j) {
  return sdk::operand(desc, i).dtype == sdk::operand(desc, j).dtype ? sdk::yes() : bad_dtype(i);
}

// `inputs` inputs and one output, all present, of a rank that kernels take; one place an element.
Answer operands_are(const Desc& desc, uint32_t inputs) {
  if (desc.input_count != inputs || desc.operand_count != inputs + 1)
    return sdk::invalid("the number of operands is wrong");
  for (uint32_t i = 0; i <= inputs; ++i) {
    const auto number = static_cast<int32_t>(i);
    if (sdk::absent(sdk::operand(desc, i))) return sdk::invalid("an operand is absent", number);
    if (sdk::operand(desc, i).rank > kDims)
      return sdk::no(ANYHAL_REASON_RANK, "more than 8 dims", number);
  }
  if (sdk::repeats(sdk::output(desc)))
    return sdk::invalid("the output repeats elements (stride 0)", static_cast<int32_t>(inputs));
  return sdk::yes();
}

Answer dims_like_output(const Desc& desc) {
  for (uint32_t i = 0; i < desc.input_count; ++i)
    if (!sdk::same_dims(sdk::operand(desc, i), sdk::output(desc)))
      return sdk::invalid("dims must equal those of the output", static_cast<int32_t>(i));
  return sdk::yes();
}

// In place where element i needs nothing but element i: inputs of the mask, in the same layout.
Answer alias_in(const Desc& desc, uint32_t mask) {
  const Tensor& out = sdk::output(desc);
  if (out.alias_of == 0) return sdk::yes();
  const uint32_t i = out.alias_of - 1;
  bool same = i < desc.input_count && (mask >> i & 1) != 0;
  if (same) {
    const Tensor& in = sdk::operand(desc, i);
    same = in.dtype == out.dtype && sdk::same_dims(in, out);
    for (uint32_t d = 0; same && d < out.rank; ++d) same = in.strides[d] == out.strides[d];
  }
  return same ? sdk::yes()
              : sdk::no(ANYHAL_REASON_LAYOUT, "the output may not be the same memory as this input",
                        static_cast<int32_t>(i));
}

Answer choice(int32_t value, int32_t last) {
  return value >= 1 && value <= last
             ? sdk::yes()
             : sdk::no(ANYHAL_REASON_ATTRIBUTE, "an attribute has a value that is unknown here");
}

Answer not_inline(const Desc& desc, uint32_t i) {
  return (sdk::operand(desc, i).flags & ANYHAL_TENSOR_INLINE) == 0
             ? sdk::yes()
             : sdk::no(ANYHAL_REASON_ATTRIBUTE, "this operand cannot be inline",
                       static_cast<int32_t>(i));
}

// Whether `part` has the dims of `whole` with dim `axis` replaced by those of `indices`.
bool replaces_axis(const Tensor& part, const Tensor& whole, const Tensor& indices, uint32_t axis) {
  if (part.rank + 1 != whole.rank + indices.rank) return false;
  for (uint32_t d = 0; d < part.rank; ++d) {
    const int64_t want = d < axis                  ? whole.dims[d]
                         : d < axis + indices.rank ? indices.dims[d - axis]
                                                   : whole.dims[d + 1 - indices.rank];
    if (part.dims[d] != want) return false;
  }
  return true;
}

}  // namespace

Answer copy_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  return first_no({dtype_in(desc, 0, sdk::kAny), dtype_like(desc, 1, 0), dims_like_output(desc),
                   alias_in(desc, 1)});
}

Answer fill_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  if (sdk::operand(desc, 0).rank != 0) return sdk::invalid("the value must have no dims", 0);
  return first_no({dtype_in(desc, 1, sdk::kStored), dtype_like(desc, 0, 1), alias_in(desc, 0)});
}

Answer cast_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const uint32_t x = sdk::operand(desc, 0).dtype, out = sdk::output(desc).dtype;
  const int32_t overflow = sdk::attributes<anyhal_attrs_cast>(desc).overflow;
  const bool stated = overflow == ANYHAL_OVERFLOW_SATURATE || overflow == ANYHAL_OVERFLOW_NONFINITE;
  if (sdk::kF8.has(out) ? !stated : overflow != 0 && overflow != ANYHAL_OVERFLOW_UNSTATED)
    return sdk::no(ANYHAL_REASON_ATTRIBUTE, "overflow must be stated for 8-bit floats alone");
  const bool blocks = sdk::kBlocks.has(x);
  if (blocks && sdk::output(desc).rank == kDims)  // a block is a dim of its own
    return sdk::no(ANYHAL_REASON_RANK, "blocks of more than 7 dims", 0);
  const bool pairs = sdk::kPacked.has(x) || sdk::kPacked.has(out);
  return first_no({dtype_in(desc, 0, sdk::kAny),
                   dtype_in(desc, 1, blocks ? sdk::kFloats : sdk::kStored | sdk::kPacked),
                   dims_like_output(desc), alias_in(desc, 0),
                   pairs ? not_inline(desc, 0) : sdk::yes()});
}

Answer unary_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const int32_t fn = sdk::attributes<anyhal_attrs_unary>(desc).fn;
  const Answer known = choice(fn, ANYHAL_UNARY_FN_SOFTPLUS);
  if (!known.yes()) return known;
  sdk::Dtypes takes = sdk::kFloats;
  if (fn <= ANYHAL_UNARY_FN_SIGN || fn == ANYHAL_UNARY_FN_SQUARE || fn == ANYHAL_UNARY_FN_POSITIVE)
    takes = sdk::kNumbers;
  if (fn == ANYHAL_UNARY_FN_LOGICAL_NOT) takes = sdk::kBool;
  if (fn == ANYHAL_UNARY_FN_BITWISE_NOT) takes = sdk::kInts | sdk::kBool;
  const bool asks = (fn >= ANYHAL_UNARY_FN_ISNAN && fn <= ANYHAL_UNARY_FN_ISFINITE) ||
                    fn == ANYHAL_UNARY_FN_SIGNBIT;
  return first_no({dtype_in(desc, 0, takes),
                   asks ? dtype_in(desc, 1, sdk::kBool) : dtype_like(desc, 1, 0),
                   dims_like_output(desc), alias_in(desc, 1)});
}

Answer binary_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  const Answer known = choice(fn, ANYHAL_BINARY_FN_HYPOT);
  if (!known.yes()) return known;
  const bool compares = fn >= ANYHAL_BINARY_FN_EQUAL && fn <= ANYHAL_BINARY_FN_GREATER_EQUAL;
  sdk::Dtypes takes = compares ? sdk::kPlain : sdk::kNumbers;
  if (fn == ANYHAL_BINARY_FN_DIVIDE || fn == ANYHAL_BINARY_FN_ATAN2) takes = sdk::kFloats;
  if (fn >= ANYHAL_BINARY_FN_LOGICAL_AND) takes = sdk::kBool;
  if (fn >= ANYHAL_BINARY_FN_BITWISE_AND) takes = sdk::kInts | sdk::kBool;
  if (fn >= ANYHAL_BINARY_FN_SHIFT_LEFT) takes = sdk::kInts;
  if (fn >= ANYHAL_BINARY_FN_LOGADDEXP) takes = sdk::kFloats;
  return first_no({dtype_in(desc, 0, takes), dtype_like(desc, 1, 0),
                   compares ? dtype_in(desc, 2, sdk::kBool) : dtype_like(desc, 2, 0),
                   dims_like_output(desc), alias_in(desc, 3)});
}

Answer where_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  return first_no({dtype_in(desc, 0, sdk::kBool), dtype_in(desc, 1, sdk::kStored),
                   dtype_like(desc, 2, 1), dtype_like(desc, 3, 1), dims_like_output(desc),
                   alias_in(desc, 7)});
}

Answer reduce_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const Tensor &x = sdk::operand(desc, 0), &out = sdk::output(desc);
  const auto a = sdk::attributes<anyhal_attrs_reduce>(desc);
  const Answer known = choice(a.fn, ANYHAL_REDUCE_FN_ALL);
  if (!known.yes()) return known;
  sdk::Dtypes takes = sdk::kNumbers;
  if (a.fn == ANYHAL_REDUCE_FN_MEAN) takes = sdk::kFloats;
  if (a.fn >= ANYHAL_REDUCE_FN_ANY) takes = sdk::kBool;
  const bool widens = (a.fn == ANYHAL_REDUCE_FN_SUM || a.fn == ANYHAL_REDUCE_FN_PROD) &&
                      sdk::kInts.has(x.dtype) && sdk::kInts.has(out.dtype);
  const Answer dtypes =
      first_no({dtype_in(desc, 0, takes), widens ? sdk::yes() : dtype_like(desc, 1, 0),
                not_inline(desc, 0), alias_in(desc, 0)});
  if (!dtypes.yes()) return dtypes;
  if (out.rank != x.rank || a.axes >> x.rank != 0) return sdk::invalid("the axes do not fit");
  bool outputs = true, nothing = false;
  for (uint32_t d = 0; d < x.rank; ++d) {
    const bool reduced = (a.axes >> d & 1) != 0;
    if (out.dims[d] != (reduced ? 1 : x.dims[d]))
      return sdk::invalid("the output's dims do not fit", 1);
    outputs = outputs && out.dims[d] != 0;
    nothing = nothing || (reduced && x.dims[d] == 0);
  }
  if ((a.fn == ANYHAL_REDUCE_FN_MAX || a.fn == ANYHAL_REDUCE_FN_MIN) && outputs && nothing)
    return sdk::invalid("nothing has no maximum or minimum", 0);
  return sdk::yes();
}

namespace {

bool product_output_fits(uint32_t in, uint32_t out) {
  if (sdk::kHalves.has(in)) return out == in || out == ANYHAL_DTYPE_F32;
  if (in == ANYHAL_DTYPE_I8 || in == ANYHAL_DTYPE_U8) return out == ANYHAL_DTYPE_I32;
  return out == in;
}

}  // namespace

Answer matmul_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const Tensor &a = sdk::operand(desc, 0), &b = sdk::operand(desc, 1), &out = sdk::output(desc);
  if (!product_output_fits(a.dtype, out.dtype)) return bad_dtype(2);
  const Answer same = first_no({dtype_like(desc, 1, 0), alias_in(desc, 0)});
  if (!same.yes()) return same;
  if (out.rank < 2 || a.rank != out.rank || b.rank != out.rank)
    return sdk::invalid("the operands of a product must have one rank of at least 2");
  const uint32_t m = out.rank - 2, n = out.rank - 1;
  bool agree = a.dims[n] == b.dims[m] && a.dims[m] == out.dims[m] && b.dims[n] == out.dims[n];
  for (uint32_t d = 0; d < m; ++d)
    agree = agree && a.dims[d] == out.dims[d] && b.dims[d] == out.dims[d];
  if (!agree) return sdk::invalid("the dims of the product do not agree");
  if (desc.numerics[ANYHAL_NUMERICS_ACCUMULATE] != 0 && !library_takes(desc))
    return sdk::no(ANYHAL_REASON_NUMERICS, "products of this shape run strictly");
  return sdk::yes();
}

Answer gather_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const Tensor &x = sdk::operand(desc, 0), &indices = sdk::operand(desc, 1);
  const int32_t axis = sdk::attributes<anyhal_attrs_gather>(desc).axis;
  const Answer dtypes = first_no({dtype_in(desc, 0, sdk::kAny), dtype_in(desc, 1, sdk::kIndices),
                                  dtype_like(desc, 2, 0), not_inline(desc, 0), alias_in(desc, 0)});
  if (!dtypes.yes()) return dtypes;
  if (axis < 0 || static_cast<uint32_t>(axis) >= x.rank)
    return sdk::invalid("the axis is outside the operand");
  if (!replaces_axis(sdk::output(desc), x, indices, static_cast<uint32_t>(axis)))
    return sdk::invalid("the output's dims do not fit");
  if (sdk::kBlocks.has(x.dtype) && static_cast<uint32_t>(axis) + 1 == x.rank)
    return sdk::no(ANYHAL_REASON_LAYOUT, "gathering along the last axis would cut blocks", 0);
  return sdk::yes();
}

Answer scatter_add_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  const Tensor &target = sdk::operand(desc, 0), &indices = sdk::operand(desc, 1);
  const int32_t axis = sdk::attributes<anyhal_attrs_scatter_add>(desc).axis;
  const Answer dtypes =
      first_no({dtype_in(desc, 0, sdk::kNumbers), dtype_in(desc, 1, sdk::kIndices),
                dtype_like(desc, 2, 0), dtype_like(desc, 3, 0), not_inline(desc, 0),
                not_inline(desc, 1), not_inline(desc, 2), alias_in(desc, 1)});
  if (!dtypes.yes()) return dtypes;
  if (axis < 0 || static_cast<uint32_t>(axis) >= target.rank)
    return sdk::invalid("the axis is outside the operand");
  if (!sdk::same_dims(target, sdk::output(desc)) ||
      !replaces_axis(sdk::operand(desc, 2), target, indices, static_cast<uint32_t>(axis)))
    return sdk::invalid("the dims of the updates or the output do not fit");
  return sdk::yes();
}

}  // namespace hal::cuda
