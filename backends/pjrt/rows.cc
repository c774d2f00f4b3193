// The table of ops.
// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

#include "anyhal/sdk/core_ops.hpp"
#include "view.h"

namespace hal::pjrt {
namespace {

using sdk::all;
using sdk::Answer;
using sdk::choice_in;
using sdk::dtype_in;
using sdk::dtypes_equal;
using sdk::no;
using sdk::operand;

// Plugins end the process over sizes whose product overflows.
constexpr int64_t kElementsMax = int64_t{1} << 47;
constexpr sdk::Dtypes kBytes = sdk::dtypes(ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8);

Answer place_fits(const anyhal_op_desc& desc, uint32_t i) {
  const anyhal_tensor_desc& t = operand(desc, i);
  const int32_t number = static_cast<int32_t>(i);
  if (sdk::absent(t)) return sdk::yes();
  if ((t.flags & ANYHAL_TENSOR_INLINE) != 0)
    return no(ANYHAL_REASON_ATTRIBUTE, "values inside a call are not taken", number);
  int64_t count = 1;
  for (uint32_t d = 0; d < t.rank; ++d) {
    if (t.dims[d] == 0) return sdk::yes();
    if (t.dims[d] > kElementsMax / count)
      return no(ANYHAL_REASON_SHAPE_LIMIT, "more than 2^47 elements", number);
    count *= t.dims[d];
  }
  if (t.block_bytes == 0 || t.block_bytes > static_cast<uint64_t>(kElementsMax))
    return no(ANYHAL_REASON_MEMORY_KIND, "it lies in no cell", number);
  if (!fits_block(t))
    return no(ANYHAL_REASON_ALIGNMENT, "its block is no whole number of elements", number);
  const Place place = place_of(t);
  int64_t last = place.first;
  for (size_t d = 0; d < place.dims.size(); ++d) {
    if (place.strides[d] > kElementsMax) return sdk::invalid("it leaves its block", number);
    last += (place.dims[d] - 1) * place.strides[d];
  }
  if (last >= place.total) return sdk::invalid("it leaves its block", number);
  return sdk::yes();
}

Answer places_fit(const anyhal_op_desc& desc) {
  for (uint32_t i = 0; i < desc.operand_count; ++i)
    if (Answer answer = place_fits(desc, i); !answer.yes()) return answer;
  return sdk::yes();
}

bool counts(const anyhal_op_desc& desc, uint32_t inputs, uint32_t outputs = 1) {
  return desc.input_count == inputs && desc.operand_count == inputs + outputs;
}

// Inputs of one shape with the output, as the registry lowers elementwise ops.
Answer elementwise(const anyhal_op_desc& desc, uint32_t inputs) {
  if (!counts(desc, inputs)) return sdk::invalid("the number of operands is wrong");
  for (uint32_t i = 0; i < inputs; ++i)
    if (!sdk::same_dims(operand(desc, i), sdk::output(desc)))
      return sdk::invalid("an input has other dims than the output", static_cast<int32_t>(i));
  return places_fit(desc);
}

Answer copy_fits(const anyhal_op_desc& desc) {
  if (Answer answer = elementwise(desc, 1); !answer.yes()) return answer;
  return operand(desc, 0).dtype == operand(desc, 1).dtype ? sdk::yes()
                                                          : sdk::invalid("the dtypes differ");
}

Answer fill_fits(const anyhal_op_desc& desc) {
  if (!counts(desc, 1) || operand(desc, 0).rank != 0 ||
      operand(desc, 0).dtype != operand(desc, 1).dtype)
    return sdk::invalid("fill takes one 0-d value of the output's dtype");
  return places_fit(desc);
}

Answer cast_row(const anyhal_op_desc& desc) {
  if (Answer answer = elementwise(desc, 1); !answer.yes()) return answer;
  return cast_fits(desc);
}

Answer unary_row(const anyhal_op_desc& desc) {
  if (Answer answer = elementwise(desc, 1); !answer.yes()) return answer;
  const int32_t fn = sdk::attributes<anyhal_attrs_unary>(desc).fn;
  return all({choice_in(fn, ANYHAL_UNARY_FN_SOFTPLUS), dtype_in(desc, 0, sdk::unary_inputs(fn)),
              sdk::is_predicate(fn) ? dtype_in(desc, 1, sdk::kBool) : dtypes_equal(desc, 1, 0),
              unary_fits(desc)});
}

Answer binary_row(const anyhal_op_desc& desc) {
  if (Answer answer = elementwise(desc, 2); !answer.yes()) return answer;
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  return all({choice_in(fn, ANYHAL_BINARY_FN_HYPOT), dtype_in(desc, 0, sdk::binary_inputs(fn)),
              dtypes_equal(desc, 1, 0),
              sdk::is_comparison(fn) ? dtype_in(desc, 2, sdk::kBool) : dtypes_equal(desc, 2, 0),
              binary_fits(desc)});
}

Answer where_fits(const anyhal_op_desc& desc) {
  if (Answer answer = elementwise(desc, 3); !answer.yes()) return answer;
  if (operand(desc, 0).dtype != ANYHAL_DTYPE_BOOL)
    return no(ANYHAL_REASON_DTYPE, "the condition is bool", 0);
  return operand(desc, 1).dtype == operand(desc, 2).dtype &&
                 operand(desc, 1).dtype == operand(desc, 3).dtype
             ? sdk::yes()
             : sdk::invalid("the dtypes differ");
}

Answer reduce_fits(const anyhal_op_desc& desc) {
  if (!counts(desc, 1)) return sdk::invalid("the number of operands is wrong");
  const anyhal_tensor_desc &x = operand(desc, 0), &out = operand(desc, 1);
  const auto attrs = sdk::attributes<anyhal_attrs_reduce>(desc);
  if (attrs.fn < ANYHAL_REDUCE_FN_SUM || attrs.fn > ANYHAL_REDUCE_FN_ALL)
    return no(ANYHAL_REASON_ATTRIBUTE, "this function is unknown here");
  if (x.rank != out.rank) return sdk::invalid("the output keeps reduced axes as 1");
  for (uint32_t d = 0; d < x.rank; ++d)
    if (out.dims[d] != (attrs.axes >> d & 1 ? 1 : x.dims[d]))
      return sdk::invalid("the output's dims are not those of the reduction");
  if (!is_float(x.dtype) && attrs.fn == ANYHAL_REDUCE_FN_MEAN)
    return no(ANYHAL_REASON_DTYPE, "a mean is floating", 0);
  if ((x.dtype == ANYHAL_DTYPE_BOOL) != (attrs.fn >= ANYHAL_REDUCE_FN_ANY))
    return no(ANYHAL_REASON_DTYPE, "any and all take bool, and nothing else does", 0);
  const bool widens = sdk::kInts.has(x.dtype) &&
                      (attrs.fn == ANYHAL_REDUCE_FN_SUM || attrs.fn == ANYHAL_REDUCE_FN_PROD);
  return all({widens ? dtype_in(desc, 1, sdk::kInts) : dtypes_equal(desc, 1, 0), places_fit(desc)});
}

sdk::Dtypes products_of(uint32_t dtype) {
  if (kBytes.has(dtype)) return sdk::dtypes(ANYHAL_DTYPE_I32);
  return sdk::kHalves.has(dtype) ? sdk::dtypes(dtype, ANYHAL_DTYPE_F32) : sdk::dtypes(dtype);
}

Answer matmul_fits(const anyhal_op_desc& desc) {
  if (!counts(desc, 2)) return sdk::invalid("the number of operands is wrong");
  const anyhal_tensor_desc &a = operand(desc, 0), &b = operand(desc, 1), &out = operand(desc, 2);
  if (a.dtype != b.dtype || a.rank < 2 || a.rank != b.rank || a.rank != out.rank)
    return sdk::invalid("operands have one dtype and one rank of at least 2");
  for (uint32_t d = 0; d + 2 < a.rank; ++d)
    if (a.dims[d] != out.dims[d] || b.dims[d] != out.dims[d])
      return sdk::invalid("the leading dims differ");
  if (sdk::dim(a, -1) != sdk::dim(b, -2) || sdk::dim(a, -2) != sdk::dim(out, -2) ||
      sdk::dim(b, -1) != sdk::dim(out, -1))
    return sdk::invalid("the sizes are not M x K, K x N and M x N");
  return all({dtype_in(desc, 2, products_of(a.dtype)), places_fit(desc)});
}

Answer positions_fit(const anyhal_op_desc& desc, int32_t axis, uint32_t indexed, uint32_t list,
                     uint32_t slices) {
  const anyhal_tensor_desc &x = operand(desc, indexed), &at = operand(desc, list),
                           &out = operand(desc, slices);
  if (!sdk::kIndices.has(at.dtype))
    return no(ANYHAL_REASON_DTYPE, "positions are i32 or i64", static_cast<int32_t>(list));
  if (axis < 0 || axis >= static_cast<int32_t>(x.rank) || out.rank != x.rank - 1 + at.rank)
    return sdk::invalid("the axis or the rank is wrong");
  if (sdk::dtype_facts(x.dtype).block_elements > 1 && axis + 1 == static_cast<int32_t>(x.rank))
    return no(ANYHAL_REASON_LAYOUT, "this would cut blocks", static_cast<int32_t>(indexed));
  return places_fit(desc);
}

Answer gather_fits(const anyhal_op_desc& desc) {
  if (!counts(desc, 2)) return sdk::invalid("the number of operands is wrong");
  const int32_t axis = sdk::attributes<anyhal_attrs_gather>(desc).axis;
  return all({dtypes_equal(desc, 2, 0), positions_fit(desc, axis, 0, 1, 2)});
}

Answer scatter_fits(const anyhal_op_desc& desc) {
  if (!counts(desc, 3) || !sdk::same_dims(operand(desc, 0), operand(desc, 3)))
    return sdk::invalid("the operands are a target, positions, updates and an output");
  const int32_t axis = sdk::attributes<anyhal_attrs_scatter_add>(desc).axis;
  return all(
      {dtypes_equal(desc, 2, 0), dtypes_equal(desc, 3, 0), positions_fit(desc, axis, 0, 1, 2)});
}

constexpr sdk::Condition kNone = sdk::no_attributes;
template <class T>
constexpr sdk::Condition kHas = sdk::known_attributes<T>;

// op, name, main operand, its dtypes, attributes, what else must hold; no kernel: see kLowerings.
const sdk::Row kRows[] = {
    {ANYHAL_OP_COPY, "copy", 0, sdk::kAny, kNone, copy_fits, nullptr, nullptr, sdk::kExact},
    {ANYHAL_OP_FILL, "fill", 1, sdk::kStored, kNone, fill_fits, nullptr, nullptr, sdk::kExact},
    {ANYHAL_OP_CAST, "cast", 0, sdk::kAny, sdk::later_attributes<anyhal_attrs_cast>, cast_row,
     nullptr},
    {ANYHAL_OP_UNARY, "unary", 0, sdk::kPlain, kHas<anyhal_attrs_unary>, unary_row, nullptr},
    {ANYHAL_OP_BINARY, "binary", 0, sdk::kPlain, kHas<anyhal_attrs_binary>, binary_row, nullptr},
    {ANYHAL_OP_WHERE, "where", 1, sdk::kStored, kNone, where_fits, nullptr, nullptr, sdk::kExact},
    {ANYHAL_OP_REDUCE, "reduce", 0, sdk::kPlain, kHas<anyhal_attrs_reduce>, reduce_fits, nullptr},
    {ANYHAL_OP_MATMUL, "matmul", 0, sdk::kFloats | sdk::kIndices | kBytes, kNone, matmul_fits,
     nullptr},
    {ANYHAL_OP_GATHER, "gather", 0, sdk::kAny, kHas<anyhal_attrs_gather>, gather_fits, nullptr,
     nullptr, sdk::kExact},
    {ANYHAL_OP_SCATTER_ADD, "scatter_add", 0, sdk::kNumbers, kHas<anyhal_attrs_scatter_add>,
     scatter_fits, nullptr},
};
const sdk::OpTable kOps(kRows);

struct Named {
  uint32_t op;
  const char* kernel;
  Lowering lower;
};
constexpr Named kLowerings[] = {
    {ANYHAL_OP_COPY, "stablehlo copy", lower_copy},
    {ANYHAL_OP_FILL, "stablehlo fill", lower_fill},
    {ANYHAL_OP_CAST, "stablehlo cast", lower_cast},
    {ANYHAL_OP_UNARY, "stablehlo unary", lower_unary},
    {ANYHAL_OP_BINARY, "stablehlo binary", lower_binary},
    {ANYHAL_OP_WHERE, "stablehlo where", lower_where},
    {ANYHAL_OP_REDUCE, "stablehlo reduce", lower_reduce},
    {ANYHAL_OP_MATMUL, "stablehlo matmul", lower_matmul},
    {ANYHAL_OP_GATHER, "stablehlo gather", lower_gather},
    {ANYHAL_OP_SCATTER_ADD, "stablehlo scatter_add", lower_scatter_add},
};

const Named* named(uint32_t op) {
  for (const Named& row : kLowerings)
    if (row.op == op) return &row;
  return nullptr;
}

}  // namespace

const sdk::OpTable& op_table() { return kOps; }
Lowering lowering_of(uint32_t op) { return named(op)->lower; }
const char* kernel_of(uint32_t op) { return named(op)->kernel; }

anyhal_status capabilities(void* value, uint64_t* bytes, anyhal_error* error) {
  const anyhal_status status = kOps.capabilities(value, bytes, error);
  if (status != ANYHAL_STATUS_OK) return status;
  auto* rows = static_cast<anyhal_capability*>(value);
  for (uint64_t i = 0; i < *bytes / sizeof *rows; ++i)
    rows[i].flags |= ANYHAL_CAPABILITY_FLUSHES_DENORMALS;
  return status;
}

Positions positions_of(const anyhal_op_desc& desc) {
  if (desc.op == ANYHAL_OP_GATHER)
    return {1, operand(desc, 0).dims[sdk::attributes<anyhal_attrs_gather>(desc).axis]};
  if (desc.op == ANYHAL_OP_SCATTER_ADD)
    return {1, operand(desc, 0).dims[sdk::attributes<anyhal_attrs_scatter_add>(desc).axis]};
  return {};
}

}  // namespace hal::pjrt
