// Insertion, growth, and freeing what readers may have seen. Nobody waits for a reader: what was
// taken out is looked at again on later insertions.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/plan_table.hpp"

#include <cstdlib>
#include <new>

#include "core/queue.hpp"

namespace hal {
namespace {

constexpr uint64_t kMaxPlans = 65536;  // as the cache of the Python path

}  // namespace

PlanTable::PlanTable() : table_(make_table(256)) {}

PlanTable::Table* PlanTable::make_table(uint64_t slots) {
  const size_t bytes = sizeof(Table) + slots * sizeof(std::atomic<PlanEntry*>);
  auto* t = static_cast<Table*>(std::calloc(1, bytes));
  if (!t) throw std::bad_alloc();
  t->mask = slots - 1;
  return t;
}

void PlanTable::place(Table& t, PlanEntry* entry) {
  uint64_t i = entry->hash >> kShift;
  while (t.slots[i & t.mask].load(std::memory_order_relaxed)) ++i;
  t.slots[i & t.mask].store(entry, std::memory_order_release);
}

void PlanTable::insert(Device& device, const Signature& s, Plan* plan) {
  std::lock_guard guard(mutex_);
  reclaim();
  const auto same = [&](const PlanEntry& e) {
    return std::memcmp(e.words, s.words, s.count * sizeof(uint64_t)) == 0;
  };
  if (find(table(), s.hash, s.count, same)) return release(plan);
  if (used_ >= kMaxPlans)
    replace(device, 256, false);
  else if (2 * (used_ + 1) > table_.load()->mask)
    replace(device, 2 * (table_.load()->mask + 1), true);
  const size_t bytes = s.count * sizeof(uint64_t);
  auto* e = static_cast<PlanEntry*>(std::malloc(sizeof(PlanEntry) + bytes));
  if (!e) {
    release(plan);
    throw std::bad_alloc();
  }
  e->hash = s.hash, e->plan = plan, e->word_count = s.count;
  std::memcpy(e->words, s.words, bytes);
  place(*table_.load(), e);
  ++used_;
}

void PlanTable::replace(Device& device, uint64_t slots, bool keep_entries) {
  Table* old = table_.load();
  Table* fresh = make_table(slots);
  if (keep_entries) {
    for (uint64_t i = 0; i <= old->mask; ++i)
      if (PlanEntry* e = old->slots[i].load(std::memory_order_relaxed)) place(*fresh, e);
  } else {
    used_ = 0;
  }
  table_.store(fresh, std::memory_order_seq_cst);
  // Whoever takes a queue's lock from here on sees the new table.
  retired_.push_back({old, !keep_entries, device.queues()});
}

void PlanTable::after_fork() {
  new (&mutex_) std::mutex;
  new (&retired_) std::vector<Retired>;
  const Table& t = table();
  used_ = 0;
  for (uint64_t i = 0; i <= t.mask; ++i) used_ += t.slots[i].load() != nullptr;
}

void PlanTable::reclaim() {
  std::erase_if(retired_, [](Retired& r) {
    std::erase_if(r.seen_by, [](Queue* q) {
      const bool free = q->lock.try_lock();
      if (free) q->lock.unlock();
      return free;
    });
    if (!r.seen_by.empty()) return false;
    for (uint64_t i = 0; r.entries && i <= r.table->mask; ++i)
      if (PlanEntry* e = r.table->slots[i].load(std::memory_order_relaxed)) {
        release(e->plan);
        std::free(e);
      }
    std::free(r.table);
    return true;
  });
}

}  // namespace hal
