// The plans of one device by call signature.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/plan.hpp"

namespace hal {

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

// Read under the lock of any queue of the device, which a call takes anyway, so that reading shares
// no line between queues. Changed under a mutex of its own: what a reader may still see is freed
// after each queue's lock was free once.
class PlanTable {
 public:
  struct Table {
    static constexpr uint32_t kRecent = 256;
    // What was found last for a cheap hash; only entries of this table.
    std::atomic<const PlanEntry*> recent[kRecent];
    uint64_t mask;
    std::atomic<PlanEntry*> slots[];
  };

  PlanTable();
  // Good, with its entries, while the caller holds the lock of a queue.
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
  // Takes over one reference of the plan; drops it where another thread was first. The caller
  // holds no queue's lock.
  void insert(Device& device, const Signature& s, Plan* plan);
  uint64_t size() const { return used_; }
  // In a fork's child: what another thread was changing is let go.
  void after_fork();

 private:
  static constexpr int kShift = 40;  // products have their best bits on top
  struct Retired {
    Table* table;
    bool entries;  // they go as well
    std::vector<Queue*> seen_by;
  };
  static Table* make_table(uint64_t slots);
  void place(Table& t, PlanEntry* entry);
  void replace(Device& device, uint64_t slots, bool keep_entries);
  void reclaim();

  std::atomic<Table*> table_;
  std::mutex mutex_;
  uint64_t used_ = 0;
  std::vector<Retired> retired_;
};

}  // namespace hal
