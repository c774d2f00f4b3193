// Which calls have one right answer, bit for bit: what a row may promise under CROSS_DEVICE.
// SPDX-License-Identifier: Apache-2.0
//
// Exact are moves, integers, and float functions that IEEE 754 rounds once. f16 and bf16 may be
// computed in f32 and rounded again: that changes no sum, product, quotient or root (24 bits are at
// least 2 * 11 + 2). Which NaN it is, is open. Where an op leaves open which of two equal zeros is
// taken (maximum, clip, ...), floats are not exact.
#ifndef ANYHAL_SDK_EXACT_HPP_
#define ANYHAL_SDK_EXACT_HPP_

#include "anyhal/sdk/table.hpp"

namespace hal::sdk {

// All of the first operand's dtype is exact but floats.
inline bool integers_exact(const anyhal_op_desc& desc) {
  return (kInts | kBool).has(operand(desc, 0).dtype);
}

inline bool unary_exact(const anyhal_op_desc& desc) {
  if (integers_exact(desc)) return true;
  switch (attributes<anyhal_attrs_unary>(desc).fn) {
    case ANYHAL_UNARY_FN_NEG:
    case ANYHAL_UNARY_FN_ABS:
    case ANYHAL_UNARY_FN_SIGN:
    case ANYHAL_UNARY_FN_SQRT:
    case ANYHAL_UNARY_FN_RECIPROCAL:
    case ANYHAL_UNARY_FN_FLOOR:
    case ANYHAL_UNARY_FN_CEIL:
    case ANYHAL_UNARY_FN_ROUND:
    case ANYHAL_UNARY_FN_TRUNC:
    case ANYHAL_UNARY_FN_ISNAN:
    case ANYHAL_UNARY_FN_ISINF:
    case ANYHAL_UNARY_FN_ISFINITE:
    case ANYHAL_UNARY_FN_RELU:
    case ANYHAL_UNARY_FN_SQUARE:
    case ANYHAL_UNARY_FN_POSITIVE:
    case ANYHAL_UNARY_FN_SIGNBIT:
      return true;
    default:
      return false;
  }
}

inline bool binary_exact(const anyhal_op_desc& desc) {
  if (integers_exact(desc)) return true;
  switch (attributes<anyhal_attrs_binary>(desc).fn) {
    case ANYHAL_BINARY_FN_ADD:
    case ANYHAL_BINARY_FN_SUBTRACT:
    case ANYHAL_BINARY_FN_MULTIPLY:
    case ANYHAL_BINARY_FN_DIVIDE:
    case ANYHAL_BINARY_FN_EQUAL:
    case ANYHAL_BINARY_FN_NOT_EQUAL:
    case ANYHAL_BINARY_FN_LESS:
    case ANYHAL_BINARY_FN_LESS_EQUAL:
    case ANYHAL_BINARY_FN_GREATER:
    case ANYHAL_BINARY_FN_GREATER_EQUAL:
    case ANYHAL_BINARY_FN_COPYSIGN:
    case ANYHAL_BINARY_FN_NEXTAFTER:
      return true;
    default:
      return false;
  }
}

// Integers that stay integers; a mean is rounded.
inline bool reduce_exact(const anyhal_op_desc& desc) {
  return integers_exact(desc) && (kInts | kBool).has(output(desc).dtype) &&
         attributes<anyhal_attrs_reduce>(desc).fn != ANYHAL_REDUCE_FN_MEAN;
}

// A scatter that only places values, or any of integers.
inline bool scatter_exact(const anyhal_op_desc& desc) {
  return integers_exact(desc) ||
         attributes<anyhal_attrs_scatter>(desc).reduction == ANYHAL_SCATTER_REDUCTION_NONE;
}

inline bool resize_exact(const anyhal_op_desc& desc) {
  return attributes<anyhal_attrs_resize>(desc).mode == ANYHAL_RESIZE_MODE_NEAREST;
}

// The generator's bits are part of the definition, in f64 up to what the C library rounds.
inline bool random_normal_exact(const anyhal_op_desc& desc) {
  return output(desc).dtype != ANYHAL_DTYPE_F64;
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_EXACT_HPP_
