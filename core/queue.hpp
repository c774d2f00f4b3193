// In-order queues; each owns one monotone counter of submitted and completed calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "core/lock.hpp"

namespace hal {

struct Graph;

struct HAL_API Queue {
  explicit Queue(Device* d);

  Device* device;
  anyhal_queue* handle = nullptr;  // null where the backend is synchronous
  mutable CallLock lock;           // serialises calls on this queue
  // Calls accepted so far: written with `lock` held, read by whoever wonders.
  std::atomic<uint64_t> submitted{0};
  uint64_t signalled = 0;  // highest value given to queue_signal
  std::atomic<uint64_t> completed{0};
  Graph* capture = nullptr;
  std::atomic<bool> plain{false};  // synchronous, not capturing: the short path applies
  // Calls whose values will never come, with what the backend said.
  struct Failure {
    uint64_t first, last;
    std::string call;  // "gather, call 42"
    std::string text;
    anyhal_status status;
  };
  std::vector<Failure> failures;
  size_t reported = 0;
  uint64_t since = 0;  // the calls of whoever holds the queue now are later

  bool idles() const { return plain.load(std::memory_order_relaxed); }
  void update_plain() { plain = device->synchronous && !capture && !device->lost; }
  // Submits everything so far; returns the value that marks it.
  uint64_t signal();
  bool reached(uint64_t value);  // polls
  // The same for whoever only gives something back, and must not fail: those that wait are told.
  bool settled(uint64_t value) noexcept;
  // Waits for a value; throws ExecutionFailed, DeviceLost or Timeout.
  void wait(uint64_t value, uint64_t limit_ns = ANYHAL_NO_LIMIT);
  // Everything accepted so far.
  void wait_all(uint64_t limit_ns = ANYHAL_NO_LIMIT);
  // Later calls here run after `value` of the other queue.
  void wait_for(Queue& source, uint64_t value);
  // A call said that the queue is dead: takes note of what failed and makes another.
  void bury();
  // One more call was accepted; `lock` is held.
  uint64_t accept(uint64_t calls = 1) {
    const uint64_t now = submitted.load(std::memory_order_relaxed) + calls;
    submitted.store(now, std::memory_order_relaxed);
    return now;
  }
  // Which plan the call of that number ran, for the words about one that fails later; `lock` is
  // held.
  void note(uint64_t value, uint64_t plan) { ran_[value % ran_.size()] = {value, plan}; }
  // For another holder: what only those before it lost is not told to it.
  void renew() {
    std::lock_guard guard(lock);
    since = submitted.load();
  }
  // Throws when `value` lies in a failed range.
  void require_good(uint64_t value) const;

 private:
  bool poll(uint64_t value, uint64_t limit_ns);
  // With `lock` held.
  void fail(anyhal_status status, const anyhal_queue_state& state, const anyhal_error& error);
  void leave();
  struct Ran {
    uint64_t value, plan;
  };
  std::array<Ran, 256> ran_{};  // more than devices keep in flight; an older call goes unnamed
  // A dead handle is released when no thread waits on one any more.
  uint32_t waiting_ = 0;
  std::vector<anyhal_queue*> dead_;
};

// Waits until the bytes may be read (or written: also readers) by the host.
HAL_API void wait_idle(Buffer& buffer, bool for_write);

}  // namespace hal
