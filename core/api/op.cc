// hal_op: from tensors to a plan and its run; and the views that it takes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/api/call.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"

namespace hal {
namespace {

// A call with its handles resolved. Filled by `read`, on the stack of hal_op.
struct Resolved {
  Signature key;
  const Slot* slots[kMaxOperands];
  anyhal_ref refs[kMaxOperands];
  OperandWord words[kMaxOperands];
};

// The input that an output exactly is, + 1, or 0.
uint32_t alias_of(const Given& g, uint32_t output) {
  const hal_tensor& o = *g.operands[output];
  for (uint32_t i = 0; i < g.input_count; ++i) {
    const hal_tensor* t = g.operands[i];
    if (!t || t->buffer != o.buffer || t->offset_bytes != o.offset_bytes) continue;
    const size_t used = size_t(o.rank) * sizeof(int64_t);
    if (t->dtype == o.dtype && t->rank == o.rank && !std::memcmp(t->dims, o.dims, used) &&
        !std::memcmp(t->strides, o.strides, used))
      return i + 1;
  }
  return 0;
}

// Fills the key and the places; false where something needs a closer look and a sentence.
inline bool read(const Given& g, const Device* device, Resolved& r) {
  if (g.operand_count > kMaxOperands || g.input_count > g.operand_count || !g.operands ||
      g.attributes_bytes > 512 || (g.attributes_bytes && !g.attributes))
    return false;
  r.key.add(uint64_t(g.op) << 32 | g.input_count << 24 | g.operand_count << 16 |
            g.attributes_bytes);
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    const hal_tensor* t = g.operands[i];
    if (!t) {
      r.slots[i] = nullptr, r.refs[i] = {0, 0}, r.words[i] = {0};
      r.key.add(0);
      continue;
    }
    const Slot* slot = handles().find(t->buffer, Kind::kBuffer);
    if (!slot || slot->device != device || uint32_t(t->rank) > kMaxRank) return false;
    r.slots[i] = slot;
    r.refs[i] = {slot->base.memory, slot->base.offset + t->offset_bytes};
    const uint32_t alias = i < g.input_count ? 0 : alias_of(g, i);
    r.words[i] = OperandWord::make(*t, alignment_class(r.refs[i].offset), alias,
                                   slot->frozen.load(std::memory_order_relaxed));
    r.key.add(r.words[i].word);
    for (int32_t d = 0; d < t->rank; ++d) r.key.add(uint64_t(t->dims[d]));
    for (int32_t d = 0; d < t->rank; ++d) r.key.add_unhashed(uint64_t(t->strides[d]));
    if (device->cells) r.key.add(t->offset_bytes), r.key.add(slot->bytes);
  }
  uint64_t piece = 0;
  for (uint32_t at = 0; at < g.attributes_bytes; at += 8, piece = 0) {
    std::memcpy(&piece, static_cast<const char*>(g.attributes) + at,
                std::min<uint32_t>(8, g.attributes_bytes - at));
    r.key.add(piece);
  }
  return true;
}

// Every operand inside its buffer; no output over another operand, unless exactly as it may.
inline bool in_bounds(const Given& g, const Resolved& r, const uint64_t* spans) {
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    if (!r.slots[i]) continue;
    const uint64_t offset = g.operands[i]->offset_bytes;
    if (offset > r.slots[i]->bytes || spans[i] > r.slots[i]->bytes - offset) return false;
  }
  return true;
}

inline bool apart(const Given& g, const Resolved& r, const uint64_t* spans) {
  for (uint32_t o = g.input_count; o < g.operand_count; ++o)
    for (uint32_t i = 0; i < o; ++i) {
      if (r.slots[i] != r.slots[o] || !r.slots[o] || r.words[o].alias() == i + 1) continue;
      const uint64_t a = r.refs[o].offset, b = r.refs[i].offset;
      if (a < b + spans[i] && b < a + spans[o]) return false;
    }
  return true;
}

