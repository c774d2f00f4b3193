// Capture and replay.
// SPDX-License-Identifier: Apache-2.0
#include "core/graph.hpp"

#include <algorithm>
#include <mutex>

namespace hal {

Graph::Graph(Queue& q) : queue(&q) {
  if (q.capture)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "a graph is already being captured on " + q.device->name +
                    "; end it before starting another",
                ANYHAL_REASON_CAPTURE);
  q.device->require_alive();
  require_outside_call();
  q.capture = this;
  q.update_plain();
  // A call of another thread that began before is over when the lock was free once.
  q.lock.lock();
  q.lock.unlock();
}

Graph::~Graph() {
  if (capturing) abort();
  forget();
}

void Graph::forget() {
  // A launch stamps the operands of its calls, and a region's its bindings; all else that they
  // touch is in use until they are over.
  const auto in_use = [&](Buffer* b) {
    std::lock_guard guard(b->uses);
    b->read.push_back({queue, queue->submitted});
  };
  if (launched_ && !queue->device->synchronous) {
    if (plan_workspace_) in_use(plan_workspace_);
    if (region_.plan) std::for_each(held_.begin(), held_.end(), in_use);
  }
  for (const Step& step : nodes_) release(step.plan);
  for (Buffer* b : held_) release(b);
  for (Buffer* b : workspaces_) release(b);
  release(plan_workspace_);
  release(region_.plan);
  region_ = {};
  nodes_.clear(), refs_.clear(), operands_.clear(), calls_.clear();
  held_.clear(), written_.clear(), workspaces_.clear();
  plan_workspace_ = nullptr;
}

void Graph::require_owner() const {
  if (thread != std::this_thread::get_id())
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "a call on " + queue->device->name +
                    ": another thread is capturing a graph on this queue; use a queue of your own, "
                    "or wait until the capture has ended",
                ANYHAL_REASON_CAPTURE);
}

void Graph::hold(Buffer* buffer) {
  if (buffer && std::find(held_.begin(), held_.end(), buffer) == held_.end()) {
    buffer->retain();
    held_.push_back(buffer);
  }
}

// Composites of one graph run one after the other, so they share each workspace at its largest.
Buffer* Graph::workspace(size_t index, uint64_t bytes) {
  if (index >= workspaces_.size()) workspaces_.resize(index + 1, nullptr);
  Buffer*& b = workspaces_[index];
  if (!b || b->bytes < bytes || (b->cell && b->bytes != bytes)) {
    hold(b);  // calls recorded so far point into it
    release(b);
    b = queue->device->memory.alloc(bytes, ANYHAL_PURPOSE_ARENA, queue);
  }
  b->retain();
  return b;
}

void Graph::record(Plan& plan, const Operand* operands) {
  plan.retain();
  nodes_.push_back(
      {plan.enqueue, plan.handle, &plan, uint32_t(operands_.size()), plan.operand_count});
  for (uint32_t i = 0; i < plan.operand_count; ++i) {
    operands_.push_back(operands[i]);
    Buffer* buffer = operands[i].buffer;  // null: absent, or without elements
    hold(buffer);
    if (!buffer || !(plan.writes >> i & 1)) continue;
    if (buffer->purpose == ANYHAL_PURPOSE_ARENA) buffer->unwritten = !launched_;
    written_.push_back(buffer);
    buffer->captured.fetch_add(1, std::memory_order_relaxed);
  }
  plan_workspace_bytes_ = std::max(plan_workspace_bytes_, plan.workspace_bytes);
}

// The queue runs calls again, and what the capture would write is the host's to read.
void Graph::stop() {
  capturing = false;
  queue->capture = nullptr;
  queue->update_plain();
  for (Buffer* b : written_) b->captured.fetch_sub(1, std::memory_order_relaxed);
  std::sort(written_.begin(), written_.end());
  written_.erase(std::unique(written_.begin(), written_.end()), written_.end());
}

// What is refused here leaves an empty graph, which cannot be launched.
void Graph::end() {
  stop();
  try {
    hand_over();
    give_workspace();
    make_calls();
  } catch (...) {
    forget();
    throw;
  }
  ended_ = !nodes_.empty();
}

