// Insertion, and reclaiming what readers may have seen: nobody waits for a reader. What was taken
// out is looked at again on later insertions, until all who were inside have left once.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/plan_table.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <new>

namespace hal {
namespace {

constexpr uint64_t kMaxPlans = 65536;  // as the cache of the Python path

struct PinRecords {
  std::mutex mutex;
  std::deque<PinRecord> all;  // never shrinks; a thread that ends leaves its record to another
};
PinRecords& pin_records() {
  static auto* records = new PinRecords;
  return *records;
}

// Gives the record back when its thread ends.
struct PinOwner {
  ~PinOwner() {
    if (t_pin_record) t_pin_record->owned.store(false);
    t_pin_record = nullptr;
  }
};

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

__thread PinRecord* t_pin_record = nullptr;
const bool g_pin_fences = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;

PinRecord* make_pin_record() {
  static thread_local PinOwner owner;
  (void)owner;
  PinRecords& records = pin_records();
  std::lock_guard guard(records.mutex);
  for (PinRecord& r : records.all)
    if (!r.owned.exchange(true)) return t_pin_record = &r;
  records.all.emplace_back().owned.store(true);
  return t_pin_record = &records.all.back();
}

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

void PlanTable::insert(const Signature& s, Plan* plan) {
  std::lock_guard guard(mutex_);
  reclaim();
  const auto same = [&](const PlanEntry& e) {
    return std::memcmp(e.words, s.words, s.count * sizeof(uint64_t)) == 0;
  };
  if (find(table(), s.hash, s.count, same)) return release(plan);
  if (used_ >= kMaxPlans)
    replace(256, false);
  else if (2 * (used_ + 1) > table_.load()->mask)
    replace(2 * (table_.load()->mask + 1), true);
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

void PlanTable::replace(uint64_t slots, bool keep_entries) {
  Table* old = table_.load();
  Table* fresh = make_table(slots);
  if (keep_entries) {
    for (uint64_t i = 0; i <= old->mask; ++i)
      if (PlanEntry* e = old->slots[i].load(std::memory_order_relaxed)) place(*fresh, e);
  } else {
    used_ = 0;
  }
  table_.store(fresh, std::memory_order_seq_cst);
  // Whoever enters from here on sees the new table; who is inside now may hold the old one.
  if (!g_pin_fences && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) return;  // kept for ever
  Retired gone{old, !keep_entries, {}};
  std::lock_guard guard(pin_records().mutex);
  for (PinRecord& r : pin_records().all) {
    const uint64_t count = r.count.load(std::memory_order_seq_cst);
    if (count & 1) gone.inside.emplace_back(&r, count);
  }
  retired_.push_back(std::move(gone));
}

void PlanTable::reclaim() {
  std::erase_if(retired_, [](Retired& r) {
    std::erase_if(r.inside, [](const auto& one) {
      return one.first->count.load(std::memory_order_acquire) != one.second;
    });
    if (!r.inside.empty()) return false;
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
