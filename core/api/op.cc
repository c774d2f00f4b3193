// hal_op: from tensors to a plan and its run.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/api/call.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"

namespace hal {
namespace {

// A call with its handles resolved; on the stack of hal_op.
struct Resolved {
  uint64_t head;  // first word of the key: op and counts
  uint64_t hash;
  uint32_t count;                 // words of the key
  bool shared;                    // an output has its buffer in common with another operand
  bool outside;                   // an operand leaves its buffer
  Buffer* buffers[kMaxOperands];  // kept for the call by `Kept`
  uint64_t rooms[kMaxOperands];   // bytes of each
  anyhal_ref refs[kMaxOperands];
  OperandWord words[kMaxOperands];
  uint64_t spans[kMaxOperands];  // bytes from first to last element; known once a plan is found
};

// An odd number without pattern (the golden ratio's digits).
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ull;

inline uint64_t head_word(uint32_t op, uint32_t input_count, uint32_t operand_count,
                          uint32_t attributes_bytes) {
  return uint64_t(op) << 32 | input_count << 24 | operand_count << 16 | attributes_bytes;
}

// The input that an output exactly is, + 1, or 0. Only where they share a buffer.
[[gnu::noinline]] uint32_t alias_of(const hal_tensor* const* operands, uint32_t input_count,
                                    uint32_t output) {
  const hal_tensor& o = *operands[output];
  for (uint32_t i = 0; i < input_count; ++i) {
    const hal_tensor* t = operands[i];
    if (!t || t->buffer != o.buffer || t->offset_bytes != o.offset_bytes) continue;
    const size_t used = size_t(o.rank) * sizeof(int64_t);
    if (t->dtype == o.dtype && t->rank == o.rank && !std::memcmp(t->dims, o.dims, used) &&
        !std::memcmp(t->strides, o.strides, used))
      return i + 1;
  }
  return 0;
}

// The attribute record's bytes from `at` on as a word, zeros behind its end.
inline uint64_t attribute_word(const void* attributes, uint32_t bytes, uint32_t at) {
  uint64_t word = 0;
  const char* from = static_cast<const char*>(attributes) + at;
  std::memcpy(&word, from, std::min<uint32_t>(8, bytes - at));
  return word;
}

// The key in the form that `matches` compares. With each operand goes its span, which follows from
// the rest and is not compared.
Signature make_key(const Given& g, const Resolved& r, bool cells) {
  Signature key;
  key.hash = r.hash;
  const auto add = [&](uint64_t word) { key.words[key.count++] = word; };
  add(r.head);
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    add(r.words[i].word);
    const hal_tensor* t = g.operands[i];
    if (!t) continue;
    add(r.spans[i]);
    for (int32_t d = 0; d < t->rank; ++d) add(uint64_t(t->dims[d]));
    for (int32_t d = 0; d < t->rank; ++d) add(uint64_t(t->strides[d]));
    if (cells) add(t->offset_bytes), add(r.rooms[i]);
  }
  for (uint32_t at = 0; at < g.attributes_bytes; at += 8)
    add(attribute_word(g.attributes, g.attributes_bytes, at));
  return key;
}

// Fills places and hash; false where something needs a closer look and a sentence. The caller holds
// the queue's lock, so that no buffer goes meanwhile.
bool read(const Device* device, const Given& g, Resolved& r) {
  const auto& [op, operands, input_count, operand_count, attributes, bytes] = g;
  const Handles& buffers = handles(Kind::kBuffer);
  r.head = head_word(op, input_count, operand_count, bytes);
  uint64_t hash = r.head * kOdd;
  uint32_t ranks = 0, present = 0;
  bool shared = false;
  for (uint32_t i = 0; i < operand_count; ++i) {
    const hal_tensor* t = operands[i];
    if (__builtin_expect(!t, 0)) {
      r.buffers[i] = nullptr, r.rooms[i] = 0, r.refs[i] = {0, 0}, r.words[i] = {0};
      continue;
    }
    const Slot* slot = buffers.place(t->buffer);
    const auto rank = uint32_t(t->rank);
    if (!Handles::holds(slot, t->buffer) | (slot->device != device) | (rank > kMaxRank))
      return false;
    const uint64_t offset = slot->offset + t->offset_bytes;
    auto* const buffer = slot->as<Buffer>();
    r.refs[i].memory = slot->memory, r.refs[i].offset = offset;
    uint64_t alias = 0;
    if (i >= input_count) {
      bool same = false;
      for (uint32_t j = 0; j < i; ++j) same |= r.buffers[j] == buffer;
      if (__builtin_expect(same, 0)) shared = true, alias = alias_of(operands, input_count, i);
    }
    r.buffers[i] = buffer, r.rooms[i] = slot->bytes;
    r.words[i] = OperandWord::make(*t, alignment_class(offset), alias, slot->flags);
    ranks += rank, ++present;
    uint64_t own = r.words[i].word * kOdd;  // operands are mixed side by side, then joined
    for (uint32_t d = 0; d < rank; ++d)
      own = ((own ^ uint64_t(t->dims[d])) * kOdd ^ uint64_t(t->strides[d])) * kOdd;
    hash = (hash << 9 | hash >> 55) ^ own;
  }
  for (uint32_t at = 8; at < bytes; at += 8)
    hash = (hash ^ attribute_word(attributes, bytes, at)) * kOdd;
  r.hash = hash * kOdd, r.shared = shared;
  r.count = 1 + operand_count + 2 * ranks + (device->cells ? 3 : 1) * present + (bytes + 7) / 8;
  return true;
}

// Two words at once, at any address of a word.
using Pair = uint64_t __attribute__((vector_size(16), aligned(8), may_alias));

// Gathers in `differs` whether dims and strides are not the key's words.
[[gnu::always_inline]] inline void compare_sizes(const hal_tensor& t, uint32_t rank,
                                                 const uint64_t* words, Pair& differs) {
  const auto pair = [](const void* at) { return *static_cast<const Pair*>(at); };
  const uint64_t* const strides = words + rank;
  if (rank & 1) {
    const uint32_t d = rank - 1;
    differs[0] |= (words[d] ^ uint64_t(t.dims[d])) | (strides[d] ^ uint64_t(t.strides[d]));
  }
  for (uint32_t d = 0; d + 1 < rank; d += 2)
    differs |= (pair(words + d) ^ pair(t.dims + d)) | (pair(strides + d) ^ pair(t.strides + d));
}

// Whether the entry is that of this call; sets `outside`. Without branches on the words: nearly
// always all are equal. Equal counts keep it inside the entry.
bool matches(const PlanEntry& e, const Given& g, bool cells, Resolved& r) {
  const auto& [op, operands, input_count, operand_count, attributes, bytes] = g;
  const uint64_t* words = e.words;
  uint64_t differs = *words++ ^ r.head;
  Pair sizes = {0, 0};
  bool outside = false;
  for (uint32_t i = 0; i < operand_count; ++i) {
    differs |= *words++ ^ r.words[i].word;
    const hal_tensor* t = operands[i];
    r.spans[i] = 0;
    if (!t) continue;
    const uint64_t span = r.spans[i] = *words++;
    const auto rank = uint32_t(t->rank);
    compare_sizes(*t, rank, words, sizes);
    words += 2 * rank;
    const uint64_t offset = t->offset_bytes, room = r.rooms[i];
    if (__builtin_expect(cells, 0)) differs |= *words++ ^ offset, differs |= *words++ ^ room;
    outside |= (offset > room) | (span > room - offset);
  }
  for (uint32_t at = 0; at < bytes; at += 8)
    differs |= *words++ ^ attribute_word(attributes, bytes, at);
  r.outside = outside;
  return (differs | sizes[0] | sizes[1]) == 0;
}

// Where the table keeps the last call that looked like this one: by op and outer sizes of the first
// two operands. Any number serves; sizes are often powers of two, so all bits are folded in.
inline uint32_t recent_place(uint32_t op, const hal_tensor& first, const hal_tensor& second) {
  const auto outer = [](const hal_tensor& t) -> uint32_t {
    const auto last = uint32_t(t.rank) - 1;
    if (__builtin_expect(last >= HAL_RANK_MAX, 0)) return 0;
    return uint32_t(t.dims[0]) * 3 + uint32_t(t.dims[last]);
  };
  const uint32_t h = outer(first) + outer(second) * 5 + op * 37;
  return (h + (h >> 6) + (h >> 11)) % PlanTable::Table::kRecent;
}

// Reading and comparing in one pass, for the usual call: all operands there, linear memory, nothing
// shared. Whatever is not exactly the entry's call, also what is wrong, is left to the full way.
[[gnu::always_inline]] inline bool recall(const PlanEntry& e, uint64_t head, const Device* device,
                                          const hal_tensor* const* operands, uint32_t input_count,
                                          uint32_t operand_count, const void* attributes,
                                          uint32_t bytes, anyhal_ref* refs) {
  const uint64_t* words = e.words;
  if (*words++ != head) return false;
  const Handles& buffers = handles(Kind::kBuffer);
  uint64_t differs = 0;
  Pair sizes = {0, 0};
  for (uint32_t i = 0; i < operand_count; ++i) {
    const hal_tensor* t = operands[i];
    if (__builtin_expect(!t, 0)) return false;
    const Slot* slot = buffers.place(t->buffer);
    const uint64_t at = t->offset_bytes, room = slot->bytes, offset = slot->offset + at;
    const uint64_t word = OperandWord::make(*t, alignment_class(offset), 0, slot->flags).word;
    // The same word means the same rank: from here on the entry's words are where they seem.
    if (__builtin_expect(!Handles::holds(slot, t->buffer) | (slot->device != device) |
                             (words[0] != word) | (at > room) | (words[1] > room - at),
                         0))
      return false;
    const auto rank = uint32_t(t->rank);
    compare_sizes(*t, rank, words + 2, sizes);
    words += 2 + 2 * rank;
    refs[i].memory = slot->memory, refs[i].offset = offset;
    if (i >= input_count)
      for (uint32_t j = 0; j < i; ++j) differs |= operands[j]->buffer == t->buffer;
  }
  for (uint32_t at = 0; at < bytes; at += 8)
    differs |= *words++ ^ attribute_word(attributes, bytes, at);
  return (differs | sizes[0] | sizes[1]) == 0;
}

// Every operand inside its buffer.
bool in_bounds(const Given& g, const Resolved& r) {
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    if (!r.buffers[i]) continue;
    const uint64_t offset = g.operands[i]->offset_bytes, room = r.rooms[i];
    if (offset > room || r.spans[i] > room - offset) return false;
  }
  return true;
}

