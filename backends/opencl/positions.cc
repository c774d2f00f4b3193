// What became of the commands of a queue: asked of their events, never assumed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "objects.h"

namespace hal::opencl {

void drop_event(Device& device, cl_event event) {
  gave_back(*device.self, device.self->api.ReleaseEvent(event), "clReleaseEvent");
  --device.events;
}

cl_int status_of_event(const Device& device, cl_event event) {
  cl_int status = kComplete;
  const cl_int code = device.self->api.GetEventInfo(event, kEventCommandExecutionStatus,
                                                    sizeof(status), &status, nullptr);
  return code != kSuccess ? code : status;
}

void drop_all(Device& device, const Position& position) {
  drop_event(device, position.event);
  for (const Command& command : position.commands) drop_event(device, command.event);
}

namespace {

using Clock = std::chrono::steady_clock;

const Api& api_of(const QueueState& state) { return state.device->self->api; }

// ---- All of these with the state's lock held.

void fail_with(QueueState& state, anyhal_status status, uint64_t tag, cl_int code) {
  state.failed_value = state.pending.front().value;
  state.failed_tag = tag;
  state.vendor_code = code;
  state.failure.store(status);
}

// The device went away, and what it had queued with it.
void fail_by_loss(QueueState& state, uint64_t tag) {
  std::snprintf(state.text, sizeof(state.text), "%s", loss_of(*state.device).c_str());
  fail_with(state, ANYHAL_STATUS_DEVICE_LOST, tag, state.device->lost_code);
}

// A command that ended badly; tag 0: it is of no numbered call.
void fail_by_code(QueueState& state, uint64_t tag, cl_int code) {
  const std::string what =
      tag != 0 ? "call " + std::to_string(tag)
               : "work before position " + std::to_string(state.pending.front().value);
  const std::string ended =
      what + " ended with " + error_name(code) + " (" + std::to_string(code) + ")";
  anyhal_status status = status_of(code);
  // Of running work, OUT_OF_RESOURCES is as a rule a bad access, and -1 a kernel's own failure.
  if (code == kOutOfResources || code == kDeviceNotFound || status == ANYHAL_STATUS_INTERNAL)
    status = ANYHAL_STATUS_EXECUTION_FAILED;
  if (status == ANYHAL_STATUS_DEVICE_LOST) {
    lose(*state.device, code, ended);
    return fail_by_loss(state, tag);
  }
  std::snprintf(state.text, sizeof(state.text), "%s; run again from inputs that are still good",
                ended.c_str());
  fail_with(state, status, tag, code);
}

void fail_by_index(QueueState& state, const Fault& fault) {
  std::snprintf(state.text, sizeof(state.text),
                "index %lld is outside [0, %lld), and negative indices do not wrap; correct the "
                "indices (the call wrote nothing)",
                static_cast<long long>(fault.index), static_cast<long long>(fault.limit));
  fail_with(state, ANYHAL_STATUS_INVALID_ARGUMENT, fault.tag, 0);
}

// What became of a position and of the commands since the one before.
struct Outcome {
  bool running = false;
  cl_int code = kComplete;  // of the first that failed
  uint64_t tag = 0;         // and its call
};

Outcome outcome_of(const Device& device, const Position& position) {
  Outcome outcome;
  const cl_int own = status_of_event(device, position.event);
  outcome.running = own > kComplete;
  if (outcome.running) return outcome;
  for (const Command& command : position.commands) {
    const cl_int status = status_of_event(device, command.event);
    outcome.running = outcome.running || status > kComplete;
    if (status < kComplete && outcome.code == kComplete)
      outcome.code = status, outcome.tag = command.tag;
  }
  if (outcome.code == kComplete) outcome.code = own;
  return outcome;
}

// Drivers go on behind a failed command. Until that has ended it may write into memory which is
// free for others once the failure is told.
bool all_ended(const QueueState& state) {
  return std::none_of(state.pending.begin(), state.pending.end(), [&](const Position& position) {
    return outcome_of(*state.device, position).running;
  });
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

}  // namespace

void settle(QueueState& state) {
  if (state.device == nullptr) return;
  Device& device = *state.device;
  while (!state.pending.empty() && state.failure == ANYHAL_STATUS_OK) {
    Position& first = state.pending.front();
    const Outcome outcome = outcome_of(device, first);
    const bool failed = outcome.code < kComplete;
    if (device.lost && (outcome.running || failed)) return fail_by_loss(state, outcome.tag);
    if (outcome.running) return;
    const bool outside = first.fault != nullptr && first.fault->set != 0;
    if ((failed || outside) && !all_ended(state)) return;
    if (failed) return fail_by_code(state, outcome.tag, outcome.code);
    if (outside) return fail_by_index(state, *first.fault);
    state.completed = first.value;
    drop_all(device, first);
    if (first.fault.use_count() == 1) state.spare.push_back(std::move(first.fault));
    state.pending.pop_front();
  }
}

void submit(QueueState& state, cl_command_queue queue) {
  const cl_int code = api_of(state).Flush(queue);
  state.unflushed = code == kSuccess ? nullptr : queue;
  if (status_of(code) == ANYHAL_STATUS_DEVICE_LOST)
    lose(*state.device, code, answer_of("clFlush", code));
}

const Position* position_for(const QueueState& state, uint64_t value) {
  for (const Position& p : state.pending)
    if (p.value >= value) return &p;
  return nullptr;
}

cl_event event_for(const QueueState& state, uint64_t value) {
  const Position* position = position_for(state, value);
  if (position == nullptr || api_of(state).RetainEvent(position->event) != kSuccess) return nullptr;
  return position->event;
}

// ---- Without it.

namespace {

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

// Steps that begin short, since OpenCL has no wait with a limit.
void nap(uint64_t slept_ns, Clock::time_point until) {
  const uint64_t step = std::clamp<uint64_t>(slept_ns / 8, 2000, 200000);
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now());
  if (left.count() <= 0) return;
  std::this_thread::sleep_for(std::min(std::chrono::nanoseconds(static_cast<int64_t>(step)), left));
}

}  // namespace

cl_int watch(const std::shared_ptr<QueueState>& state, const std::shared_ptr<Waiter>& waiter,
             cl_event event) {
  auto* callback = new Callback{state, waiter};
  const cl_int code = api_of(*state).SetEventCallback(event, kComplete, on_event, callback);
  if (code != kSuccess) delete callback;
  return code;
}

void look(QueueState& state) { look_and_tell(state, std::unique_lock(state.lock)); }

bool wait_until_decided(QueueState& state, uint64_t value, uint64_t limit_ns) {
  const Clock::time_point start = Clock::now();
  constexpr uint64_t kYear = 365ull * 24 * 3600 * 1000000000;
  const auto until =
      start + std::chrono::nanoseconds(static_cast<int64_t>(std::min(limit_ns, kYear)));
  for (bool last = limit_ns == 0, waited = false;; waited = true) {
    look(state);
    cl_event event = nullptr;
    {
      std::lock_guard guard(state.lock);
      if (state.completed >= value || state.failure != ANYHAL_STATUS_OK) return true;
      if (last) return false;
      if (state.unflushed != nullptr) submit(state, state.unflushed);
      if (limit_ns == ANYHAL_NO_LIMIT) event = event_for(state, value);
    }
    const auto now = Clock::now();
    last = now >= until;
    // After a wait of the driver's that decided nothing: it failed, or later work goes on.
    if (event == nullptr || waited) nap(static_cast<uint64_t>((now - start).count()), until);
    if (event == nullptr) continue;
    const cl_int code = api_of(state).WaitForEvents(1, &event);
    if (status_of(code) == ANYHAL_STATUS_DEVICE_LOST)
      lose(*state.device, code, answer_of("clWaitForEvents", code));
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

}  // namespace hal::opencl
