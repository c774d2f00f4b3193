// A lock for sections of a few nanoseconds; yields when somebody holds it longer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <atomic>

namespace hal {

class SpinLock {
 public:
  void lock() {
    if (__builtin_expect(locked_.exchange(true, std::memory_order_seq_cst), 0)) wait();
  }
  bool try_lock() { return !locked_.exchange(true, std::memory_order_seq_cst); }
  // Whether somebody has it now. Who takes it later sees what was stored (seq_cst) before.
  bool is_locked() const { return locked_.load(std::memory_order_seq_cst); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  // Apart, so that callers keep their registers.
  [[gnu::noinline, gnu::cold]] void wait() {
    for (int spins = 0; locked_.exchange(true, std::memory_order_seq_cst); ++spins)
      if (spins > 100) sched_yield();
  }

  std::atomic<bool> locked_{false};
};

}  // namespace hal
