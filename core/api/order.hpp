// Queues and graphs behind their handles, and the locks under which the core is called.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "core/api/devices.hpp"
#include "core/graph.hpp"

namespace hal {

// Queues are kept for ever and used again, so that a call which raced with the release reads what
// is there, and then finds its handle gone.
struct ApiQueue {
  ApiQueue(ApiDevice* d, Queue* q)
      : device(d), core(q), plans(&d->plans), native(q->device), cells(q->device->cells) {}

  ApiDevice* device;
  Queue* core;
  // What a warm call needs of the device, one step nearer:
  PlanTable* plans;
  const Device* native;
  bool cells;
  std::recursive_mutex mutex;
  std::atomic<uint32_t> refs{1};  // the handle's, and one for each call that is under way
  bool closed = false;            // the handle ended; under `lockable`

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  // Locked for a call that leaves work or a capture behind; throws when it was released meanwhile.
  std::unique_lock<std::recursive_mutex> enter() {
    require_outside_call();  // its launch has the lock, perhaps on another thread
    std::unique_lock lock(lockable());
    if (closed)
      invalid("a queue of " + core->device->name +
                  " was released by another thread during a call on it; release it after its calls",
              HAL_REASON_HANDLE);
    return lock;
  }
  // A synchronous device's queues are independent. On others, hazards cross queues, and what the
  // core knows of them is the device's.
  std::recursive_mutex& lockable() {
    return core->device->synchronous ? mutex : core->device->order;
  }
};

// Back to its device's spare ones, with the last reference.
void release(ApiQueue* queue);

inline Held<ApiQueue> queue_of(const void* queue, const char* argument = "queue") {
  return hold_of<ApiQueue>(queue, Kind::kQueue, argument);
}

// Waits for a position in short pieces, so that other threads' calls go on in between. Throws
// Timeout and DeviceLost; what failed is for the caller to ask.
void wait_in_pieces(Queue& queue, uint64_t value, uint64_t limit_ns);

// Waits until the host may read (write) the bytes; the device's lock is held on return.
std::unique_lock<std::recursive_mutex> settle(ApiQueue& queue, Buffer& buffer, bool for_write);

// Throws where a graph is being captured on the queue, or elsewhere and would write the buffer.
void require_no_capture(const ApiQueue& queue, const char* what, const Buffer* buffer = nullptr);

}  // namespace hal