// No output over another operand, unless exactly as it may be.
bool apart(const Given& g, const Resolved& r) {
  for (uint32_t o = g.input_count; o < g.operand_count; ++o)
    for (uint32_t i = 0; i < o; ++i) {
      if (r.buffers[i] != r.buffers[o] || !r.buffers[o] || r.words[o].alias() == i + 1) continue;
      const uint64_t a = r.refs[o].offset, b = r.refs[i].offset;
      if (a < b + r.spans[i] && b < a + r.spans[o]) return false;
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
    const Device* at = slot_of(t->buffer, Kind::kBuffer, argument.c_str()).device;
    if (at != device.native())
      invalid(std::string(row.name) + " on " + device.name + ": operand " + std::to_string(i) +
              " is on " + at->name + "; copy it with hal_buffer_copy");
    if (t->rank < 0 || t->rank > HAL_RANK_MAX)
      invalid(std::string(row.name) + " on " + device.name + ": operand " + std::to_string(i) +
                  " has rank " + std::to_string(t->rank) + "; 0 to 8 are possible",
              ANYHAL_REASON_RANK);
  }
  throw Error(ANYHAL_STATUS_INTERNAL, "a call was refused without a reason");
}

[[noreturn]] void refuse_places(const Given& g, const Resolved& r, const Device& device) {
  const std::string where = signature_text(*op_row(g.op), g) + " on " + device.name;
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    if (!r.buffers[i]) continue;
    const uint64_t offset = g.operands[i]->offset_bytes, bytes = r.rooms[i];
    if (offset > bytes || r.spans[i] > bytes - offset)
      invalid(where + ": operand " + std::to_string(i) + " takes bytes " + std::to_string(offset) +
                  " + " + std::to_string(r.spans[i]) + " of a buffer of " + std::to_string(bytes),
              HAL_REASON_BOUNDS);
  }
  invalid(where + ": an output overlaps another operand; pass buffers that do not",
          HAL_REASON_ALIASING);
}

