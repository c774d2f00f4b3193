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

// What tells one call from another, and a hash over most of it. `add` is for words that say much,
// `add_unhashed` for those that rarely differ when the others are equal.
struct Signature {
  static constexpr uint32_t kWords = 2 + kMaxOperands * (3 + 2 * kMaxRank) + 64;
  uint64_t hash = 0;
  uint32_t count = 0;
  uint64_t words[kWords];

  void add(uint64_t word) {
    hash += (word + kOdd[count % 16]) * kOdd[(count + 7) % 16];
    words[count++] = word;
  }
  void add_unhashed(uint64_t word) { words[count++] = word; }
  uint64_t mixed() const { return (hash ^ hash >> 29) * 0x9e3779b97f4a7c15ull; }

 private:
  // Fractional digits of pi, made odd: any unrelated odd numbers serve.
  static constexpr uint64_t kOdd[16] = {
      0x243f6a8885a308d3, 0x13198a2e03707345, 0xa4093822299f31d1, 0x082efa98ec4e6c89,
      0x452821e638d01377, 0xbe5466cf34e90c6d, 0xc0ac29b7c97c50dd, 0x3f84d5b5b5470917,
      0x9216d5d98979fb1b, 0xd1310ba698dfb5ad, 0x2ffd72dbd01adfb7, 0xb8e1afed6a267e97,
      0xba7c9045f12c7f99, 0x24a19947b3916cf7, 0x0801f2e2858efc17, 0x636920d871574e69};
};

// Immutable once it can be found. The key is compared whole; a hash is never the proof.
struct PlanEntry {
  uint64_t hash;
  Plan* plan;  // one reference
  uint32_t operand_count, word_count;
  uint64_t data[];  // span of each operand in bytes, then the key

  const uint64_t* spans() const { return data; }
  bool matches(const Signature& s, uint64_t mixed) const {
    return hash == mixed && word_count == s.count &&
           std::memcmp(data + operand_count, s.words, s.count * sizeof(uint64_t)) == 0;
  }
};

class PlanTable {
 public:
  PlanTable();

  // The caller holds a Pin for as long as it uses the entry.
  const PlanEntry* find(const Signature& s) const {
    const uint64_t mixed = s.mixed();
    const Table& t = *table_.load(std::memory_order_acquire);
    for (uint64_t i = mixed >> 20;; ++i) {
      const PlanEntry* e = t.slots[i & t.mask].load(std::memory_order_acquire);
      if (!e || e->matches(s, mixed)) return e;
    }
  }
  // Takes over one reference of the plan; drops it where another thread was first.
  void insert(const Signature& s, Plan* plan, const std::vector<uint64_t>& spans);
  uint64_t size() const { return used_; }

 private:
  struct Table {
    uint64_t mask;
    std::atomic<PlanEntry*> slots[];
  };
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
