// From descriptions to plans: the slow, once-per-signature side of dispatch.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace hal {

// What a look-up rarely reads.
struct Tail {
  std::vector<uint64_t> words;
  std::vector<const Spec*> specs;
};

namespace {

constexpr uint64_t kMaxPlans = 65536;

std::mutex g_plans_mutex;
std::map<uint64_t, Plan*>& plans() {  // by id
  static auto* m = new std::map<uint64_t, Plan*>;
  return *m;
}

// The contract's records for a description; they point into it.
struct Records {
  explicit Records(const Device& device, const OpDesc& d) : operands(d.operands.size()) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const OperandDesc& from = d.operands[i];
      anyhal_tensor_desc& to = operands[i];
      to = {};
      to.size = sizeof(to);
      to.flags = from.flags, to.dtype = from.dtype, to.rank = uint32_t(from.dims.size());
      to.dims = from.dims.data(), to.strides = from.strides.data();
      to.alignment = from.alignment, to.memory_kind = device.compute_kind;
      to.alias_of = from.alias_of;
      to.block_bytes = from.block_bytes, to.base_offset = from.base_offset;
      to.value_min = from.value_min, to.value_max = from.value_max;
      to.content_id = from.content_id, to.content = from.content;
    }
    op.size = sizeof(op);
    op.op = d.op, op.op_version = 1;
    op.input_count = d.input_count, op.operand_count = uint32_t(operands.size());
    op.operands = operands.data();
    op.attributes = d.attributes.empty() ? nullptr : d.attributes.data();
    op.attributes_size = uint32_t(d.attributes.size());
    std::copy(std::begin(d.numerics), std::end(d.numerics), op.numerics);
  }
  std::vector<anyhal_tensor_desc> operands;
  anyhal_op_desc op{};
};

Plan* track(Plan* plan) {
  static uint64_t next_id = 1;
  std::lock_guard lock(g_plans_mutex);
  plan->id = next_id++;
  plans().emplace(plan->id, plan);
  return plan;
}

}  // namespace

Verdict query_op(Device& device, const OpDesc& desc) {
  device.require_alive();
  const Records records(device, desc);
  anyhal_want wants[ANYHAL_WANTS_MAX] = {};
  anyhal_verdict v{};
  v.size = sizeof(v);
  v.reason_operand = -1;
  v.wants = wants;
  ErrorRecord error;
  const anyhal_status status = device.table->op_query(device.handle, &records.op, &v, error);
  Verdict out;
  if (status == ANYHAL_STATUS_UNSUPPORTED) {
    out.reason = error.record.reason ? error.record.reason : v.reason;
  } else {
    if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record.text);
    check(status, error, "asking " + device.name);
    out.support = v.support, out.reason = v.reason;
  }
  out.flags = v.flags, out.operand = v.reason_operand, out.cost_ns = v.cost_ns;
  out.workspace_bytes = v.workspace_bytes, out.hidden_bytes = v.hidden_bytes;
  out.text.assign(error.record.text, strnlen(error.record.text, sizeof(error.record.text)));
  out.wants.assign(wants, wants + std::min<uint32_t>(v.want_count, ANYHAL_WANTS_MAX));
  return out;
}

Plan* prepare_op(Device& device, const OpDesc& desc) {
  device.require_alive();
  if (desc.operands.size() > kMaxOperands)
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "an op on " + device.name + " has " + std::to_string(desc.operands.size()) +
                    " operands; at most " + std::to_string(kMaxOperands) + " are supported",
                ANYHAL_REASON_SHAPE_LIMIT);
  const Records records(device, desc);
  anyhal_plan* handle = nullptr;
  const anyhal_prepared* prepared = nullptr;
  ErrorRecord error;
  anyhal_status status =
      device.table->op_prepare(device.handle, &records.op, &handle, &prepared, error);
  if (status == ANYHAL_STATUS_OUT_OF_MEMORY) {
    device.memory.reclaim();
    status = device.table->op_prepare(device.handle, &records.op, &handle, &prepared, error);
  }
  if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record.text);
  check(status, error, "preparing on " + device.name);
  if (!prepared || prepared->size < offsetof(anyhal_prepared, hidden_bytes))
    throw Error(ANYHAL_STATUS_INTERNAL,
                "op_prepare on " + device.name + " gave a plan without a full `prepared` record");
  device.counters.plans_prepared.fetch_add(1, std::memory_order_relaxed);
  auto* plan = new Plan;
  plan->device = &device, plan->handle = handle, plan->enqueue = device.table->op_enqueue;
  plan->operand_count = uint32_t(desc.operands.size()), plan->input_count = desc.input_count;
  plan->op = desc.op;
  plan->workspace_bytes = prepared->workspace_bytes;
  plan->packs.assign(prepared->packs, prepared->packs + prepared->pack_count);
  plan->kernel = prepared->size >= offsetof(anyhal_prepared, library) && prepared->kernel
                     ? prepared->kernel
                     : "";
  plan->library =
      ANYHAL_HAS(prepared, anyhal_prepared, library) && prepared->library ? prepared->library : "";
  plan->simple = plan->packs.empty() && !plan->workspace_bytes;
  return track(plan);
}

