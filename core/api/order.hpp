// Queues and graphs behind their handles, and the locks under which the core is called.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "core/api/devices.hpp"
#include "core/graph.hpp"

namespace hal {

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

  // A synchronous device's queues are independent. On others, hazards cross queues, and what the
  // core knows of them is the device's.
  std::recursive_mutex& lockable() {
    return core->device->synchronous ? mutex : core->device->order;
  }
};

ApiQueue& queue_of(const void* queue, const char* argument = "queue");

// Waits for a position in short pieces, so that other threads' calls go on in between. Throws
// Timeout and DeviceLost; what failed is for the caller to ask.
void wait_in_pieces(Queue& queue, uint64_t value, uint64_t limit_ns);

// Waits until the host may read (write) the bytes; the device's lock is held on return.
std::unique_lock<std::recursive_mutex> settle(ApiQueue& queue, Buffer& buffer, bool for_write);

// Throws where a graph is being captured on the queue.
void require_no_capture(const ApiQueue& queue, const char* what);

}  // namespace hal
