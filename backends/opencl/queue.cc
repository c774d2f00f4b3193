// Queues: a position is an event, submitted at once; what became of it is asked, never assumed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "objects.h"

namespace hal::opencl {

void order_after_all(Queue& queue) {
  if (!queue.out_of_order) return;
  check(queue.device->self->api.EnqueueBarrierWithWaitList(queue.handle, 0, nullptr, nullptr),
        "clEnqueueBarrierWithWaitList");
}

namespace {

void drop_event(Device& device, cl_event event) {
  device.self->api.ReleaseEvent(event);
  --device.events;
}

cl_int status_of_event(const Device& device, cl_event event) {
  cl_int status = kComplete;
  const cl_int code = device.self->api.GetEventInfo(event, kEventCommandExecutionStatus,
                                                    sizeof(status), &status, nullptr);
  return code != kSuccess ? code : status;
}

// Drops events of commands that went well. Where nothing is done yet, a marker stands for all.
void fold_recent(Queue& queue) {
  cl_uint kept = 0;
  for (cl_uint i = 0; i < queue.recent_count; ++i) {
    if (status_of_event(*queue.device, queue.recent[i]) == kComplete) {
      drop_event(*queue.device, queue.recent[i]);
    } else {
      queue.recent[kept++] = queue.recent[i];
    }
  }
  queue.recent_count = kept;
  if (kept < kRecent) return;
  cl_event all = nullptr;
  check(queue.device->self->api.EnqueueMarkerWithWaitList(queue.handle, kept, queue.recent, &all),
        "clEnqueueMarkerWithWaitList");
  for (cl_uint i = 0; i < kept; ++i) drop_event(*queue.device, queue.recent[i]);
  queue.recent[0] = all;
  queue.recent_count = 1;
  ++queue.device->events;
}

}  // namespace

void keep_event(Queue& queue) {
  ++queue.recent_count;
  ++queue.device->events;
}

cl_event* next_event(Queue& queue) {
  if (queue.recent_count == kRecent) fold_recent(queue);
  return &queue.recent[queue.recent_count];
}

void require_live(const Queue& queue) {
  if (queue.state->failure.load(std::memory_order_relaxed) == ANYHAL_STATUS_OK) return;
  throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0, "the queue is dead: %s", queue.state->text);
}

namespace {

using Clock = std::chrono::steady_clock;

const Api& api_of(const QueueState& state) { return state.device->self->api; }

// ---- All of these with the state's lock held.

void fail_with(QueueState& state, const Position& at, anyhal_status status, cl_int code) {
  state.failed_value = at.value;
  state.vendor_code = code;
  state.failure.store(status);
}

// A command that ended badly.
void fail_by_code(QueueState& state, const Position& at, cl_int code) {
  // OUT_OF_RESOURCES of running work is as a rule a bad access, not too little memory.
  const anyhal_status status = code == kOutOfResources ? ANYHAL_STATUS_EXECUTION_FAILED
                               : status_of(code) == ANYHAL_STATUS_INTERNAL
                                   ? ANYHAL_STATUS_EXECUTION_FAILED
                                   : status_of(code);
  std::snprintf(state.text, sizeof(state.text),
                "work before position %llu ended with %s (%d); run again from inputs that are "
                "still good",
                static_cast<unsigned long long>(at.value), error_name(code), code);
  fail_with(state, at, status, code);
}

void fail_by_index(QueueState& state, const Position& at) {
  std::snprintf(state.text, sizeof(state.text),
                "index %lld is outside [0, %lld), and negative indices do not wrap; correct the "
                "indices (the call wrote nothing)",
                static_cast<long long>(at.fault->index), static_cast<long long>(at.fault->limit));
  state.failed_tag = at.fault->tag;
  fail_with(state, at, ANYHAL_STATUS_INVALID_ARGUMENT, 0);
}

void drop_all(Device& device, const Position& position) {
  drop_event(device, position.event);
  for (cl_event command : position.commands) drop_event(device, command);
}

// Takes note of every position that was reached, and of the first that never will be.
void settle(QueueState& state) {
  while (!state.pending.empty() && state.failure == ANYHAL_STATUS_OK) {
    Position& first = state.pending.front();
    cl_int status = status_of_event(*state.device, first.event);
    if (status > kComplete) return;
    for (cl_event command : first.commands)
      status = std::min(status, status_of_event(*state.device, command));
    if (status < kComplete) return fail_by_code(state, first, status);
    if (first.fault != nullptr && first.fault->set != 0) return fail_by_index(state, first);
    state.completed = first.value;
    drop_all(*state.device, first);
    if (first.fault.use_count() == 1) state.spare.push_back(std::move(first.fault));
    state.pending.pop_front();
  }
}

using Waiters = std::vector<std::shared_ptr<Waiter>>;

// Those whose position is decided; they are told without the lock.
Waiters take_due(QueueState& state) {
  Waiters due;
  const bool dead = state.failure != ANYHAL_STATUS_OK;
  std::erase_if(state.waiters, [&](const std::shared_ptr<Waiter>& w) {
    if (w->value > state.completed && !dead) return false;
    due.push_back(w);
    return true;
  });
  return due;
}

// ---- Without it.

void tell(Waiter& waiter, anyhal_status status) {
  if (!waiter.told.exchange(true)) waiter.fn(waiter.argument, status);
}

void look_and_tell(QueueState& state, std::unique_lock<std::mutex> guard) {
  settle(state);
  if (state.waiters.empty()) return;
  const Waiters due = take_due(state);
  const uint64_t completed = state.completed;
  guard.unlock();
  for (const auto& w : due)
    tell(*w, w->value <= completed ? ANYHAL_STATUS_OK : state.failure.load());
}

void look(QueueState& state) { look_and_tell(state, std::unique_lock(state.lock)); }

struct Callback {
  std::shared_ptr<QueueState> state;
  std::shared_ptr<Waiter> waiter;
};

// The driver may hold a lock of its own that the holder of ours waits for, so ours is only tried;
// the event alone does not tell of every failed command.
void on_event(cl_event, cl_int status, void* argument) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(argument));
  if (std::unique_lock guard(callback->state->lock, std::try_to_lock); guard.owns_lock())
    look_and_tell(*callback->state, std::move(guard));
  const Fault* fault = callback->waiter->fault.get();
  tell(*callback->waiter, status < kComplete                    ? ANYHAL_STATUS_EXECUTION_FAILED
                          : fault != nullptr && fault->set != 0 ? ANYHAL_STATUS_INVALID_ARGUMENT
                                                                : ANYHAL_STATUS_OK);
}

