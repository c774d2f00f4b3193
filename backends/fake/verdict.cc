// What the fake backend says it can run, and the refusals a script asks for.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "device.hh"
#include "form.hh"

namespace hal::fake {
namespace {

struct Refusal {
  anyhal_reason reason = ANYHAL_REASON_NONE;
  int32_t operand = -1;
};

// Blocks and 8-bit floats are moved, and the oldest blocks dequantised; nothing computes on them.
bool takes(uint32_t op, uint32_t operand, uint32_t dtype) {
  const bool held = family(dtype) == Family::kHeld;
  if (!held && family(dtype) != Family::kBlock) return true;
  switch (op) {
    case ANYHAL_OP_COPY:
    case ANYHAL_OP_CONCAT:
      return true;
    case ANYHAL_OP_GATHER:
      return operand != 1;
    case ANYHAL_OP_FILL:
      return held;
    case ANYHAL_OP_WHERE:
      return held && operand != 0;
    case ANYHAL_OP_CACHE_APPEND:
      return held && operand != 2;
    case ANYHAL_OP_CAST:
      return operand == 0 && (dtype == ANYHAL_DTYPE_Q4_1 || dtype == ANYHAL_DTYPE_Q8_0);
    default:
      return false;
  }
}

Refusal operand_refusal(const Script& script, const DeviceScript& device,
                        const anyhal_op_desc& desc, uint32_t i) {
  const anyhal_tensor_desc& tensor = desc.operands[i];
  const auto at = static_cast<int32_t>(i);
  constexpr uint32_t known =
      ANYHAL_TENSOR_CONSTANT | ANYHAL_TENSOR_INLINE | ANYHAL_TENSOR_ABSENT | ANYHAL_TENSOR_BINDING;
  if ((tensor.flags & ~known) != 0 && !script.is(Bad::takes_unknown))
    return {ANYHAL_REASON_ATTRIBUTE, at};
  if ((tensor.flags & ANYHAL_TENSOR_ABSENT) != 0) return {};
  if (!script.dtypes.contains(tensor.dtype)) return {ANYHAL_REASON_DTYPE, at};
  if (!takes(desc.op, i, tensor.dtype)) return {ANYHAL_REASON_DTYPE, at};
  if (tensor.rank > device.rank_max) return {ANYHAL_REASON_RANK, at};
  uint64_t bytes = unit_bytes(tensor.dtype);
  for (uint32_t axis = 0; axis < tensor.rank; ++axis)
    bytes *= static_cast<uint64_t>(tensor.dims[axis]);
  bytes /= static_cast<uint64_t>(block_elements(tensor.dtype));
  if (device.tensor_max != 0 && bytes > device.tensor_max) return {ANYHAL_REASON_SHAPE_LIMIT, at};
  if (tensor.alignment != 0 && tensor.alignment < device.offset_alignment)
    return {ANYHAL_REASON_ALIGNMENT, at};
  return {};
}

Refusal refusal(const Script& script, const DeviceScript& device, const anyhal_op_desc& desc) {
  if (!script.ops.contains(desc.op)) return {ANYHAL_REASON_OP, -1};
  if (const auto asked = script.refuse.find(desc.op); asked != script.refuse.end())
    return {asked->second, 0};
  if (desc.flags != 0 && !script.is(Bad::takes_unknown)) return {ANYHAL_REASON_ATTRIBUTE, -1};
  for (uint32_t i = 0; i < 6; ++i)
    if (desc.numerics[i] != 0 && !script.any_numerics.contains(desc.op) &&
        !(script.is(Bad::batch_lie) && i == ANYHAL_NUMERICS_DETERMINISM))
      return {ANYHAL_REASON_NUMERICS, -1};
  if (const sdk::Answer fits = form(desc); !fits.yes()) {
    if (fits.status == ANYHAL_STATUS_INVALID_ARGUMENT)
      throw Fault{ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, fits.why};
    return {static_cast<anyhal_reason>(fits.reason), fits.operand};
  }
  if (const auto asked = script.refuse_in_place.find(desc.op);
      asked != script.refuse_in_place.end())
    for (uint32_t i = desc.input_count; i < desc.operand_count; ++i)
      if (desc.operands[i].alias_of != 0) return {asked->second, static_cast<int32_t>(i)};
  for (uint32_t i = 0; i < desc.operand_count; ++i)
    if (const Refusal found = operand_refusal(script, device, desc, i);
        found.reason != ANYHAL_REASON_NONE)
      return found;
  if (!script.is(Bad::over_limit) && desc.workspace_limit != 0 &&
      script.workspace > desc.workspace_limit)
    return {ANYHAL_REASON_WORKSPACE, -1};
  return {};
}

void state_wants(const Script& script, const DeviceScript& device, const anyhal_op_desc& desc,
                 anyhal_verdict& verdict) {
  if (verdict.wants == nullptr) return;
  verdict.want_count = std::min(desc.operand_count, ANYHAL_WANTS_MAX);
  for (uint32_t i = 0; i < verdict.want_count; ++i)
    verdict.wants[i] = {static_cast<uint32_t>(script.dense.contains(desc.op) ? ANYHAL_LAYOUT_DENSE
                                                                             : ANYHAL_LAYOUT_ANY),
                        device.offset_alignment};
}

}  // namespace

void judge(const Device& device, const anyhal_op_desc& desc, anyhal_verdict& verdict,
           std::string& why) {
  const Script& script = device.instance->script;
  const DeviceScript& claims = script.devices[device.number];
  Refusal no = refusal(script, claims, desc);
  if (script.moody.contains(desc.op) && ++device.instance->moods % 2 == 0)
    no = {ANYHAL_REASON_ARCHITECTURE, -1};
  verdict.reason_operand = no.operand;
  verdict.reason = no.reason;
  if (no.reason != ANYHAL_REASON_NONE) {
    verdict.support = ANYHAL_SUPPORT_NO;
    if (script.mistake.contains(desc.op))
      throw Fault{ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, "the script calls it wrong"};
    why = "the script refuses it, reason " + std::to_string(no.reason) +
          (no.operand >= 0 ? ", operand " + std::to_string(no.operand) : "");
    return;
  }
  verdict.support =
      script.refuse_prepare.contains(desc.op) ? ANYHAL_SUPPORT_PREPARE_KNOWS : ANYHAL_SUPPORT_YES;
  verdict.flags = ANYHAL_VERDICT_DETERMINISTIC;
  if (!script.unsafe.contains(desc.op)) verdict.flags |= ANYHAL_VERDICT_CAPTURE_SAFE;
  if (script.dense.contains(desc.op)) state_wants(script, claims, desc, verdict);
  verdict.workspace_bytes = script.workspace;
  verdict.compile_ms = static_cast<uint32_t>(script.prepare_ns / 1000000);
  verdict.cost_ns = static_cast<uint64_t>(std::max<int64_t>(script.delay_ns, 1000));
}

std::vector<anyhal_capability> capabilities(const Script& script, const DeviceScript& device) {
  std::vector<anyhal_capability> rows;
  for (uint32_t op : script.ops) {
    if (script.hidden.contains(op)) continue;
    if (script.refuse.contains(op) && !script.boast.contains(op)) continue;
    anyhal_capability row = {};
    row.op = op;
    if (!script.dense.contains(op)) row.flags |= ANYHAL_CAPABILITY_STRIDED;
    if (!script.unsafe.contains(op)) row.flags |= ANYHAL_CAPABILITY_CAPTURE_SAFE;
    for (uint32_t dtype : script.dtypes)
      if (!(script.is(Bad::undeclared) && dtype == ANYHAL_DTYPE_F64) && has_dtype(op, dtype) &&
          takes(op, op == ANYHAL_OP_WHERE ? 1 : 0, dtype))
        row.dtypes[dtype / 64] |= 1ull << (dtype % 64);
    row.rank_max = device.rank_max;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace hal::fake