// One block for as long as the graph lives: calls that run one after another share it.
void Graph::give_workspace() {
  const uint64_t bytes = region_.plan ? region_.plan->workspace_bytes : plan_workspace_bytes_;
  if (!bytes) return;
  plan_workspace_ = queue->device->memory.alloc(bytes, ANYHAL_PURPOSE_ARENA, queue);
  if (region_.plan)
    region_.call.workspace = ref_of(*queue->device, {data_of(*plan_workspace_), plan_workspace_});
}

void Graph::make_calls() {
  Device& device = *queue->device;
  if (region_.plan) return;
  for (const Operand& o : operands_) refs_.push_back(ref_of(device, o));
  for (const Step& step : nodes_) {
    anyhal_call call{};
    call.size = sizeof(call);
    call.tag = step.plan->id;
    call.operands = refs_.data() + step.first;
    call.operand_count = step.count;
    if (step.plan->workspace_bytes)
      call.workspace = ref_of(device, {data_of(*plan_workspace_), plan_workspace_});
    calls_.push_back(call);
  }
}

// Whatever only this recording knows need not exist between the calls of a compiled graph.
void Graph::hand_over() {
  std::vector<Recorded> calls;
  for (const Step& step : nodes_) calls.push_back({step.plan, operands_.data() + step.first});
  std::vector<const Buffer*> owned;
  for (const Buffer* b : held_) {
    const bool shared = std::find(workspaces_.begin(), workspaces_.end(), b) != workspaces_.end();
    if (b->refs.load(std::memory_order_acquire) == 1u + shared) owned.push_back(b);
    // Constants are no bindings: whoever wrote them comes first once and for all.
    if (b->constant && b->written.queue) queue->wait_for(*b->written.queue, b->written.value);
  }
  std::sort(owned.begin(), owned.end());
  region_ = prepare_region(*queue->device, calls, owned);
  region_.call.operands = region_.refs.data();
}

void Graph::abort() {
  stop();
  forget();
}

void Graph::launch() {
  if (capturing)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "the graph on " + queue->device->name + " is still being captured; end it first",
                ANYHAL_REASON_CAPTURE);
  if (!ended_)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "the graph on " + queue->device->name + " holds no whole recording; record another",
                ANYHAL_REASON_CAPTURE);
  if (queue->capture)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "a graph cannot be launched on " + queue->device->name +
                    " while another is being captured there",
                ANYHAL_REASON_CAPTURE);
  for (const Buffer* b : written_)
    if (b->constant)
      throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                  "the graph on " + queue->device->name +
                      " writes a buffer that was frozen after the recording, so that its bytes "
                      "never change; record another graph",
                  ANYHAL_REASON_CAPTURE);
  queue->device->require_alive();
  if (!launched_)
    for (Buffer* b : held_) b->unwritten = false;
  launched_ = true;
  queue->device->counters.graph_launches.fetch_add(1, std::memory_order_relaxed);
  if (region_.plan)
    return run_recorded(*region_.plan, region_.bindings.data(), region_.call, *queue);
  if (!queue->device->synchronous || receipts_on()) return launch_ordered();
  ErrorRecord error;
  anyhal_status status = ANYHAL_STATUS_OK;
  size_t i = 0;
  {
    std::lock_guard guard(queue->lock);
    const InCall inside;
    for (; i < nodes_.size(); ++i) {
      const Step& s = nodes_[i];
      status = s.enqueue(queue->handle, s.handle, &calls_[i], error);
      if (status != ANYHAL_STATUS_OK) break;
      s.plan->calls.store(s.plan->calls.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
    }
    queue->accept(i);
    queue->completed.store(queue->submitted.load(), std::memory_order_relaxed);
  }
  if (status != ANYHAL_STATUS_OK) raise_call(*nodes_[i].plan, status, error.record);
}

// Devices with queues of their own, and timed runs: each call is ordered and stamped.
void Graph::launch_ordered() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Step& s = nodes_[i];
    run_recorded(*s.plan, operands_.data() + s.first, calls_[i], *queue);
  }
}

}  // namespace hal
