// A lock for sections of a few nanoseconds; yields when somebody holds it longer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <atomic>

#include "core/error.hpp"

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

// The lock of a queue's calls, under which code of users may run: where it would wait, a thread
// that is inside such code is refused, since the lock may be its own.
class HAL_API CallLock : public SpinLock {
 public:
  void lock() {
    if (__builtin_expect(!try_lock(), 0)) wait();
  }

 private:
  [[gnu::noinline, gnu::cold]] void wait();
};

// While a call that may run a user's code runs on this thread.
class HAL_API InCall {
 public:
  InCall();
  ~InCall();
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
};
// Throws where a user's kernel runs on this thread: it may hold what the caller would wait for.
HAL_API void require_outside_call();

}  // namespace hal
