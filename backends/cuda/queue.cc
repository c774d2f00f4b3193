// Queues: a stream each, a ring of events as its counter, and what a waiter learns.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include "device.h"

namespace hal::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Whether all that was put on the stream of a queue that failed is over: nothing of it may touch
// memory once the failure is told. The queue's mutex is held.
bool is_drained(Queue& queue) {
  Device& device = *queue.device;
  if (queue.last == nullptr) {
    CUevent event = nullptr;
    HAL_CUDA(device, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    queue.spare.push_back(event);  // ends with the queue
    HAL_CUDA(device, cuEventRecord, event, queue.stream);
    queue.last = event;
  }
  const CUresult code = device.driver().cuEventQuery(queue.last);
  if (code != CUDA_ERROR_NOT_READY) check(device, code, "cuEventQuery");
  return code == CUDA_SUCCESS;
}

// Drops what was reached from the front. The queue's mutex is held.
void advance(Queue& queue) {
  Device& device = *queue.device;
  while (queue.marks.count() != 0 && queue.status == ANYHAL_STATUS_OK) {
    const Mark mark = queue.marks.at(0);
    const CUresult code = device.driver().cuEventQuery(mark.event);
    if (code == CUDA_ERROR_NOT_READY) return;
    check(device, code, "cuEventQuery");
    // Kernels write their fault before the event; read it before calling the position reached.
    const volatile KernelFault* fault = queue.fault();
    if (fault->raised != 0) {
      if (!is_drained(queue)) return;
      queue.status = ANYHAL_STATUS_INVALID_ARGUMENT;
      queue.failed_value = mark.value;
      const uint64_t tag = fault->tag;
      const bool in_graph = (tag & kGraphEntry) != 0;  // which launch it was is not known
      queue.failed_tag = in_graph ? 0 : tag;
      queue.failure = in_graph ? "entry " + std::to_string(tag & 0xffffffffu) + " of a graph (" +
                                     op_name(tag >> 32 & 0x7fffffffu) + "): "
                               : "";
      queue.failure += "index " + std::to_string(fault->index) + " is outside [0, " +
                       std::to_string(fault->limit) +
                       "), and negative indices do not wrap; correct the indices";
      return;
    }
    queue.completed = mark.value;
    queue.spare.push_back(mark.event);
    queue.marks.pop();
  }
}

void report(const Queue& queue, anyhal_queue_state* state) {
  if (state == nullptr) return;
  anyhal_queue_state found = {};
  found.status = queue.device->lost ? ANYHAL_STATUS_DEVICE_LOST : queue.status;
  found.completed = queue.completed;
  found.failed_value = queue.device->lost ? queue.completed + 1 : queue.failed_value;
  found.failed_tag = queue.failed_tag;
  sdk::write_record(state, found);
}

// Whether the value is reached. Throws when it never will be.
bool reached(Queue& queue, uint64_t value) {
  queue.device->admit();
  std::unique_lock lock(queue.mutex);
  if (queue.completed >= value) return true;
  if (value > queue.signalled && queue.status == ANYHAL_STATUS_OK)
    throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                "value " + std::to_string(value) + " was not signalled; signal it first");
  Current current(*queue.device);
  advance(queue);
  if (queue.completed >= value) return true;
  if (queue.status != ANYHAL_STATUS_OK)
    throw Fault(queue.status, ANYHAL_REASON_NONE, 0, queue.failure);
  return false;
}

// Events have no wait with a limit: look often at first, then every fifth of a millisecond.
void wait_for(Queue& queue, uint64_t value, uint64_t limit_ns) {
  const auto start = Clock::now();
  for (int looks = 0;; ++looks) {
    if (reached(queue, value)) return;
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    if (static_cast<uint64_t>(spent.count()) >= limit_ns)
      throw Fault(ANYHAL_STATUS_TIMEOUT, ANYHAL_REASON_NONE, 0,
                  "value " + std::to_string(value) + " is not reached yet; wait again");
    if (looks < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(looks < 256 ? 20 : 200));
    }
  }
}

CUevent take_event(Queue& queue) {
  if (queue.spare.empty() && queue.marks.count() == Marks::kMost) {
    queue.spare.push_back(queue.marks.at(0).event);
    queue.marks.pop();
  }
  if (queue.spare.empty()) {
    CUevent event = nullptr;
    HAL_CUDA(*queue.device, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    queue.spare.push_back(event);
  }
  return queue.spare.back();
}

// Two priorities: ordinary, and the highest the device has.
int priority_of(const Device& device, const anyhal_queue_options* options) {
  return options != nullptr && options->priority > 0 ? device.priority_greatest
                                                     : device.priority_least;
}

}  // namespace

KernelFault* Queue::fault() const { return device->faults + fault_slot; }

uint32_t take_fault(Device& device) {
  std::unique_lock lock(device.mutex);
  if (device.free_faults.empty())
    throw Fault(ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_NONE, 0,
                "this backend makes " + std::to_string(kFaults) +
                    " queues on a device and no more; share one");
  const uint32_t slot = device.free_faults.back();
  device.free_faults.pop_back();
  std::memset(device.faults + slot, 0, sizeof(KernelFault));
  return slot;
}

void give_fault(Device& device, uint32_t slot) {
  std::unique_lock lock(device.mutex);
  device.free_faults.push_back(slot);
}

