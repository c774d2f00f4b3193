// Checks of a new signature. A warm call never comes here.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/call.hpp"

#include <algorithm>
#include <cstring>

#include "core/api/names.hpp"

namespace hal {
namespace {

// Releases an interned description at the end of a look at it.
struct SpecHold {
  const Spec* spec;
  ~SpecHold() { spec->release(); }
};

// Whether two positions may be one element: a step that the smaller steps can add up to.
bool overlaps_itself(const Spec& s) {
  const int64_t inner = block_of(s.dtype).elements;
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (int i = 0; i < s.rank; ++i)
    steps.emplace_back(s.strides[i], i + 1 == s.rank ? s.dims[i] / inner : s.dims[i]);
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [step, n] : steps) {
    if (n > 1 && step <= reach) return s.size != 0;
    reach += step * (n - 1);
  }
  return false;
}

bool may_alias(const OpRow& row, uint32_t output, uint32_t input) {
  switch (row.aliasing) {
    case Aliasing::kElementwise:
      return true;
    case Aliasing::kFirst:
      return input == 0;
    case Aliasing::kRequired:
      return input == output;
    default:
      return false;
  }
}

void check_geometry(const Spec& s, const std::string& where) {
  const Block block = block_of(s.dtype);
  if (block.elements == 1) return;
  if (s.rank == 0)
    invalid(where + ": a tensor of " + dtype_short(s.dtype) + " has at least one dim");
  if (s.dims[s.rank - 1] > block.elements && s.strides[s.rank - 1] != 1)
    invalid(where + ": the last dim of a " + dtype_short(s.dtype) + " tensor is dense");
}

void check_output(const OpRow& row, const Spec& s, const OperandWord& word, uint32_t output,
                  const std::string& where) {
  if (word.frozen()) invalid(where + ": an output's buffer is frozen; pass another");
  if (overlaps_itself(s))
    invalid(where + ": output " + std::to_string(output) +
                " overlaps itself, its strides meet; pass a dense one",
            HAL_REASON_ALIASING);
  const uint32_t alias = word.alias();
  if (alias && !may_alias(row, output, alias - 1))
    invalid(where + ": output " + std::to_string(output) + " is operand " +
                std::to_string(alias - 1) + ", which this op does not allow; pass another buffer",
            HAL_REASON_ALIASING);
  if (row.aliasing == Aliasing::kRequired && alias != output + 1)
    invalid(where + ": output " + std::to_string(output) + " must be exactly operand " +
                std::to_string(output) + "; pass the same tensor twice",
            HAL_REASON_ALIASING);
}

void check_choice(const OpChoice& choice, const Given& g, const std::string& what) {
  int32_t value;
  std::memcpy(&value, static_cast<const char*>(g.attributes) + choice.offset, sizeof(value));
  if (value >= 0 && value < 64 && (choice.known >> value & 1)) return;
  invalid(what + ": " + choice.field + " " + std::to_string(value) + " is no " + choice.type +
              "; use a number of hal_ops.h",
          ANYHAL_REASON_ATTRIBUTE);
}

}  // namespace

const OpRow& check_given(const Given& g, const std::string& where) {
  const OpRow* row = op_row(g.op);
  if (!row)
    invalid("op " + std::to_string(g.op) + " is not in the registry; use an id of hal_ops.h",
            ANYHAL_REASON_OP);
  const std::string what = std::string(row->name) + where;
  const auto refuse = [&](const std::string& why) { invalid(what + ": " + why); };
  if (g.operand_count > HAL_OPERANDS_MAX || g.input_count > g.operand_count)
    refuse(std::to_string(g.operand_count) + " operands with " + std::to_string(g.input_count) +
           " inputs; at most " + std::to_string(HAL_OPERANDS_MAX) + " are possible");
  if (row->variadic ? g.input_count == 0 : g.input_count != row->inputs)
    refuse(std::to_string(g.input_count) + " inputs, the op has " + std::to_string(row->inputs));
  if (g.operand_count - g.input_count != row->outputs)
    refuse(std::to_string(g.operand_count - g.input_count) + " outputs, the op has " +
           std::to_string(row->outputs));
  need(g.operands, "operands");
  const uint32_t required = row->variadic ? g.input_count : row->required;
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    const bool first_output = i == g.input_count;
    if (!g.operands[i] && (i < required || first_output))
      refuse("operand " + std::to_string(i) + " is NULL, and it is not optional");
  }
  if (g.attributes_bytes != row->attributes_bytes)
    refuse("an attribute record of " + std::to_string(g.attributes_bytes) +
           " bytes, the op's has " + std::to_string(row->attributes_bytes));
  if (g.attributes_bytes) {
    need(g.attributes, "attributes");
    uint32_t size;
    std::memcpy(&size, g.attributes, sizeof(size));
    if (size != g.attributes_bytes) refuse("the attribute record's own size is not its size");
    for (const OpChoice& choice : kChoices)
      if (choice.op == g.op) check_choice(choice, g, what);
  }
  return *row;
}