Plan* make_composite(Device& device, uint32_t operand_count, uint32_t input_count,
                     Composite parts) {
  auto* plan = new Plan;
  plan->device = &device;
  plan->operand_count = operand_count, plan->input_count = input_count;
  plan->composite = std::make_unique<Composite>(std::move(parts));
  return track(plan);
}

void release(Plan* plan) {
  if (!plan || plan->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    std::lock_guard lock(g_plans_mutex);
    plans().erase(plan->id);
  }
  if (plan->composite) {
    for (Node& node : plan->composite->nodes) release(node.plan);
    for (Buffer* b : plan->composite->constants) release(b);
  }
  if (plan->handle) plan->device->bury_plan(plan->handle);
  for (const Spec* spec : plan->out_specs)
    if (spec) spec->release();
  delete plan;
}

std::vector<Plan*> retained_plans() {
  std::lock_guard lock(g_plans_mutex);
  std::vector<Plan*> out;
  for (const auto& [id, p] : plans()) {
    uint32_t refs = p->refs.load(std::memory_order_relaxed);
    while (refs && !p->refs.compare_exchange_weak(refs, refs + 1)) {
    }
    if (refs) out.push_back(p);  // else somebody is releasing it
  }
  return out;
}

// ---- cache

PlanCache::PlanCache() : entries_(new Entry[1024]), mask_(1023) {}

bool PlanCache::matches(const Entry& e, const Key& key) const {
  const uint32_t head = std::min(key.count, kInline);
  for (uint32_t i = 0; i < head; ++i)
    if (e.words[i] != key.words[i]) return false;
  return key.count <= kInline || std::memcmp(e.tail->words.data(), key.words + kInline,
                                             (key.count - kInline) * sizeof(uint64_t)) == 0;
}

void PlanCache::insert(const Key& key, Plan* plan, const std::vector<const Spec*>& specs) {
  if (used_ >= kMaxPlans) clear();
  if (2 * used_ >= mask_) grow();
  for (const Spec* s : specs) s->retain();
  const uint64_t h = hash(key);
  uint64_t i = h & mask_;
  while (entries_[i].plan) i = (i + 1) & mask_;
  Entry& e = entries_[i];
  e.hash = h;
  for (uint32_t w = 0; w < std::min(key.count, kInline); ++w) e.words[w] = key.words[w];
  e.tail = new Tail{{}, specs};
  if (key.count > kInline) e.tail->words.assign(key.words + kInline, key.words + key.count);
  e.plan = plan;
  ++used_;
}

void PlanCache::grow() {
  Entry* old = entries_;
  const uint64_t old_mask = mask_;
  mask_ = 2 * mask_ + 1;
  entries_ = new Entry[mask_ + 1];
  for (uint64_t i = 0; i <= old_mask; ++i)
    if (old[i].plan) {
      uint64_t j = old[i].hash & mask_;
      while (entries_[j].plan) j = (j + 1) & mask_;
      entries_[j] = old[i];
    }
  delete[] old;
}

void PlanCache::clear() {
  for (uint64_t i = 0; i <= mask_; ++i) {
    Entry& e = entries_[i];
    if (!e.plan) continue;
    release(e.plan);
    for (const Spec* s : e.tail->specs) s->release();
    delete e.tail;
    e = {};
  }
  used_ = 0;
}

PlanCache& plan_cache() {
  static auto* cache = new PlanCache;
  return *cache;
}

}  // namespace hal