// The sentence for a call that `read` gave up on.
[[noreturn]] void refuse(const Given& g, const ApiDevice& device) {
  const OpRow& row = check_given(g, " on " + device.name);
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    const hal_tensor* t = g.operands[i];
    if (!t) continue;
    const std::string argument = "operands[" + std::to_string(i) + "]->buffer";
    const Slot& slot = slot_of(t->buffer, Kind::kBuffer, argument.c_str());
    if (slot.device != device.native())
      invalid(std::string(row.name) + " on " + device.name + ": operand " + std::to_string(i) +
              " is on " + slot.device->name + "; copy it with hal_buffer_copy");
    if (t->rank < 0 || t->rank > HAL_RANK_MAX)
      invalid(std::string(row.name) + " on " + device.name + ": operand " + std::to_string(i) +
                  " has rank " + std::to_string(t->rank) + "; 0 to 8 are possible",
              ANYHAL_REASON_RANK);
  }
  throw Error(ANYHAL_STATUS_INTERNAL, "a call was refused without a reason");
}

[[noreturn]] void refuse_places(const Given& g, const Resolved& r, const uint64_t* spans,
                                const Device& device) {
  const std::string where = signature_text(*op_row(g.op), g) + " on " + device.name;
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    if (!r.slots[i]) continue;
    const uint64_t offset = g.operands[i]->offset_bytes, bytes = r.slots[i]->bytes;
    if (offset > bytes || spans[i] > bytes - offset)
      invalid(where + ": operand " + std::to_string(i) + " takes bytes " + std::to_string(offset) +
                  " + " + std::to_string(spans[i]) + " of a buffer of " + std::to_string(bytes),
              HAL_REASON_BOUNDS);
  }
  invalid(where + ": an output overlaps another operand; pass buffers that do not",
          HAL_REASON_ALIASING);
}

// The plan of a new signature; one reference for the caller, another in the table.
Plan* prepare(ApiDevice& api, const Given& g, const Resolved& r, std::vector<uint64_t>& spans) {
  Device& device = *api.native();
  device.require_alive();
  const OpRow& row = check_given(g, " on " + device.name);
  const std::string text = signature_text(row, g), where = text + " on " + device.name + ": ";
  const OpDesc desc = describe_call(device, row, g, r.words, spans);
  if (!in_bounds(g, r, spans.data()) || !apart(g, r, spans.data()))
    refuse_places(g, r, spans.data(), device);
  Plan* plan;
  Verdict verdict;
  try {
    verdict = query_op(device, desc);
    const Refusal refusal = judge(row, desc, verdict);
    if (refusal.reason) throw Error(ANYHAL_STATUS_UNSUPPORTED, refusal.text, refusal.reason);
    plan = prepare_op(device, desc);
  } catch (const Error& e) {
    if (e.status == ANYHAL_STATUS_DEVICE_LOST) throw;
    throw Error(e.status, where + e.text, e.reason);
  }
  plan->op_name = row.name, plan->signature = text, plan->state = api.backend->row.state;
  plan->cost_ns = double(verdict.cost_ns);
  plan->retain();
  api.plans.insert(r.key, plan, spans);
  return plan;
}

// All but the warm call on an idle synchronous queue.
void run_general(ApiQueue& q, Plan& plan, const Given& g, const Resolved& r) {
  Operand operands[kMaxOperands];
  for (uint32_t i = 0; i < g.operand_count; ++i)
    if (r.slots[i]) operands[i] = {r.refs[i].offset, static_cast<Buffer*>(r.slots[i]->object)};
  std::lock_guard guard(q.lockable());
  run_plan(plan, operands, *q.core);
}

hal_status run(ApiQueue& q, Plan& plan, const Given& g, const Resolved& r, hal_error* error) {
  if (__builtin_expect(plan.simple && q.core->plain && !receipts_on(), 1)) {
    anyhal_error record;
    record.size = sizeof(record);
    record.text[0] = 0, record.reason = 0;
    const anyhal_status status = run_simple(plan, r.refs, g.operand_count, *q.core, &record);
    if (__builtin_expect(status == ANYHAL_STATUS_OK, 1)) return HAL_STATUS_OK;
    // Not accepted for want of memory: the general path frees what it can and tries once more.
    if (status != ANYHAL_STATUS_OUT_OF_MEMORY)
      return at_edge(error, [&] { raise_call(plan, status, record); });
  }
  return at_edge(error, [&] { run_general(q, plan, g, r); });
}

