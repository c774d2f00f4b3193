// From descriptions to plans: the slow, once-per-signature side of dispatch.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/answers.hpp"
#include "core/queue.hpp"
#include "core/records.hpp"

namespace hal {

// What a look-up rarely reads.
struct Tail {
  std::vector<uint64_t> words;
  std::vector<const Spec*> specs;
  uint64_t calls = 0;  // the plan's, at the last look
};

namespace {

// A plan with its specs and its entry takes about 7 KB and the backend's own state: some 30 MB.
constexpr uint64_t kMaxPlans = 4096;
// Decompositions hold constants as long as their shape: what cached plans may hold in all.
constexpr uint64_t kMaxConstantBytes = 128u << 20;

std::mutex g_plans_mutex;
std::map<uint64_t, Plan*>& plans() {  // by id
  static auto* m = new std::map<uint64_t, Plan*>;
  return *m;
}

std::vector<Retired>& retired() {
  static auto* v = new std::vector<Retired>;
  return *v;
}

// With g_plans_mutex held.
void retire(const Plan& plan) {
  const uint64_t calls = plan.calls.load(std::memory_order_relaxed);
  if (plan.composite || calls == 0) return;
  const auto same = [&](const Retired& r) {
    return r.op_name == plan.op_name && r.device == plan.device->name && r.state == plan.state &&
           r.numerics == plan.numerics && r.decomposed == plan.decomposed;
  };
  auto found = std::find_if(retired().begin(), retired().end(), same);
  if (found == retired().end()) {
    retired().push_back({plan.op_name, plan.device->name, plan.device->instance->name, plan.state,
                         plan.numerics, plan.decomposed, 0, 0});
    found = retired().end() - 1;
  }
  found->calls += calls;
  found->time_ns += plan.time_ns.load(std::memory_order_relaxed);
}

std::string name_of(const OpDesc& desc) {
  return desc.name.empty() ? "op " + std::to_string(desc.op) : desc.name;
}

}  // namespace

Plan* track_plan(Plan* plan) {
  static uint64_t next_id = 1;
  std::lock_guard lock(g_plans_mutex);
  plan->id = next_id++;
  plans().emplace(plan->id, plan);
  return plan;
}

std::string plan_label(uint64_t id) {
  std::lock_guard lock(g_plans_mutex);
  const auto found = plans().find(id);
  return found == plans().end() ? "" : found->second->label();
}

Verdict query_op(Device& device, const OpDesc& desc) {
  device.require_alive();
  const Records records(device, desc);
  const std::string what = "asking for " + name_of(desc) + " on " + device.name;
  anyhal_want wants[ANYHAL_WANTS_MAX] = {};
  Guarded<anyhal_verdict> answer;
  anyhal_verdict& v = answer.record;
  v.reason_operand = -1;
  v.wants = wants;
  ErrorRecord error;
  const anyhal_status status = device.table->op_query(device.handle, &records.op, &v, error);
  answer.check(what);
  Verdict out;
  if (status == ANYHAL_STATUS_UNSUPPORTED) {
    out.reason = error.record.reason ? error.record.reason : v.reason;
  } else {
    if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record);
    check(status, error, what, *device.instance);
    check_verdict(v, uint32_t(desc.operands.size()), what);
    for (const anyhal_want& want : wants)
      if (want.layout > ANYHAL_LAYOUT_DENSE_INNER)
        throw Error(ANYHAL_STATUS_INTERNAL,
                    what + ": the backend wants layout " + std::to_string(want.layout) +
                        ", which does not exist; report this to its vendor");
    out.support = v.support, out.reason = v.reason;
  }
  out.flags = v.flags, out.operand = v.reason_operand, out.cost_ns = v.cost_ns;
  out.workspace_bytes = v.workspace_bytes, out.hidden_bytes = v.hidden_bytes;
  out.text = said(error.record, *device.instance);
  out.wants.assign(wants, wants + std::min<uint32_t>(v.want_count, ANYHAL_WANTS_MAX));
  return out;
}

Plan* prepare_op(Device& device, const OpDesc& desc) {
  device.require_alive();
  if (desc.operands.size() > kMaxOperands)
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                name_of(desc) + " on " + device.name + ": it has " +
                    std::to_string(desc.operands.size()) + " operands and at most " +
                    std::to_string(kMaxOperands) + " are supported; split it",
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
  if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record);
  check(status, error, "preparing " + name_of(desc) + " on " + device.name, *device.instance);
  check_prepared(device, handle, prepared, uint32_t(desc.operands.size()),
                 "preparing " + name_of(desc) + " on " + device.name);
  device.counters.plans_prepared.fetch_add(1, std::memory_order_relaxed);
  auto* plan = new Plan;
  plan->device = &device, plan->handle = handle, plan->enqueue = device.table->op_enqueue;
  plan->set_counts(uint32_t(desc.operands.size()), desc.input_count);
  plan->op = desc.op, plan->called = desc.name;
  plan->workspace_bytes = prepared->workspace_bytes;
  plan->packs.assign(prepared->packs, prepared->packs + prepared->pack_count);
  plan->kernel = kernel_of(*prepared), plan->library = library_of(*prepared);
  plan->simple = plan->packs.empty() && !plan->workspace_bytes;
  plan->capture_safe = prepared->flags & ANYHAL_PREPARED_CAPTURE_SAFE;
  if (device.instance->has_graph_prepare) plan->desc = std::make_unique<OpDesc>(desc);
  return track_plan(plan);
}