std::string signature_text(const OpRow& row, const Given& g) {
  std::string text = row.name;
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    text += i == g.input_count ? " -> " : i > g.input_count ? ", " : " ";
    const hal_tensor* t = g.operands[i];
    if (!t) {
      text += "absent";
      continue;
    }
    text += std::string(dtype_short(uint32_t(t->dtype))) + "[";
    for (int32_t d = 0; d < std::clamp(t->rank, 0, HAL_RANK_MAX); ++d)
      text += (d ? "," : "") + std::to_string(t->dims[d]);
    text += "]";
  }
  return text;
}

OpDesc describe_call(Device& device, const OpRow& row, const Given& g, const OperandWord* words,
                     std::vector<uint64_t>& spans) {
  const std::string where = signature_text(row, g) + " on " + device.name;
  OpDesc desc;
  desc.op = g.op, desc.input_count = g.input_count;
  desc.attributes.assign(static_cast<const char*>(g.attributes), g.attributes_bytes);
  const uint32_t offset_alignment = device.kinds[device.compute_kind].offset_alignment;
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    OperandDesc o;
    spans.push_back(0);
    const hal_tensor* t = g.operands[i];
    if (!t) {
      o.flags = ANYHAL_TENSOR_ABSENT;
      desc.operands.push_back(o);
      continue;
    }
    const SpecHold hold{intern_spec(&device, uint32_t(t->dtype), t->rank, t->dims, t->strides)};
    const Spec& s = *hold.spec;
    check_geometry(s, where);
    o.dtype = s.dtype, o.alignment = 64;
    o.dims.assign(s.dims, s.dims + s.rank), o.strides.assign(s.strides, s.strides + s.rank);
    spans.back() = uint64_t(s.span_bytes);
    if (words) {
      o.alignment = words[i].alignment(), o.alias_of = words[i].alias();
      if (words[i].frozen()) o.flags = ANYHAL_TENSOR_CONSTANT;
      const Block block = block_of(s.dtype);
      const uint64_t least = std::max<uint64_t>(std::min<uint32_t>(offset_alignment, 64),
                                                block.elements == 1 ? uint64_t(block.bytes) : 1);
      if (o.alignment < least)
        invalid(where + ": operand " + std::to_string(i) + " starts at an offset that is not a " +
                    "multiple of " + std::to_string(least) + " bytes",
                ANYHAL_REASON_ALIGNMENT);
      if (i >= g.input_count) check_output(row, s, words[i], i - g.input_count, where);
    }
    if (device.cells) {
      const Slot* slot = handles(Kind::kBuffer).find(t->buffer);
      o.block_bytes = slot ? slot->bytes : std::max<uint64_t>(1, uint64_t(s.span_bytes));
      o.base_offset = t->offset_bytes;
    }
    desc.operands.push_back(std::move(o));
  }
  return desc;
}

Refusal quarantine(const ApiDevice& device, const OpRow& row, const OpDesc& desc) {
  const std::vector<WrongCell>& wrong = device.backend->row.quarantined;
  if (wrong.empty()) return {};
  const auto first = std::find_if(desc.operands.begin(), desc.operands.end(),
                                  [](const auto& o) { return !(o.flags & ANYHAL_TENSOR_ABSENT); });
  if (first == desc.operands.end()) return {};
  for (const WrongCell& cell : wrong)
    if (cell.op == row.name && cell.dtype == dtype_short(first->dtype) &&
        cell.arch == device.listed.info.arch)
      return {ANYHAL_REASON_POLICY, cell.why + "; use another device"};
  return {};
}

Refusal judge(const OpRow& row, const OpDesc& desc, const Verdict& v) {
  if (v.support == ANYHAL_SUPPORT_NO) {
    const std::string said = std::string("the device has no kernel for it (reason ") +
                             reason_name(v.reason) + (v.text.empty() ? "" : ": " + v.text) + ")";
    if (row.core) return {v.reason ? v.reason : ANYHAL_REASON_OP, said + "; use another device"};
    return {HAL_REASON_NEEDS_POLICY,
            said + "; Python's policy may decompose it, this interface does not"};
  }
  for (size_t i = 0; i < v.wants.size() && i < desc.operands.size(); ++i) {
    const OperandDesc& o = desc.operands[i];
    if (v.wants[i].layout == ANYHAL_LAYOUT_ANY || (o.flags & ANYHAL_TENSOR_ABSENT)) continue;
    const SpecHold hold{
        intern_spec(nullptr, o.dtype, int32_t(o.dims.size()), o.dims.data(), o.strides.data())};
    if (!hold.spec->dense)
      return {HAL_REASON_NEEDS_POLICY, "the device wants operand " + std::to_string(i) +
                                           " dense; copy it with hal_copy first"};
  }
  return {};
}

}  // namespace hal