hal_status run_new(ApiQueue& q, const Given& g, const Resolved& r, hal_error* error) {
  Plan* plan = nullptr;
  std::vector<uint64_t> spans;
  const hal_status status = at_edge(error, [&] { plan = prepare(*q.device, g, r, spans); });
  if (status != HAL_STATUS_OK) return status;
  const hal_status ran = run(q, *plan, g, r, error);
  release(plan);
  return ran;
}

}  // namespace
}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_op(hal_queue* queue, uint32_t op, const hal_tensor* const* operands,
                  uint32_t input_count, uint32_t operand_count, const void* attributes,
                  uint32_t attributes_bytes, hal_error* error) {
  const Slot* slot = handles().find(queue, Kind::kQueue);
  if (!slot) return at_edge(error, [&] { slot_of(queue, Kind::kQueue, "queue"); });
  ApiQueue& q = *static_cast<ApiQueue*>(slot->object);
  const Given given{op, operands, input_count, operand_count, attributes, attributes_bytes};
  Resolved r;
  if (!read(given, slot->device, r)) return at_edge(error, [&] { refuse(given, *q.device); });
  {
    const Pin pin;
    if (const PlanEntry* entry = q.device->plans.find(r.key)) {
      if (__builtin_expect(in_bounds(given, r, entry->spans()) && apart(given, r, entry->spans()),
                           1))
        return run(q, *entry->plan, given, r, error);
      return at_edge(error, [&] { refuse_places(given, r, entry->spans(), *q.core->device); });
    }
  }
  return run_new(q, given, r, error);
}

hal_status hal_tensor_dense(hal_buffer* buffer, uint64_t offset_bytes, int32_t dtype, int32_t rank,
                            const int64_t* dims, hal_tensor* out_tensor, uint64_t* out_bytes,
                            hal_error* error) {
  return at_edge(error, [&] {
    need(out_tensor, "out_tensor");
    if (rank > 0) need(dims, "dims");
    const Spec* spec = intern_spec(nullptr, uint32_t(dtype), rank, dims, nullptr);
    hal_tensor t = {};
    t.buffer = buffer, t.offset_bytes = offset_bytes, t.dtype = dtype, t.rank = rank;
    std::copy(spec->dims, spec->dims + rank, t.dims);
    std::copy(spec->strides, spec->strides + rank, t.strides);
    if (out_bytes) *out_bytes = uint64_t(spec->span_bytes);
    spec->release();
    *out_tensor = t;
  });
}

hal_status hal_tensor_broadcast(const hal_tensor* tensor, int32_t rank, const int64_t* dims,
                                hal_tensor* out_tensor, hal_error* error) {
  return at_edge(error, [&] {
    need(tensor, "tensor"), need(out_tensor, "out_tensor");
    if (rank > 0) need(dims, "dims");
    if (rank < 0 || rank > HAL_RANK_MAX || tensor->rank < 0 || tensor->rank > rank)
      invalid("broadcasting a tensor of rank " + std::to_string(tensor->rank) + " to rank " +
                  std::to_string(rank) + ": the rank must not fall, and at most 8 is possible",
              ANYHAL_REASON_RANK);
    hal_tensor t = *tensor;
    t.rank = rank;
    const int32_t lead = rank - tensor->rank;
    for (int32_t i = 0; i < rank; ++i) {
      const int64_t had = i < lead ? 1 : tensor->dims[i - lead];
      if (had != dims[i] && had != 1)
        invalid("broadcasting a tensor: axis " + std::to_string(i) + " has size " +
                std::to_string(had) + ", which is neither 1 nor " + std::to_string(dims[i]));
      t.dims[i] = dims[i];
      t.strides[i] = had == dims[i] && i >= lead ? tensor->strides[i - lead] : 0;
    }
    *out_tensor = t;
  });
}

}  // extern "C"
