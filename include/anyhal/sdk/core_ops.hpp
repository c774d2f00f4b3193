// What the core ops take, for a backend that computes all that an op may be asked for. A backend
// that takes less asks further questions of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_CORE_OPS_HPP_
#define ANYHAL_SDK_CORE_OPS_HPP_

#include "anyhal/sdk/conditions.hpp"

namespace hal::sdk {

inline bool is_predicate(int32_t fn) {
  return fn == ANYHAL_UNARY_FN_ISNAN || fn == ANYHAL_UNARY_FN_ISINF ||
         fn == ANYHAL_UNARY_FN_ISFINITE || fn == ANYHAL_UNARY_FN_SIGNBIT;
}

inline Dtypes unary_inputs(int32_t fn) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
    case ANYHAL_UNARY_FN_ABS:
    case ANYHAL_UNARY_FN_SIGN:
    case ANYHAL_UNARY_FN_SQUARE:
    case ANYHAL_UNARY_FN_POSITIVE:
      return kNumbers;
    case ANYHAL_UNARY_FN_LOGICAL_NOT:
      return kBool;
    case ANYHAL_UNARY_FN_BITWISE_NOT:
      return kInts | kBool;
    default:
      return kFloats;
  }
}

inline Answer unary_fits(const anyhal_op_desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  int32_t fn = attributes<anyhal_attrs_unary>(desc).fn;
  return all({choice_in(fn, ANYHAL_UNARY_FN_SOFTPLUS), dtype_in(desc, 0, unary_inputs(fn)),
              is_predicate(fn) ? dtype_in(desc, 1, kBool) : dtypes_equal(desc, 1, 0),
              dims_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {0})});
}

inline bool is_comparison(int32_t fn) {
  return fn >= ANYHAL_BINARY_FN_EQUAL && fn <= ANYHAL_BINARY_FN_GREATER_EQUAL;
}

inline Dtypes binary_inputs(int32_t fn) {
  if (is_comparison(fn)) return kPlain;
  switch (fn) {
    case ANYHAL_BINARY_FN_DIVIDE:
    case ANYHAL_BINARY_FN_ATAN2:
    case ANYHAL_BINARY_FN_LOGADDEXP:
    case ANYHAL_BINARY_FN_COPYSIGN:
    case ANYHAL_BINARY_FN_NEXTAFTER:
    case ANYHAL_BINARY_FN_HYPOT:
      return kFloats;
    case ANYHAL_BINARY_FN_LOGICAL_AND:
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
      return kBool;
    case ANYHAL_BINARY_FN_BITWISE_AND:
    case ANYHAL_BINARY_FN_BITWISE_OR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return kInts | kBool;
    case ANYHAL_BINARY_FN_SHIFT_LEFT:
    case ANYHAL_BINARY_FN_SHIFT_RIGHT:
      return kInts;
    default:
      return kNumbers;
  }
}

inline Answer binary_fits(const anyhal_op_desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  int32_t fn = attributes<anyhal_attrs_binary>(desc).fn;
  return all({choice_in(fn, ANYHAL_BINARY_FN_HYPOT), dtype_in(desc, 0, binary_inputs(fn)),
              dtypes_equal(desc, 1, 0),
              is_comparison(fn) ? dtype_in(desc, 2, kBool) : dtypes_equal(desc, 2, 0),
              dims_equal(desc, 0, 2), dims_equal(desc, 1, 2), output_is_single(desc),
              output_may_alias(desc, {0, 1})});
}

inline Answer where_fits(const anyhal_op_desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  return all({dtype_in(desc, 0, kBool), dtypes_equal(desc, 2, 1), dtypes_equal(desc, 3, 1),
              dims_equal(desc, 0, 3), dims_equal(desc, 1, 3), dims_equal(desc, 2, 3),
              output_is_single(desc), output_may_alias(desc, {0, 1, 2})});
}

inline Dtypes reduce_inputs(int32_t fn) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_MEAN:
      return kFloats;
    case ANYHAL_REDUCE_FN_ANY:
    case ANYHAL_REDUCE_FN_ALL:
      return kBool;
    default:
      return kNumbers;
  }
}

inline Answer reduce_dims_fit(const anyhal_op_desc& desc, const anyhal_attrs_reduce& attributes) {
  const anyhal_tensor_desc& x = operand(desc, 0);
  const anyhal_tensor_desc& out = operand(desc, 1);
  if (x.rank != out.rank || (x.rank < 64 && attributes.axes >> x.rank != 0))
    return invalid("the axes or the output's rank do not fit the operand", 1);
  bool extreme = attributes.fn == ANYHAL_REDUCE_FN_MAX || attributes.fn == ANYHAL_REDUCE_FN_MIN;
  bool outputs = true, nothing = false;
  for (uint32_t d = 0; d < x.rank; ++d) {
    bool reduced = attributes.axes >> d & 1;
    if (out.dims[d] != (reduced ? 1 : x.dims[d]))
      return invalid("a dim of the output is neither kept nor 1", 1);
    outputs = outputs && out.dims[d] != 0;
    nothing = nothing || (reduced && x.dims[d] == 0);
  }
  if (extreme && outputs && nothing) return invalid("nothing has no maximum or minimum", 0);
  return yes();
}

inline Answer reduce_fits(const anyhal_op_desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const auto given = attributes<anyhal_attrs_reduce>(desc);
  int32_t fn = given.fn;
  bool widens = (fn == ANYHAL_REDUCE_FN_SUM || fn == ANYHAL_REDUCE_FN_PROD) &&
                kInts.has(operand(desc, 0).dtype);
  return all({choice_in(fn, ANYHAL_REDUCE_FN_ALL), dtype_in(desc, 0, reduce_inputs(fn)),
              widens ? dtype_in(desc, 1, kInts) : dtypes_equal(desc, 1, 0),
              reduce_dims_fit(desc, given), output_is_single(desc), output_may_alias(desc, {})});
}

// Shapes of a [..., M, K] x b [..., K, N] -> out [..., M, N].
inline Answer product_dims_fit(const anyhal_op_desc& desc) {
  const anyhal_tensor_desc& a = operand(desc, 0);
  const anyhal_tensor_desc& b = operand(desc, 1);
  const anyhal_tensor_desc& out = output(desc);
  if (out.rank < 2 || a.rank != out.rank || b.rank != out.rank)
    return invalid("the operands of a product must have one rank of at least 2");
  bool fits = dim(a, -1) == dim(b, -2) && dim(a, -2) == dim(out, -2) && dim(b, -1) == dim(out, -1);
  for (uint32_t d = 0; d + 2 < out.rank; ++d)
    fits = fits && a.dims[d] == out.dims[d] && b.dims[d] == out.dims[d];
  return fits ? yes() : invalid("dims of the product do not agree");
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_CORE_OPS_HPP_
