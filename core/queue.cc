// Signals, waits and what happens when a queue dies.
// SPDX-License-Identifier: Apache-2.0
#include "core/queue.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/answers.hpp"
#include "core/executor.hpp"
#include "core/plan.hpp"

namespace hal {
namespace {

thread_local uint32_t t_calls = 0;

void make_handle(Queue& q) {
  if (q.device->synchronous) return;
  const anyhal_queue_options options = {sizeof(options), 0, 0, 0};
  ErrorRecord error;
  check(q.device->table->queue_create(q.device->handle, &options, &q.handle, error), error,
        "creating a queue on " + q.device->name, *q.device->instance);
}

// Nothing that comes from a device can be believed whose waits cannot.
void require_possible(Device* device, const Guarded<anyhal_queue_state>& answer,
                      anyhal_status status, uint64_t value) {
  const std::string what = "waiting on " + device->name;
  try {
    answer.check(what);
    if (status < ANYHAL_STATUS_OK || status > ANYHAL_STATUS_INTERNAL)
      raise(status, {}, what, *device->instance);
    if (status == ANYHAL_STATUS_OK && answer.record.completed < value)
      throw Error(ANYHAL_STATUS_INTERNAL,
                  what + ": the backend answered that call " + std::to_string(value) +
                      " is done, and that its queue has come to " +
                      std::to_string(answer.record.completed) + "; report this to its vendor");
  } catch (const Error& e) {
    device->lose(e.text);
    throw;
  }
}

}  // namespace

InCall::InCall() { ++t_calls; }
InCall::~InCall() { --t_calls; }

void require_outside_call() {
  // Parts of a kernel run on the executor's threads, which run nothing else.
  if (t_calls || executor_inside())
    throw Error(
        ANYHAL_STATUS_INVALID_ARGUMENT,
        "a call from inside a user's kernel: it may wait for that kernel, which would never "
        "end; compute without anyhal there, or use enqueue_native");
}

void CallLock::wait() {
  require_outside_call();
  SpinLock::lock();
}

Queue::Queue(Device* d) : device(d) {
  make_handle(*this);
  update_plain();
  d->add_queue(this);
}

uint64_t Queue::signal() {
  if (device->synchronous) return submitted;
  std::lock_guard guard(lock);
  if (signalled < submitted) {
    ErrorRecord error;
    const anyhal_status status = device->table->queue_signal(handle, submitted, error);
    if (status == ANYHAL_STATUS_DEVICE_LOST) device->lose(error.record);
    // A dead queue says so again here; the wait that follows reads the whole story.
    if (status != ANYHAL_STATUS_OK && status != ANYHAL_STATUS_EXECUTION_FAILED)
      check(status, error, "submitting work on " + device->name, *device->instance);
    signalled = submitted;
  }
  return signalled;
}

// `lock` is held, and `handle` is the one that failed.
void Queue::fail(anyhal_status status, const anyhal_queue_state& state, const anyhal_error& error) {
  // Signals are rarer than calls: where the failed call is not named, all that follows the last
  // value reached is lost.
  const uint64_t reached = std::max<uint64_t>(completed.load(), state.completed) + 1;
  const uint64_t first = std::max(reached, state.failed_tag);
  const uint64_t failed = std::min(first, submitted.load());
  const Ran& ran = ran_[failed % ran_.size()];
  std::string call = ran.value == failed ? plan_label(ran.plan) : "";
  call += (call.empty() ? "call " : ", call ") + std::to_string(failed);
  failures.push_back({failed, submitted, call, said(error, *device->instance), status});
  // A failed queue is dead: make another, so that unrelated work goes on.
  dead_.push_back(handle);
  handle = nullptr;
  try {
    make_handle(*this);
  } catch (const Error& e) {
    device->lose("a queue of it died and no other could be made: " + e.text);
  }
  completed.store(submitted);
  signalled = submitted;
}

// A thread has ended its wait; `lock` is held.
void Queue::leave() {
  if (--waiting_) return;
  for (anyhal_queue* one : dead_) {
    ErrorRecord ignored;
    device->table->release(device->instance->reply.self, ANYHAL_OBJECT_QUEUE,
                           reinterpret_cast<uint64_t>(one), 0, ignored);
  }
  dead_.clear();
}

bool Queue::poll(uint64_t value, uint64_t limit_ns) {
  if (device->synchronous || completed.load(std::memory_order_acquire) >= value) return true;
  signal();
  Guarded<anyhal_queue_state> answer;
  const anyhal_queue_state& state = answer.record;
  ErrorRecord error;
  device->counters.host_waits.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock guard(lock);
  // Signalled to a handle that has died since: that took note of all that was submitted.
  if (completed.load(std::memory_order_relaxed) >= value) return true;
  anyhal_queue* const asked = handle;
  ++waiting_;
  guard.unlock();
  const anyhal_status status =
      device->table->host_wait(asked, value, limit_ns, &answer.record, error);
  guard.lock();
  const bool died =
      // Memory that ran out after acceptance, or a value that only the device saw, is a failed run:
      // the queue is dead all the same.
      status == ANYHAL_STATUS_EXECUTION_FAILED || status == ANYHAL_STATUS_OUT_OF_MEMORY ||
      (status == ANYHAL_STATUS_INVALID_ARGUMENT && state.status != ANYHAL_STATUS_OK);
  // Of several that wait, one takes note.
  if (died && asked == handle) fail(status, state, error.record);
  leave();
  guard.unlock();
  if (died) return true;
  require_possible(device, answer, status, value);
  if (status == ANYHAL_STATUS_OK) {
    uint64_t seen = completed.load();
    const uint64_t now = std::max(value, std::min(state.completed, submitted.load()));
    while (seen < now && !completed.compare_exchange_weak(seen, now)) {
    }
    return true;
  }
  if (status == ANYHAL_STATUS_TIMEOUT) return false;
  if (status == ANYHAL_STATUS_DEVICE_LOST) {
    device->lose(error.record);
    device->require_alive();
  }
  raise(status, error.record, "waiting on " + device->name, *device->instance);
}

void Queue::bury() {
  if (device->synchronous) return;
  try {
    poll(submitted, 0);
  } catch (const Error&) {
    // The caller reports the status that led here.
  }
}

bool Queue::reached(uint64_t value) {
  if (device->synchronous || completed.load(std::memory_order_acquire) >= value) return true;
  return !device->lost && poll(value, 0);
}

bool Queue::settled(uint64_t value) noexcept {
  try {
    return reached(value);
  } catch (const Error&) {
    return false;
  }
}

void Queue::require_good(uint64_t value) const {
  std::lock_guard guard(lock);
  for (const Failure& f : failures)
    if (value >= f.first && value <= f.last)
      throw Error(f.status, "the data on " + device->name + " was never computed: " + f.call +
                                " of its queue failed: " + f.text +
                                "; run again from inputs that are still good");
}

void Queue::wait(uint64_t value, uint64_t limit_ns) {
  device->require_alive();
  if (!poll(value, limit_ns))
    throw Error(ANYHAL_STATUS_TIMEOUT,
                "call " + std::to_string(value) + " on " + device->name + " was not reached in " +
                    std::to_string(limit_ns / 1000000) + " ms; the work goes on, wait again");
}

void Queue::wait_all(uint64_t limit_ns) {
  wait(submitted, limit_ns);
  std::lock_guard guard(lock);
  while (reported < failures.size()) {
    const Failure& f = failures[reported++];
    if (f.last <= since) continue;  // nothing of this holder is lost
    reported = failures.size();
    throw Error(f.status, f.call + " on " + device->name + " failed: " + f.text +
                              "; what it and later calls wrote is lost");
  }
}

void Queue::wait_for(Queue& source, uint64_t value) {
  if (&source == this || source.completed.load(std::memory_order_acquire) >= value) return;
  source.signal();  // never a wait before its signal
  if (!device->synchronous && source.device->instance == device->instance &&
      device->instance->has_queue_wait) {
    const std::scoped_lock guard(lock, source.lock);  // the source's handle stays as well
    ErrorRecord error;
    const anyhal_status status = device->table->queue_wait(handle, source.handle, value, error);
    if (status == ANYHAL_STATUS_OK) return;
    if (status != ANYHAL_STATUS_UNSUPPORTED)
      raise(status, error.record, "ordering two queues of " + device->name, *device->instance);
  }
  source.wait(value);
}

void wait_idle(Buffer& buffer, bool for_write) {
  if (!buffer.device || buffer.device->synchronous) return;
  Use written;
  std::vector<Use> read;
  {
    std::lock_guard guard(buffer.uses);
    written = buffer.written;
    if (for_write) read = buffer.read;
  }
  if (written.queue) {
    written.queue->wait(written.value);
    written.queue->require_good(written.value);
  }
  for (const Use& use : read) use.queue->wait(use.value);
}

}  // namespace hal