std::unique_lock<std::mutex> require_live(Queue& queue) {
  queue.device->admit();
  std::unique_lock lock(queue.mutex);
  if (queue.last != nullptr && queue.status == ANYHAL_STATUS_OK) {  // dying: it is over soon
    Current current(*queue.device);
    while (advance(queue), queue.status == ANYHAL_STATUS_OK) std::this_thread::yield();
  }
  // What killed it is the waiter's to hear; a call that comes later has done nothing wrong.
  if (queue.status != ANYHAL_STATUS_OK)
    throw Fault(ANYHAL_STATUS_EXECUTION_FAILED, ANYHAL_REASON_NONE, 0, queue.failure);
  return lock;
}

void end_queue(Queue* queue, bool abandon) {
  std::unique_ptr<Queue> owned(queue);
  if (abandon) return;
  Device& device = *queue->device;
  Current current(device);
  CUresult code = CUDA_SUCCESS;
  const auto keep = [&](CUresult next) { code = code == CUDA_SUCCESS ? next : code; };
  for (uint32_t i = 0; i < queue->marks.count(); ++i)
    keep(device.driver().cuEventDestroy_v2(queue->marks.at(i).event));
  for (CUevent event : queue->spare) keep(device.driver().cuEventDestroy_v2(event));
  keep(device.driver().cuStreamDestroy_v2(queue->stream));
  give_fault(device, queue->fault_slot);
  check(device, code, "ending a queue");
}

namespace slots {

anyhal_status queue_create(anyhal_device* handle, const anyhal_queue_options* options,
                           anyhal_queue** out_queue, anyhal_error* error) {
  auto& device = *reinterpret_cast<Device*>(handle);
  return guarded(error, [&] {
    if (options != nullptr && options->flags != 0)
      throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ATTRIBUTE, 0,
                  "queues here have no flags, so none is profiled; pass 0");
    Current current(device);
    auto queue = std::make_unique<Queue>();
    queue->device = &device;
    queue->spare.reserve(Marks::kMost + 1);
    queue->fault_slot = take_fault(device);
    const CUresult code = device.driver().cuStreamCreateWithPriority(
        &queue->stream, CU_STREAM_NON_BLOCKING, priority_of(device, options));
    if (code != CUDA_SUCCESS) give_fault(device, queue->fault_slot);
    check(device, code, "cuStreamCreateWithPriority");
    *out_queue = reinterpret_cast<anyhal_queue*>(queue.release());
  });
}

anyhal_status queue_signal(anyhal_queue* handle, uint64_t value, anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(handle);
  return guarded(error, [&] {
    const auto live = require_live(queue);
    Current current(*queue.device);
    if (value <= queue.signalled)
      throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                  "a signalled value must rise; choose a greater one");
    const CUevent event = take_event(queue);
    HAL_CUDA(*queue.device, cuEventRecord, event, queue.stream);
    queue.spare.pop_back();
    queue.marks.push({value, event});
    queue.signalled = value;
  });
}

anyhal_status queue_wait(anyhal_queue* handle, anyhal_queue* source_handle, uint64_t value,
                         anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(handle);
  auto& source = *reinterpret_cast<Queue*>(source_handle);
  return guarded(error, [&] {
    require_live(queue);
    if (&queue == &source) return;
    Current current(*queue.device);
    std::unique_lock lock(source.mutex);
    // An event that was never recorded passes at once, so only what was signalled is waited for.
    if (value > source.signalled)
      throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                  "value " + std::to_string(value) + " was not signalled; signal it first");
    for (uint32_t i = 0; i < source.marks.count(); ++i) {
      if (source.marks.at(i).value < value) continue;
      HAL_CUDA(*queue.device, cuStreamWaitEvent, queue.stream, source.marks.at(i).event, 0);
      return;
    }
  });
}

anyhal_status host_wait(anyhal_queue* handle, uint64_t value, uint64_t limit_ns,
                        anyhal_queue_state* state, anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(handle);
  const anyhal_status status = guarded(error, [&] { wait_for(queue, value, limit_ns); });
  std::unique_lock lock(queue.mutex);
  report(queue, state);
  return status;
}

// The context is current during the callback, as vendor libraries want it.
anyhal_status queue_native(anyhal_queue* handle, anyhal_native_fn callback, void* argument,
                           const anyhal_native_operand* operands, uint32_t operand_count,
                           anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(handle);
  anyhal_status answer = ANYHAL_STATUS_OK;
  const anyhal_status status = guarded(error, [&] {
    require_live(queue);
    Current current(*queue.device);
    std::vector<uint64_t> addresses;
    for (uint32_t i = 0; i < operand_count; ++i) addresses.push_back(address_of(operands[i].ref));
    const anyhal_native_queue native = {sizeof native,
                                        ANYHAL_NATIVE_CUDA_STREAM,
                                        reinterpret_cast<uint64_t>(queue.stream),
                                        addresses.data(),
                                        operand_count,
                                        0};
    answer = callback(argument, &native);
  });
  if (status == ANYHAL_STATUS_OK && answer != ANYHAL_STATUS_OK)
    return sdk::fail(error, answer, ANYHAL_REASON_NONE,
                     "the native callback answered %d; see there", answer);
  return status;
}

}  // namespace slots
}  // namespace hal::cuda