// The first pending position at or past `value`, or null.
const Position* position_for(const QueueState& state, uint64_t value) {
  for (const Position& p : state.pending)
    if (p.value >= value) return &p;
  return nullptr;
}

// Its event, retained; null when none is pending.
cl_event event_for(const QueueState& state, uint64_t value) {
  const Position* position = position_for(state, value);
  if (position == nullptr) return nullptr;
  api_of(state).RetainEvent(position->event);
  return position->event;
}

// Waits for an event in steps that begin short; OpenCL has no wait with a limit.
void nap(uint64_t slept_ns, Clock::time_point until) {
  const uint64_t step = std::clamp<uint64_t>(slept_ns / 8, 2000, 200000);
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now());
  if (left.count() <= 0) return;
  std::this_thread::sleep_for(std::min(std::chrono::nanoseconds(static_cast<int64_t>(step)), left));
}

// Whether the position was decided before the limit.
bool wait_until_decided(QueueState& state, uint64_t value, uint64_t limit_ns) {
  const Clock::time_point start = Clock::now();
  constexpr uint64_t kYear = 365ull * 24 * 3600 * 1000000000;
  const auto until =
      start + std::chrono::nanoseconds(static_cast<int64_t>(std::min(limit_ns, kYear)));
  for (;;) {
    look(state);
    cl_event event = nullptr;
    {
      std::lock_guard guard(state.lock);
      if (state.completed >= value || state.failure != ANYHAL_STATUS_OK) return true;
      if (limit_ns != 0) event = event_for(state, value);
    }
    if (event == nullptr) return false;
    if (limit_ns == ANYHAL_NO_LIMIT) {
      api_of(state).WaitForEvents(1, &event);
    } else {
      const auto now = Clock::now();
      if (now >= until) limit_ns = 0;
      nap(static_cast<uint64_t>((now - start).count()), until);
    }
    api_of(state).ReleaseEvent(event);
  }
}

void report(QueueState& state, anyhal_queue_state* out) {
  if (out == nullptr) return;
  anyhal_queue_state result = {};
  std::lock_guard guard(state.lock);
  result.status = state.failure.load();
  result.completed = state.completed;
  result.failed_value = state.failed_value;
  result.failed_tag = state.failed_tag;
  sdk::write_record(out, result);
}

void require_signalled(const QueueState& state, uint64_t value) {
  if (value <= state.signalled) return;
  throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "value %llu was not signalled, the last is %llu; signal it first",
                static_cast<unsigned long long>(value),
                static_cast<unsigned long long>(state.signalled));
}

