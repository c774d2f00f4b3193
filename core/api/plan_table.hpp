// The plans of one device by call signature: read without a lock, changed under one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/plan.hpp"

namespace hal {

// A thread's count of entering and leaving: odd while it may hold entries of some table.
struct alignas(64) PinRecord {
  std::atomic<uint64_t> count{0};
  std::atomic<bool> owned{false};
};

extern __thread PinRecord* t_pin_record __attribute__((tls_model("initial-exec")));
PinRecord* make_pin_record();
// Whether readers must fence by themselves: the kernel cannot do it for them (membarrier).
extern const bool g_pin_fences;

// While it lives, no entry that was found is freed. Not to be nested.
class Pin {
 public:
  Pin() : record_(t_pin_record ? t_pin_record : make_pin_record()) {
    count_ = record_->count.load(std::memory_order_relaxed);
    record_->count.store(count_ + 1, std::memory_order_relaxed);
    if (g_pin_fences)
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else
      std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Pin() { record_->count.store(count_ + 2, std::memory_order_release); }
  Pin(const Pin&) = delete;

 private:
  PinRecord* record_;
  uint64_t count_;
};

// What tells one call from another: compared whole, since a hash is never the proof. Built for a
// new call only; a warm one is compared where it lies.
struct Signature {
  static constexpr uint32_t kWords = 2 + kMaxOperands * (4 + 2 * kMaxRank) + 64;
  uint64_t hash = 0;
  uint32_t count = 0;
  uint64_t words[kWords];
};

// Immutable once it can be found.
struct PlanEntry {
  uint64_t hash;
  Plan* plan;  // one reference
  uint32_t word_count;
  uint64_t words[];
};

class PlanTable {
 public:
  PlanTable();

  // The caller holds a Pin for as long as it uses a table or an entry of it.
  struct Table;
  Table& table() const { return *table_.load(std::memory_order_acquire); }

  // The entry with that hash and number of words that `matches`, or null.
  template <class Matches>
  static const PlanEntry* find(const Table& t, uint64_t hash, uint32_t count,
                               const Matches& matches) {
    for (uint64_t i = hash >> kShift;; ++i) {
      const PlanEntry* e = t.slots[i & t.mask].load(std::memory_order_acquire);
      if (!e || (e->hash == hash && e->word_count == count && matches(*e))) return e;
    }
  }
  // Takes over one reference of the plan; drops it where another thread was first.
  void insert(const Signature& s, Plan* plan);
  uint64_t size() const { return used_; }

  struct Table {
    static constexpr uint32_t kRecent = 256;
    // What was found last for a cheap hash; only entries of this table.
    std::atomic<const PlanEntry*> recent[kRecent];
    uint64_t mask;
    std::atomic<PlanEntry*> slots[];
  };

 private:
  static constexpr int kShift = 40;  // products have their best bits on top
  // What may still be looked at by threads that were inside when it was taken out.
  struct Retired {
    Table* table;
    bool entries;  // they go as well
    std::vector<std::pair<PinRecord*, uint64_t>> inside;
  };
  static Table* make_table(uint64_t slots);
  void place(Table& t, PlanEntry* entry);
  void replace(uint64_t slots, bool keep_entries);
  void reclaim();

  std::atomic<Table*> table_;
  std::mutex mutex_;
  uint64_t used_ = 0;
  std::vector<Retired> retired_;
};

}  // namespace hal