Plan* make_composite(Device& device, uint32_t operand_count, uint32_t input_count,
                     Composite parts) {
  // Calls that fail before the next signal take earlier ones with them: not what a plan keeps.
  for (Buffer* b : parts.constants) wait_idle(*b, false);
  auto* plan = new Plan;
  plan->device = &device;
  plan->set_counts(operand_count, input_count);
  plan->composite = std::make_unique<Composite>(std::move(parts));
  for (const Buffer* b : plan->composite->constants) plan->constant_bytes += b->bytes;
  return track_plan(plan);
}

void release(Plan* plan) {
  if (!plan || plan->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    std::lock_guard lock(g_plans_mutex);
    plans().erase(plan->id);
    retire(*plan);
  }
  if (plan->composite) {
    for (Node& node : plan->composite->nodes) release(node.plan);
    for (Buffer* b : plan->composite->constants) release(b);
  }
  if (plan->handle) plan->device->bury_plan(plan->handle, plan->module);
  for (const Spec* spec : plan->out_specs)
    if (spec) spec->release();
  delete plan;
}

std::vector<Retired> retired_plans() {
  std::lock_guard lock(g_plans_mutex);
  return retired();
}

void plans_before_fork() { g_plans_mutex.lock(); }
void plans_after_fork() { g_plans_mutex.unlock(); }

std::vector<Plan*> retained_plans() {
  std::lock_guard lock(g_plans_mutex);
  std::vector<Plan*> alive;
  for (const auto& [id, p] : plans()) {
    // The last reference may be gone, and its holder about to wait for this lock.
    uint32_t seen = p->refs.load(std::memory_order_relaxed);
    while (seen && !p->refs.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) {
    }
    if (seen) alive.push_back(p);
  }
  return alive;
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
  if (used_ >= kMaxPlans || constant_bytes_ + plan->constant_bytes > kMaxConstantBytes) evict();
  if (2 * used_ >= mask_) grow();
  for (const Spec* s : specs) s->retain();
  const uint64_t h = hash(key);
  Entry& e = vacant(h);
  e.hash = h;
  for (uint32_t w = 0; w < std::min(key.count, kInline); ++w) e.words[w] = key.words[w];
  // The call that brought it here is about to run; only further ones say that it is in use.
  e.tail = new Tail{{}, specs, plan->calls.load(std::memory_order_relaxed) + 1};
  if (key.count > kInline) e.tail->words.assign(key.words + kInline, key.words + key.count);
  e.plan = plan;
  constant_bytes_ += plan->constant_bytes;
  ++used_;
}

PlanCache::Entry& PlanCache::vacant(uint64_t hash) {
  uint64_t i = hash & mask_;
  while (entries_[i].plan) i = (i + 1) & mask_;
  return entries_[i];
}

void PlanCache::rebuild(uint64_t mask) {
  Entry* old = entries_;
  const uint64_t old_mask = mask_;
  mask_ = mask;
  entries_ = new Entry[mask_ + 1];
  for (uint64_t i = 0; i <= old_mask; ++i)
    if (old[i].plan) vacant(old[i].hash) = old[i];
  delete[] old;
}

void PlanCache::grow() { rebuild(2 * mask_ + 1); }

void PlanCache::drop(Entry& e) {
  constant_bytes_ -= e.plan->constant_bytes;
  release(e.plan);  // alive as long as a call, a composite or a graph holds it
  for (const Spec* s : e.tail->specs) s->release();
  delete e.tail;
  e = {};
  --used_;
}

// A look-up leaves no trace, so that a warm call pays nothing for this; the calls that the plans
// count anyway tell which entries were used since the last time.
void PlanCache::evict() {
  for (uint64_t i = 0; i <= mask_; ++i) {
    Entry& e = entries_[i];
    if (!e.plan) continue;
    const uint64_t calls = e.plan->calls.load(std::memory_order_relaxed);
    if (calls <= e.tail->calls) {
      drop(e);
    } else {
      e.tail->calls = calls;
    }
  }
  // All in use: room must be made all the same, and nothing says whose.
  if (2 * used_ > kMaxPlans || 2 * constant_bytes_ > kMaxConstantBytes) clear();
  rebuild(mask_);
}

void PlanCache::clear() {
  for (uint64_t i = 0; i <= mask_; ++i)
    if (entries_[i].plan) drop(entries_[i]);
}

PlanCache& plan_cache() {
  static auto* cache = new PlanCache;
  return *cache;
}

}  // namespace hal
