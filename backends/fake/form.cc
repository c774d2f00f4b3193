// What holds for an op on every device: its attribute record, its operands, an output without
// repeats. SPDX-License-Identifier: Apache-2.0
#include "form.hh"

#include "anyhal/sdk/core_ops.hpp"

namespace hal::fake {
namespace {

using Desc = anyhal_op_desc;

sdk::Answer accepts_all(const Desc&) { return sdk::yes(); }

sdk::Answer cast_fits(const Desc& desc) {
  const int32_t overflow = sdk::attributes<anyhal_attrs_cast>(desc).overflow;
  return overflow == 0 ? sdk::yes() : sdk::choice_in(overflow, ANYHAL_OVERFLOW_NONFINITE);
}

struct Form {
  uint32_t op, inputs;  // 0: any number
  uint32_t main;        // the operand whose dtype rows name
  sdk::Dtypes dtypes;
  sdk::Condition record, also;
};

constexpr sdk::Dtypes kProducts = sdk::kFloats | sdk::dtypes(ANYHAL_DTYPE_I64, ANYHAL_DTYPE_I32,
                                                             ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8);

const Form kForms[] = {
    {ANYHAL_OP_COPY, 1, 0, sdk::kAny, sdk::no_attributes, accepts_all},
    {ANYHAL_OP_FILL, 1, 0, sdk::kStored, sdk::no_attributes, accepts_all},
    {ANYHAL_OP_CAST, 1, 0, sdk::kAny, sdk::later_attributes<anyhal_attrs_cast>, cast_fits},
    {ANYHAL_OP_UNARY, 1, 0, sdk::kPlain, sdk::known_attributes<anyhal_attrs_unary>,
     sdk::unary_fits},
    {ANYHAL_OP_BINARY, 2, 0, sdk::kPlain, sdk::known_attributes<anyhal_attrs_binary>,
     sdk::binary_fits},
    {ANYHAL_OP_WHERE, 3, 1, sdk::kStored, sdk::no_attributes, sdk::where_fits},
    {ANYHAL_OP_REDUCE, 1, 0, sdk::kPlain, sdk::known_attributes<anyhal_attrs_reduce>,
     sdk::reduce_fits},
    {ANYHAL_OP_MATMUL, 2, 0, kProducts, sdk::no_attributes, accepts_all},
    {ANYHAL_OP_GATHER, 2, 0, sdk::kAny, sdk::known_attributes<anyhal_attrs_gather>, accepts_all},
    {ANYHAL_OP_SCATTER_ADD, 3, 0, sdk::kNumbers, sdk::known_attributes<anyhal_attrs_scatter_add>,
     accepts_all},
    {ANYHAL_OP_SOFTMAX, 1, 0, sdk::kFloats, sdk::known_attributes<anyhal_attrs_softmax>,
     accepts_all},
    {ANYHAL_OP_CACHE_APPEND, 3, 0, sdk::kStored, sdk::no_attributes, accepts_all},
    {ANYHAL_OP_ARGMAX, 1, 0, sdk::kNumbers, sdk::known_attributes<anyhal_attrs_argmax>,
     accepts_all},
    {ANYHAL_OP_CONCAT, 0, 0, sdk::kAny, sdk::known_attributes<anyhal_attrs_concat>, accepts_all},
};

const Form* form_of(uint32_t op) {
  for (const Form& form : kForms)
    if (form.op == op) return &form;
  return nullptr;
}

}  // namespace

sdk::Answer form(const Desc& desc) {
  const Form* form = form_of(desc.op);
  if (form == nullptr) return sdk::no(ANYHAL_REASON_OP, "there is no kernel for it");
  const uint32_t inputs = form->inputs == 0 ? desc.operand_count - 1 : form->inputs;
  if (const auto found = form->record(desc); !found.yes()) return found;
  if (const auto found = sdk::operands_are(desc, inputs); !found.yes()) return found;
  if (!form->dtypes.has(desc.operands[form->main].dtype))
    return sdk::no(ANYHAL_REASON_DTYPE, "the op has no such dtype",
                   static_cast<int32_t>(form->main));
  if (const auto found = sdk::output_is_single(desc); !found.yes()) return found;
  return form->also(desc);
}

bool has_dtype(uint32_t op, uint32_t dtype) {
  const Form* form = form_of(op);
  return form != nullptr && form->dtypes.has(dtype);
}

}  // namespace hal::fake