uint32_t take_number(Device& device) {
  std::lock_guard guard(device.queues_lock);
  if (device.free_numbers.empty())
    throw Failure(ANYHAL_STATUS_OUT_OF_MEMORY, 0, "the device has %u queues; release one first",
                  kQueues);
  const uint32_t number = device.free_numbers.back();
  device.free_numbers.pop_back();
  return number;
}

void give_number(Device& device, uint32_t number) {
  std::lock_guard guard(device.queues_lock);
  device.free_numbers.push_back(number);
}

void make_handles(Device& device, Queue& queue) {
  const Api& api = device.self->api;
  cl_int code = kSuccess;
  queue.handle = api.CreateCommandQueue(device.context, device.facts->device,
                                        queue.out_of_order ? kQueueOutOfOrder : 0, &code);
  check(code, "clCreateCommandQueue");
  queue.fault = api.CreateBuffer(device.context, kMemReadWrite, sizeof(Fault), nullptr, &code);
  check(code, "clCreateBuffer");
  const Fault none = {};
  check(api.EnqueueWriteBuffer(queue.handle, queue.fault, 1, 0, sizeof(none), &none, 0, nullptr,
                               nullptr),
        "clEnqueueWriteBuffer");
}

}  // namespace

namespace slots {

anyhal_status queue_create(anyhal_device* device, const anyhal_queue_options* options,
                           anyhal_queue** out_queue, anyhal_error* error) {
  return sdk::guard(error, [&] {
    if (options != nullptr && options->flags != 0)
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ATTRIBUTE,
                    "queues with flags %u cannot be made; ask for one without", options->flags);
    static std::atomic<uint64_t> serials{0};
    auto queue = std::make_unique<Queue>();
    queue->serial = ++serials;
    queue->device = device;
    queue->out_of_order = device->self->out_of_order;
    queue->state = std::make_shared<QueueState>();
    queue->state->device = device;
    queue->number = take_number(*device);
    try {
      make_handles(*device, *queue);
    } catch (...) {
      release_queue(queue.release(), false);
      throw;
    }
    *out_queue = reinterpret_cast<anyhal_queue*>(queue.release());
    return ANYHAL_STATUS_OK;
  });
}