// The plan of a new signature; one reference for the caller, another in the table.
Plan* prepare(ApiDevice& api, const Given& g, Resolved& r) {
  Device& device = *api.native();
  device.require_alive();
  const OpRow& row = check_given(g, " on " + device.name);
  const std::string text = signature_text(row, g), where = text + " on " + device.name + ": ";
  std::vector<uint64_t> spans;
  OpDesc desc = describe_call(device, row, g, r.words, spans);
  desc.name = row.name;
  std::copy(spans.begin(), spans.end(), r.spans);
  if (!in_bounds(g, r) || !apart(g, r)) refuse_places(g, r, device);
  Plan* plan;
  Verdict verdict;
  try {
    Refusal refusal = quarantine(api, row, desc);
    if (!refusal.reason) {
      verdict = query_op(device, desc);
      refusal = judge(row, desc, verdict);
    }
    if (refusal.reason) throw Error(ANYHAL_STATUS_UNSUPPORTED, refusal.text, refusal.reason);
    plan = prepare_op(device, desc);
  } catch (const Error& e) {
    if (e.status == ANYHAL_STATUS_DEVICE_LOST) throw;
    // The core's own beginning, "OP on DEVICE: ", says nothing new here.
    const size_t said = e.text.find(device.name + ": ");
    const bool led = said != std::string::npos && said < 48;
    throw Error(e.status, where + (led ? e.text.substr(said + device.name.size() + 2) : e.text),
                e.reason);
  }
  plan->op_name = row.name, plan->signature = text, plan->state = api.backend->row.state;
  plan->cost_ns = double(verdict.cost_ns);
  plan->retain();
  api.plans.insert(device, make_key(g, r, device.cells), plan);
  return plan;
}

