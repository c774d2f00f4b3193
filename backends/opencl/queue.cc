// Queues: a position is an event, submitted at once.
// SPDX-License-Identifier: Apache-2.0
#include "objects.h"

namespace hal::opencl {

void order_after_all(Queue& queue) {
  if (!queue.out_of_order) return;
  Device& device = *queue.device;
  check(device, device.self->api.EnqueueBarrierWithWaitList(queue.handle, 0, nullptr, nullptr),
        "clEnqueueBarrierWithWaitList");
}

cl_event* next_event(Queue& queue) {
  std::vector<Command>& recent = queue.recent;
  if (recent.size() == recent.capacity()) {
    // Those that went well say nothing more. The others stay: nothing else tells of them.
    std::erase_if(recent, [&](const Command& command) {
      const bool well = status_of_event(*queue.device, command.event) == kComplete;
      if (well) drop_event(*queue.device, command.event);
      return well;
    });
    if (recent.size() > recent.capacity() / 2) recent.reserve(2 * recent.capacity());
  }
  queue.next = nullptr;
  return &queue.next;
}

void keep_event(Queue& queue, uint64_t tag) {
  queue.recent.push_back({queue.next, tag});
  ++queue.device->events;
}

void require_live(const Queue& queue) {
  require_present(*queue.device);
  if (queue.state->failure.load(std::memory_order_relaxed) == ANYHAL_STATUS_OK) return;
  throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0, "the queue is dead: %s", queue.state->text);
}

namespace {

const Api& api_of(const QueueState& state) { return state.device->self->api; }

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
  queue.recent.reserve(kRecent);
  queue.handle = api.CreateCommandQueue(device.context, device.facts->device,
                                        queue.out_of_order ? kQueueOutOfOrder : 0, &code);
  check(device, code, "clCreateCommandQueue");
  queue.fault = api.CreateBuffer(device.context, kMemReadWrite, sizeof(Fault), nullptr, &code);
  check(device, code, "clCreateBuffer");
  const Fault none = {};
  check(device,
        api.EnqueueWriteBuffer(queue.handle, queue.fault, 1, 0, sizeof(none), &none, 0, nullptr,
                               nullptr),
        "clEnqueueWriteBuffer");
}

cl_event enqueue_position(Queue& queue, Fault* fault) {
  const Api& api = queue.device->self->api;
  cl_event event = nullptr;
  if (fault != nullptr) {
    *fault = {};
    check(*queue.device,
          api.EnqueueReadBuffer(queue.handle, queue.fault, 0, 0, sizeof(Fault), fault, 0, nullptr,
                                &event),
          "clEnqueueReadBuffer");
  } else {
    check(*queue.device, api.EnqueueMarkerWithWaitList(queue.handle, 0, nullptr, &event),
          "clEnqueueMarkerWithWaitList");
  }
  ++queue.device->events;
  return event;
}

}  // namespace

namespace slots {

anyhal_status queue_create(anyhal_device* device, const anyhal_queue_options* options,
                           anyhal_queue** out_queue, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_present(*device);
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
    if (queue.checks && fault == nullptr) fault = std::make_shared<Fault>();
    order_after_all(queue);
    const cl_event event = enqueue_position(queue, fault.get());
    queue.checks = false;
    std::lock_guard guard(state.lock);
    state.pending.push_back({value, event, queue.recent, std::move(fault)});
    state.signalled = value;
    queue.recent.clear();
    settle(state);  // so that a queue that nobody waits for keeps few events
    submit(state, queue.handle);
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
    cl_event* const own = next_event(queue);
    {
      std::lock_guard guard(source.state->lock);
      require_signalled(*source.state, value);
      settle(*source.state);
      if (source.state->completed >= value) return ANYHAL_STATUS_OK;
      if (source.state->failure != ANYHAL_STATUS_OK)
        throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0, "the other queue is dead: %s",
                      source.state->text);
      event = event_for(*source.state, value);
      if (event == nullptr)
        throw Failure(ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                      "clRetainEvent refused the other queue's event; wait on the host");
    }
    const Api& api = api_of(*queue.state);
    const cl_int code = api.EnqueueBarrierWithWaitList(queue.handle, 1, &event, own);
    api.ReleaseEvent(event);
    check(*queue.device, code, "clEnqueueBarrierWithWaitList");
    keep_event(queue, 0);
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
      const Position* position =
          state->failure == ANYHAL_STATUS_OK ? position_for(*state, value) : nullptr;
      if (position != nullptr) {
        waiter->fault = position->fault;
        event = event_for(*state, value);
        if (event == nullptr)
          throw Failure(ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                        "clRetainEvent refused the position's event; wait for it instead");
      }
      state->waiters.push_back(waiter);
    }
    if (event == nullptr) return ANYHAL_STATUS_OK;  // decided: told below
    const cl_int code = watch(state, waiter, event);
    api_of(*state).ReleaseEvent(event);
    if (code != kSuccess) waiter->told = true;
    check(*state->device, code, "clSetEventCallback");
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

// What the driver may still write into, or read from a late callback, stays: a report of a read
// that was never seen to end is left behind for good.
void release_queue(Queue* queue, bool abandon) {
  Device& device = *queue->device;
  const Api& api = device.self->api;
  {
    QueueState& state = *queue->state;
    std::lock_guard guard(state.lock);
    for (const Position& p : state.pending) {
      if (!abandon) drop_all(device, p);
      if (p.fault != nullptr) new std::shared_ptr<Fault>(p.fault);
    }
    state.pending.clear();
    state.device = nullptr;
  }
  if (!abandon) {
    for (const Command& command : queue->recent) drop_event(device, command.event);
    if (queue->fault != nullptr)
      gave_back(*device.self, api.ReleaseMemObject(queue->fault), "clReleaseMemObject");
    if (queue->handle != nullptr)
      gave_back(*device.self, api.ReleaseCommandQueue(queue->handle), "clReleaseCommandQueue");
  }
  give_number(device, queue->number);
  delete queue;
}

}  // namespace slots
}  // namespace hal::opencl