// A read of the fault report, or else a marker, is the event of the position.
anyhal_status queue_signal(anyhal_queue* handle, uint64_t value, anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  return sdk::guard(error, [&] {
    require_live(queue);
    QueueState& state = *queue.state;
    const Api& api = api_of(state);
    std::shared_ptr<Fault> fault;
    {
      std::lock_guard guard(state.lock);
      if (value <= state.signalled)
        throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                      "value %llu does not rise above %llu; signal a larger one",
                      static_cast<unsigned long long>(value),
                      static_cast<unsigned long long>(state.signalled));
      if (queue.checks && !state.spare.empty()) {
        fault = std::move(state.spare.back());
        state.spare.pop_back();
      }
    }
    cl_event event = nullptr;
    order_after_all(queue);
    if (queue.checks) {
      if (fault == nullptr) fault = std::make_shared<Fault>();
      *fault = {};
      check(api.EnqueueReadBuffer(queue.handle, queue.fault, 0, 0, sizeof(Fault), fault.get(), 0,
                                  nullptr, &event),
            "clEnqueueReadBuffer");
    } else {
      check(api.EnqueueMarkerWithWaitList(queue.handle, 0, nullptr, &event),
            "clEnqueueMarkerWithWaitList");
    }
    queue.checks = false;
    ++state.device->events;
    {
      std::lock_guard guard(state.lock);
      settle(state);  // so that a queue that nobody waits for keeps few events
      state.pending.push_back(
          {value, event, {queue.recent, queue.recent + queue.recent_count}, std::move(fault)});
      state.signalled = value;
      queue.recent_count = 0;
    }
    check(api.Flush(queue.handle), "clFlush");
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status queue_wait(anyhal_queue* handle, anyhal_queue* source_handle, uint64_t value,
                         anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  Queue& source = *reinterpret_cast<Queue*>(source_handle);
  return sdk::guard(error, [&] {
    require_live(queue);
    if (queue.device != source.device)
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, 0,
                    "events of one context mean nothing in another; wait on the host");
    cl_event event = nullptr;
    {
      std::lock_guard guard(source.state->lock);
      require_signalled(*source.state, value);
      settle(*source.state);
      if (source.state->completed >= value) return ANYHAL_STATUS_OK;
      if (source.state->failure != ANYHAL_STATUS_OK)
        throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0, "the other queue is dead: %s",
                      source.state->text);
      event = event_for(*source.state, value);
    }
    const Api& api = api_of(*queue.state);
    cl_event* const own = next_event(queue);
    const cl_int code = api.EnqueueBarrierWithWaitList(queue.handle, 1, &event, own);
    api.ReleaseEvent(event);
    check(code, "clEnqueueBarrierWithWaitList");
    keep_event(queue);
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status host_wait(anyhal_queue* handle, uint64_t value, uint64_t limit_ns,
                        anyhal_queue_state* out, anyhal_error* error) {
  const std::shared_ptr<QueueState> state = reinterpret_cast<Queue*>(handle)->state;
  const anyhal_status status = sdk::guard(error, [&] {
    {
      std::lock_guard guard(state->lock);
      if (state->failure == ANYHAL_STATUS_OK) require_signalled(*state, value);
    }
    const bool decided = wait_until_decided(*state, value, limit_ns);
    std::lock_guard guard(state->lock);
    if (state->completed >= value) return ANYHAL_STATUS_OK;
    if (!decided)
      throw Failure(ANYHAL_STATUS_TIMEOUT, 0, "position %llu was not reached yet; wait again",
                    static_cast<unsigned long long>(value));
    throw Failure(state->failure, 0, "%s", state->text);
  });
  if (status != ANYHAL_STATUS_OK && error != nullptr) error->vendor_code = state->vendor_code;
  report(*state, out);
  return status;
}

anyhal_status queue_notify(anyhal_queue* handle, uint64_t value, anyhal_notify_fn fn,
                           void* argument, anyhal_error* error) {
  const std::shared_ptr<QueueState> state = reinterpret_cast<Queue*>(handle)->state;
  const anyhal_status status = sdk::guard(error, [&] {
    auto waiter = std::make_shared<Waiter>();
    waiter->value = value, waiter->fn = fn, waiter->argument = argument;
    cl_event event = nullptr;
    {
      std::lock_guard guard(state->lock);
      require_signalled(*state, value);
      settle(*state);
      state->waiters.push_back(waiter);
      const Position* position =
          state->failure == ANYHAL_STATUS_OK ? position_for(*state, value) : nullptr;
      if (position == nullptr) return ANYHAL_STATUS_OK;  // decided: told below
      waiter->fault = position->fault;
      event = event_for(*state, value);
    }
    auto* callback = new Callback{state, waiter};
    const cl_int code = api_of(*state).SetEventCallback(event, kComplete, on_event, callback);
    api_of(*state).ReleaseEvent(event);
    if (code == kSuccess) return ANYHAL_STATUS_OK;
    delete callback;
    waiter->told = true;
    check(code, "clSetEventCallback");
    return ANYHAL_STATUS_OK;
  });
  if (status == ANYHAL_STATUS_OK) look(*state);
  return status;
}

anyhal_status queue_native(anyhal_queue* handle, anyhal_native_fn callback, void* argument,
                           const anyhal_native_operand* operands, uint32_t operand_count,
                           anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  std::vector<uint64_t> memories;
  const anyhal_status status = sdk::guard(error, [&] {
    require_live(queue);
    for (uint32_t i = 0; i < operand_count; ++i)
      memories.push_back(reinterpret_cast<uintptr_t>(
          reinterpret_cast<const Block*>(operands[i].ref.memory)->memory));
    order_after_all(queue);
    return ANYHAL_STATUS_OK;
  });
  if (status != ANYHAL_STATUS_OK) return status;
  const anyhal_native_queue native = {
      sizeof(native),  ANYHAL_NATIVE_CL_QUEUE, reinterpret_cast<uintptr_t>(queue.handle),
      memories.data(), operand_count,          0};
  return callback(argument, &native);
}

// Pending reads of the fault report write into what the state holds, so a failed queue's state is
// left to the device when work may still be running.
void release_queue(Queue* queue, bool abandon) {
  Device& device = *queue->device;
  const Api& api = device.self->api;
  QueueState& state = *queue->state;
  bool writes_on = false;
  if (!abandon) {
    std::lock_guard guard(state.lock);
    for (const Position& p : state.pending) writes_on = writes_on || p.fault != nullptr;
    for (const Position& p : state.pending) drop_all(device, p);
  }
  for (cl_uint i = 0; !abandon && i < queue->recent_count; ++i)
    drop_event(device, queue->recent[i]);
  if (!abandon && queue->fault != nullptr) api.ReleaseMemObject(queue->fault);
  if (!abandon && queue->handle != nullptr) api.ReleaseCommandQueue(queue->handle);
  give_number(device, queue->number);
  if (writes_on || abandon) {
    std::lock_guard guard(device.queues_lock);
    device.retired.push_back(queue->state);
  }
  delete queue;
}

}  // namespace slots
}  // namespace hal::opencl