// All but the warm call on an idle synchronous queue.
[[gnu::noinline]] hal_status run_general(ApiQueue& q, Plan& plan, const Given& g, const Resolved& r,
                                         hal_error* error) {
  return at_edge(error, [&] {
    Operand operands[kMaxOperands];
    for (uint32_t i = 0; i < g.operand_count; ++i)
      if (r.buffers[i]) operands[i] = {r.refs[i].offset, r.buffers[i]};
    const auto lock = q.enter();
    run_plan(plan, operands, *q.core);
  });
}

[[gnu::noinline]] hal_status failed(Plan& plan, anyhal_status status, const anyhal_error& record,
                                    hal_error* error) {
  return at_edge(error, [&] { raise_call(plan, status, record); });
}

// Waits for a queue that another call has; refused where that call is the caller's own.
[[gnu::noinline]] hal_status enter(Queue& queue, hal_error* error) {
  return at_edge(error, [&] { queue.lock.lock(); });
}

// Runs a plan that the caller holds: the short path where it applies, else the general one.
hal_status run(ApiQueue& q, Plan& plan, const Given& g, const Resolved& r, hal_error* error) {
  if (plan.simple && q.core->idles() && !receipts_on()) {
    ErrorRecord record;
    if (!q.core->lock.try_lock()) {
      const hal_status waited = enter(*q.core, error);
      if (waited != HAL_STATUS_OK) return waited;
    }
    const anyhal_status status = run_simple_locked(plan, r.refs, g.operand_count, *q.core, record);
    q.core->lock.unlock();
    if (status == ANYHAL_STATUS_OK) return HAL_STATUS_OK;
    // Not accepted for want of memory: the general path frees what it can and tries once more.
    if (status != ANYHAL_STATUS_OUT_OF_MEMORY) return failed(plan, status, record.record, error);
  }
  return run_general(q, plan, g, r, error);
}

// What a warm call never needs, apart so that it carries no weight there.
struct Cold {
  [[gnu::noinline]] static hal_status queue(hal_queue* queue, hal_error* error) {
    return at_edge(error, [&] { slot_of(queue, Kind::kQueue, "queue"); });
  }
  [[gnu::noinline]] static hal_status arguments(ApiQueue& q, const Given& g, hal_error* error) {
    return at_edge(error, [&] { refuse(g, *q.device); });
  }
  [[gnu::noinline]] static hal_status places(ApiQueue& q, const Given& g, const Resolved& r,
                                             hal_error* error) {
    return at_edge(error, [&] { refuse_places(g, r, *q.core->device); });
  }
  [[gnu::noinline]] static hal_status fresh(ApiQueue& q, const Given& g, Resolved& r,
                                            hal_error* error) {
    Plan* plan = nullptr;
    const hal_status status = at_edge(error, [&] { plan = prepare(*q.device, g, r); });
    if (status != HAL_STATUS_OK) return status;
    const hal_status ran = run(q, *plan, g, r, error);
    release(plan);
    return ran;
  }
};

// Keeps a call's buffers until it has run, whoever frees them meanwhile.
struct Kept {
  const Resolved& r;
  uint32_t count = 0;
  void keep(uint32_t operand_count) {
    for (; count < operand_count; ++count)
      if (r.buffers[count]) r.buffers[count]->retain();
  }
  ~Kept() {
    while (count--) release(r.buffers[count]);
  }
};

