// Queues, waits and graphs.
// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>

#include "core/api/names.hpp"
#include "core/api/order.hpp"
#include "core/dispatch.hpp"

namespace hal {
namespace {

constexpr uint64_t kPieceNs = 1000000;

// A graph keeps its queue's handle too: after the queue's release it is not launched.
struct ApiGraph {
  Graph core;
  hal_queue* handle;
  ApiDevice* device;
  std::atomic<uint32_t> refs{1};
  bool closed = false;  // under the queue's lock

  ApiGraph(ApiQueue& q, hal_queue* h) : core(*q.core), handle(h), device(q.device) {}
  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
};

void release(ApiGraph* graph) {
  if (graph->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete graph;
}

Held<ApiGraph> graph_of(const void* graph) {
  return hold_of<ApiGraph>(graph, Kind::kGraph, "graph");
}

// The graph's queue, or nothing when it was released.
Held<ApiQueue> queue_behind(const ApiGraph& graph) {
  return handles(Kind::kQueue).hold<ApiQueue>(graph.handle);
}

Held<ApiQueue> take_queue(ApiDevice& d) {
  Device& native = d.opened();
  ApiQueue* q;
  {
    std::lock_guard guard(d.spare_mutex);
    if (d.spare_queues.empty()) {
      d.queues.reserve(d.queues.size() + 1);
      d.spare_queues.reserve(d.queues.size() + 1);  // so that their release allocates nothing
      q = new ApiQueue(&d, new Queue(&native));
      d.queues.push_back(q);
      return Held<ApiQueue>(q);
    }
    q = d.spare_queues.back();
    d.spare_queues.pop_back();
  }
  std::lock_guard guard(q->lockable());
  q->closed = false;
  q->refs.store(1, std::memory_order_relaxed);
  return Held<ApiQueue>(q);
}

// Runs `body` under the lock of the graph's queue, where both are still there.
template <class Body>
void with_queue(const ApiGraph& graph, const std::string& where, const Body& body) {
  const Held<ApiQueue> q = queue_behind(graph);
  if (!q) invalid(where + ": its queue was released", HAL_REASON_HANDLE);
  const auto lock = q->enter();
  if (graph.closed) invalid(where + ": another thread released it", HAL_REASON_HANDLE);
  body(*q);
}

uint64_t submitted(ApiQueue& q) {
  std::lock_guard guard(q.core->lock);
  return q.core->submitted;
}

void require_submitted(ApiQueue& q, uint64_t value) {
  const uint64_t last = submitted(q);
  if (value > last)
    invalid("waiting for position " + std::to_string(value) + " of a queue of " + q.device->name +
            ": only " + std::to_string(last) + " calls were submitted; signal first");
}

// What a wait for everything reports: each failure once.
void wait_for_all(ApiQueue& q, uint64_t limit_ns) {
  wait_in_pieces(*q.core, submitted(q), limit_ns);
  if (q.core->device->synchronous) return;
  std::lock_guard guard(q.lockable());
  q.core->device->memory.collect_foreign();
  q.core->wait_all(limit_ns);
}

}  // namespace

void release(ApiQueue* queue) {
  if (queue->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::lock_guard guard(queue->device->spare_mutex);
  queue->device->spare_queues.push_back(queue);
}

void wait_in_pieces(Queue& queue, uint64_t value, uint64_t limit_ns) {
  if (queue.device->synchronous) return queue.device->require_alive();
  const uint64_t begin = now_ns();
  for (;;) {
    const uint64_t spent = now_ns() - begin;
    const uint64_t left =
        limit_ns == HAL_NO_LIMIT ? kPieceNs : limit_ns - std::min(spent, limit_ns);
    try {
      std::lock_guard guard(queue.device->order);
      return queue.wait(value, std::min(left, kPieceNs));
    } catch (const Error& e) {
      if (e.status != ANYHAL_STATUS_TIMEOUT || left == 0) throw;
    }
    sched_yield();  // whoever waits for the lock goes first
  }
}

std::unique_lock<std::recursive_mutex> settle(ApiQueue& q, Buffer& b, bool for_write) {
  require_outside_call();
  std::unique_lock lock(q.lockable());
  if (q.core->device->synchronous) return lock;
  const auto pending = [&]() -> Use {
    if (b.written.queue && !b.written.queue->reached(b.written.value)) return b.written;
    for (const Use& use : b.read)
      if (for_write && !use.queue->reached(use.value)) return use;
    return {nullptr, 0};
  };
  for (Use use = pending(); use.queue; use = pending()) {
    lock.unlock();
    wait_in_pieces(*use.queue, use.value, HAL_NO_LIMIT);
    lock.lock();
  }
  wait_idle(b, for_write);  // reports what failed; nothing is left to wait for
  return lock;
}

void require_no_capture(const ApiQueue& q, const char* what, const Buffer* buffer) {
  const bool own = q.core->capture;
  if (own || (buffer && buffer->captured))
    invalid(std::string(what) + " on " + q.device->name + ": a graph is being captured " +
                (own ? "on this queue" : "that writes the buffer") + "; end it first",
            HAL_REASON_CAPTURE);
}

}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_queue_create(hal_device* device, hal_queue** out_queue, hal_error* error) {
  return at_edge(error, [&] {
    need(out_queue, "out_queue");
    ApiDevice& d = device ? api_of(device) : default_device();
    Held<ApiQueue> q = take_queue(d);
    *out_queue = static_cast<hal_queue*>(handles(Kind::kQueue).add([&](Slot& slot) {
      q->retain();
      slot.object = q.get(), slot.device = q->core->device;
    }));
  });
}

hal_status hal_queue_release(hal_queue* queue, hal_error* error) {
  if (!queue) return HAL_STATUS_OK;
  return at_edge(error, [&] {
    const Held<ApiQueue> q = queue_of(queue);
    Held<ApiQueue> handles_own;
    {
      const auto lock = q->enter();
      require_no_capture(*q, "releasing a queue");
      handles_own = Held<ApiQueue>(static_cast<ApiQueue*>(handles(Kind::kQueue).remove(queue)));
      q->closed = true;
    }
    // Warm calls that found the handle before are through when their lock was free once.
    q->core->lock.lock();
    q->core->lock.unlock();
    wait_for_all(*q, HAL_NO_LIMIT);
  });
}

hal_status hal_queue_signal(hal_queue* queue, uint64_t* out_value, hal_error* error) {
  return at_edge(error, [&] {
    need(out_value, "out_value");
    const Held<ApiQueue> held = queue_of(queue);
    ApiQueue& q = *held;
    q.core->device->require_alive();
    if (!q.core->device->synchronous) {
      std::lock_guard guard(q.lockable());
      *out_value = q.core->signal();
    } else {
      *out_value = submitted(q);
    }
  });
}

hal_status hal_queue_wait_for(hal_queue* queue, hal_queue* source, uint64_t value,
                              hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiQueue> held = queue_of(queue), held_source = queue_of(source, "source");
    ApiQueue &q = *held, &from = *held_source;
    require_submitted(from, value);
    Device &to_device = *q.core->device, &from_device = *from.core->device;
    from_device.require_alive(), to_device.require_alive();
    if (from_device.synchronous) return;  // what was submitted is done
    if (to_device.synchronous || to_device.instance != from_device.instance ||
        !to_device.instance->has_queue_wait)
      return wait_in_pieces(*from.core, value, HAL_NO_LIMIT);
    std::unique_lock first(to_device.order, std::defer_lock);
    std::unique_lock second(from_device.order, std::defer_lock);
    if (q.device == from.device)
      first.lock();
    else
      std::lock(first, second);
    q.core->wait_for(*from.core, value);
  });
}