// The full way: any signature, by its hash.
[[gnu::noinline]] hal_status find_and_run(hal_queue* handle, const Given& g, uint32_t place,
                                          hal_error* error) {
  const Held<ApiQueue> held = handles(Kind::kQueue).hold<ApiQueue>(handle);
  if (!held) return Cold::queue(handle, error);
  ApiQueue& q = *held;
  Resolved r;
  Kept kept{r};
  Plan* plan = nullptr;
  {
    if (!q.core->lock.try_lock()) {
      const hal_status waited = enter(*q.core, error);
      if (waited != HAL_STATUS_OK) return waited;
    }
    std::unique_lock guard(q.core->lock, std::adopt_lock);
    if (!read(q.native, g, r)) {
      guard.unlock();
      return Cold::arguments(q, g, error);
    }
    kept.keep(g.operand_count);
    PlanTable::Table& table = q.plans->table();
    const PlanEntry* entry = PlanTable::find(
        table, r.hash, r.count, [&](const PlanEntry& e) { return matches(e, g, q.cells, r); });
    if (entry) {
      table.recent[place].store(entry, std::memory_order_release);
      plan = entry->plan;
      plan->retain();
    }
  }
  if (!plan) return Cold::fresh(q, g, r, error);
  const bool good = !r.outside && (!r.shared || apart(g, r));
  const hal_status ran = good ? run(q, *plan, g, r, error) : Cold::places(q, g, r, error);
  release(plan);
  return ran;
}

// A warm call that failed; the queue's lock is held, and given back here.
[[gnu::noinline]] hal_status failed_warm(hal_queue* handle, Queue& queue, Plan& plan,
                                         const Given& g, uint32_t place, anyhal_status status,
                                         const anyhal_error& record, hal_error* error) {
  plan.retain();
  queue.lock.unlock();
  // Not accepted for want of memory: the other way frees what it can and tries once more.
  const hal_status out = status == ANYHAL_STATUS_OUT_OF_MEMORY
                             ? find_and_run(handle, g, place, error)
                             : failed(plan, status, record, error);
  release(&plan);
  return out;
}

}  // namespace
}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_op(hal_queue* handle, uint32_t op, const hal_tensor* const* operands,
                  uint32_t input_count, uint32_t operand_count, const void* attributes,
                  uint32_t attributes_bytes, hal_error* error) {
  const Slot* slot = handles(Kind::kQueue).find(handle);
  if (__builtin_expect(!slot, 0)) return Cold::queue(handle, error);
  ApiQueue& q = *slot->as<ApiQueue>();
  const auto given = [&] {
    return Given{op, operands, input_count, operand_count, attributes, attributes_bytes};
  };
  if (__builtin_expect(operand_count - 2 > kMaxOperands - 2, 0) ||
      __builtin_expect(input_count > operand_count, 0) || __builtin_expect(!operands, 0) ||
      __builtin_expect(attributes_bytes && (!attributes || attributes_bytes > 512), 0))
    return Cold::arguments(q, given(), error);
  const hal_tensor *const first = operands[0], *const second = operands[1];
  Queue& queue = *q.core;
  if (__builtin_expect(!first, 0) || __builtin_expect(!second, 0) || __builtin_expect(q.cells, 0) ||
      __builtin_expect(receipts_on(), 0))
    return find_and_run(handle, given(), 0, error);
  const uint64_t head = head_word(op, input_count, operand_count, attributes_bytes);
  const uint32_t place = recent_place(op, *first, *second);
  // Under the queue's lock throughout, so that finding the plan and running it overlap.
  anyhal_ref refs[kMaxOperands];
  if (__builtin_expect(!queue.lock.try_lock(), 0)) {
    const hal_status waited = enter(queue, error);
    if (waited != HAL_STATUS_OK) return waited;
  }
  const PlanEntry* e = q.plans->table().recent[place].load(std::memory_order_acquire);
  // The handle again, now that the release of queue or buffers waits for this lock.
  if (__builtin_expect(!queue.idles(), 0) || __builtin_expect(!e, 0) ||
      __builtin_expect(!Handles::holds(slot, handle), 0) ||
      __builtin_expect(!recall(*e, head, q.native, operands, input_count, operand_count, attributes,
                               attributes_bytes, refs),
                       0) ||
      __builtin_expect(!e->plan->simple, 0)) {
    queue.lock.unlock();
    return find_and_run(handle, given(), place, error);
  }
  anyhal_error record;
  record.size = sizeof(record);
  record.text[0] = 0, record.reason = 0;
  const anyhal_status status = run_simple_locked(*e->plan, refs, operand_count, queue, &record);
  if (__builtin_expect(status == ANYHAL_STATUS_OK, 1)) {
    queue.lock.unlock();
    return HAL_STATUS_OK;
  }
  return failed_warm(handle, queue, *e->plan, given(), place, status, record, error);
}

}  // extern "C"