hal_status hal_queue_reached(hal_queue* queue, uint64_t value, int32_t* out_reached,
                             hal_error* error) {
  return at_edge(error, [&] {
    need(out_reached, "out_reached");
    const Held<ApiQueue> held = queue_of(queue);
    ApiQueue& q = *held;
    q.core->device->require_alive();
    if (q.core->device->synchronous) {
      *out_reached = value <= submitted(q);
      return;
    }
    std::lock_guard guard(q.lockable());
    *out_reached = value <= q.core->submitted && q.core->reached(value);
  });
}

hal_status hal_queue_wait(hal_queue* queue, uint64_t value, uint64_t limit_ns, hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiQueue> held = queue_of(queue);
    ApiQueue& q = *held;
    if (value == HAL_NO_LIMIT) return wait_for_all(q, limit_ns);
    require_submitted(q, value);
    wait_in_pieces(*q.core, value, limit_ns);
    if (q.core->device->synchronous) return;
    std::lock_guard guard(q.lockable());
    q.core->require_good(value);
  });
}

hal_status hal_graph_begin(hal_queue* queue, hal_graph** out_graph, hal_error* error) {
  return at_edge(error, [&] {
    need(out_graph, "out_graph");
    const Held<ApiQueue> q = queue_of(queue);
    const auto lock = q->enter();
    const Held<ApiGraph> graph(new ApiGraph(*q, queue));
    *out_graph = static_cast<hal_graph*>(handles(Kind::kGraph).add([&](Slot& slot) {
      graph->retain();
      slot.object = graph.get(), slot.device = q->core->device;
    }));
  });
}

hal_status hal_graph_end(hal_graph* graph, hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiGraph> g = graph_of(graph);
    const std::string where = "ending the recording of a graph on " + g->device->name;
    with_queue(*g, where, [&](ApiQueue&) {
      if (!g->core.capturing) invalid(where + ": it was ended before", HAL_REASON_CAPTURE);
      g->core.end();
      if (!g->core.size()) invalid(where + ": no op was called", HAL_REASON_CAPTURE);
    });
  });
}

hal_status hal_graph_launch(hal_graph* graph, hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiGraph> g = graph_of(graph);
    with_queue(*g, "launching a graph on " + g->device->name, [&](ApiQueue&) { g->core.launch(); });
  });
}

hal_status hal_graph_release(hal_graph* graph, hal_error* error) {
  if (!graph) return HAL_STATUS_OK;
  return at_edge(error, [&] {
    const Held<ApiGraph> g(static_cast<ApiGraph*>(handles(Kind::kGraph).remove(graph)));
    if (!g) slot_of(graph, Kind::kGraph, "graph");
    const Held<ApiQueue> q = queue_behind(*g);
    if (!q) return;  // its release has waited for all work
    {
      std::lock_guard guard(q->lockable());
      g->closed = true;
      if (g->core.capturing) return g->core.abort();
    }
    if (!q->core->device->lost) wait_in_pieces(*q->core, submitted(*q), HAL_NO_LIMIT);
  });
}

}  // extern "C"
