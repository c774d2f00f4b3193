// Queues: a list of what is on its way, looked through whenever somebody asks.
// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>

#include "objects.h"

namespace hal::pjrt {
namespace {

using sdk::Failure;

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

void fail_queue(anyhal_queue& queue, anyhal_status status, const Flight& flight,
                const std::string& text) {
  if (queue.status != ANYHAL_STATUS_OK) return;
  queue.status = status;
  queue.failure = text;
  queue.failed_tag = flight.tag;
  queue.failed_value = queue.signalled + 1;
  for (size_t i = 0; i < queue.flights.size(); ++i)
    if (queue.flights.at(i).value != 0) {
      queue.failed_value = queue.flights.at(i).value;
      break;
    }
}

// The flight's work failed in the plugin.
void failed(anyhal_queue& queue, const Flight& flight, const Failed& why) {
  anyhal_status status = queue.plugin->judge(why);
  const char* cure = "run again from inputs that are still good";
  if (status == ANYHAL_STATUS_OUT_OF_MEMORY)
    cure = "what the call updates in place is lost, free arrays";
  else if (status != ANYHAL_STATUS_DEVICE_LOST)
    status = ANYHAL_STATUS_EXECUTION_FAILED;
  fail_queue(queue, status, flight, std::string(flight.what) + ": " + why.text + "; " + cure);
}

// The bytes of a buffer that is ready.
Failed read_bytes(const Plugin& plugin, api::Buffer* from, std::vector<char>& bytes) {
  for (const bool sized : {false, true}) {
    api::Args<api::BufferToHostBuffer> args;
    args->source = from;
    args->destination = sized ? bytes.data() : nullptr;
    args->destination_bytes = bytes.size();
    if (api::Error* error = plugin.call(api::kBufferToHostBuffer, args)) return plugin.take(error);
    if (sized) return plugin.end(args->event);
    bytes.resize(args->destination_bytes);
  }
  return {0, ""};
}

// Looks whether all conditions of a finished run held.
void check_conditions(anyhal_queue& queue, const Flight& flight) {
  if (queue.status != ANYHAL_STATUS_OK) return;
  std::vector<char> bytes;
  Failed why = queue.plugin->await(flight.conditions);
  if (why.code == 0) why = read_bytes(*queue.plugin, flight.conditions, bytes);
  if (why.code != 0) return failed(queue, flight, why);
  const auto bad = std::find(bytes.begin(), bytes.end(), 0);
  if (bad != bytes.end())
    fail_queue(queue, ANYHAL_STATUS_EXECUTION_FAILED, flight,
               "an index or length that this run computed is outside its axis (check " +
                   std::to_string(bad - bytes.begin()) + "); correct the values");
}

// Throws nothing: what fails is the queue's failure.
void land(anyhal_queue& queue, Flight& flight) {
  const Plugin& plugin = *queue.plugin;
  if (flight.event != nullptr) {
    const Failed why = plugin.end(flight.event);
    if (why.code != 0) failed(queue, flight, why);
  }
  if (flight.conditions != nullptr) {
    check_conditions(queue, flight);
    plugin.destroy(flight.conditions);
  }
  flight.event = nullptr, flight.conditions = nullptr;
  drop_all(plugin, flight);
  if (flight.value != 0 && queue.status == ANYHAL_STATUS_OK) queue.completed = flight.value;
}

// Lets go of what has landed, in order; the mutex is held.
void look(anyhal_queue& queue) {
  while (!queue.flights.empty()) {
    Flight& first = queue.flights.front();
    if (first.event != nullptr && !queue.plugin->ready(first.event)) return;
    Flight landed = std::move(first);
    queue.flights.pop();
    land(queue, landed);
  }
}

void report(const anyhal_queue& queue, anyhal_queue_state* state) {
  if (state == nullptr) return;
  anyhal_queue_state now = {};
  now.status = static_cast<uint32_t>(queue.status);
  now.completed = queue.completed;
  now.failed_value = queue.failed_value;
  now.failed_tag = queue.failed_tag;
  sdk::write_record(state, now);
}

// Between two looks: short at first, since most calls take microseconds; then the core is left to
// the plugin's threads.
void pause(uint64_t waited_ns) {
  if (waited_ns < 20000) return;
  const timespec nap = {0, waited_ns < 1000000 ? 20000 : 100000};
  nanosleep(&nap, nullptr);
}

}  // namespace

void require_live(const anyhal_device* device) {
  if (g_forked.load(std::memory_order_relaxed))
    throw Failure(ANYHAL_STATUS_DEVICE_LOST, 0,
                  "this process was forked after the plugin had started, and no plugin works in a "
                  "child; start it with exec or before the device is used");
  if (device != nullptr) device->plugin->require_here();
}

void require_live(anyhal_queue* queue, bool drains) {
  require_live(queue->device);
  std::unique_lock lock(queue->mutex);
  if (queue->status == ANYHAL_STATUS_OK) return;
  for (uint64_t begin = now_ns(); drains && !queue->flights.empty();) {
    queue->plugin->require_here();
    look(*queue);
    lock.unlock();
    pause(now_ns() - begin);
    lock.lock();
  }
  throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0, "the queue is dead: %s", queue->failure.c_str());
}

void drop_all(const Plugin& plugin, Flight& flight) {
  if (flight.event != nullptr) plugin.destroy(flight.event);
  if (flight.conditions != nullptr) plugin.destroy(flight.conditions);
  if (flight.gone != nullptr) plugin.destroy(flight.gone);
  for (api::Buffer* buffer : flight.more) plugin.destroy(buffer);
}

void take_off(anyhal_queue& queue, Flight&& flight) {
  std::lock_guard lock(queue.mutex);
  queue.flights.push(std::move(flight));
  look(queue);
}

namespace slots {

anyhal_status queue_create(anyhal_device* device, const anyhal_queue_options* options,
                           anyhal_queue** out_queue, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(device);
    if (options != nullptr && (options->flags & ~ANYHAL_QUEUE_PROFILED) != 0)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0, "queue flags %u are unknown; use 0",
                    options->flags);
    *out_queue = new anyhal_queue(device);
    return ANYHAL_STATUS_OK;
  });
}

// The plugin starts work by itself, so that a signal only leaves a mark.
anyhal_status queue_signal(anyhal_queue* queue, uint64_t value, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(queue, false);
    Flight mark;
    mark.value = value;
    queue->signalled = value;
    take_off(*queue, std::move(mark));
    return ANYHAL_STATUS_OK;
  });
}

// Programs wait for the buffers that they read and overwrite, whatever queue these come from.
anyhal_status queue_wait(anyhal_queue* queue, anyhal_queue* source, uint64_t value,
                         anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(queue);
    if (source->plugin != queue->plugin)
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, 0, "two plugins have no order; wait on the host");
    std::lock_guard lock(source->mutex);
    if (value > source->signalled)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "value %llu was not signalled; signal it first",
                    static_cast<unsigned long long>(value));
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status host_wait(anyhal_queue* queue, uint64_t value, uint64_t limit_ns,
                        anyhal_queue_state* state, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(static_cast<anyhal_device*>(nullptr));
    const uint64_t begin = now_ns();
    for (;;) {
      {
        std::lock_guard lock(queue->mutex);
        if (!queue->plugin->lost()) look(*queue);
        report(*queue, state);
        if (queue->completed >= value) return ANYHAL_STATUS_OK;
        // The rest lands first: the core takes back what it was given. A lost device's never does.
        queue->plugin->require_here();
        if (queue->status != ANYHAL_STATUS_OK && queue->flights.empty())
          return sdk::fail(error, queue->status, 0, "%s", queue->failure.c_str());
        if (value > queue->signalled && queue->status == ANYHAL_STATUS_OK)
          throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                        "value %llu was not signalled; signal it first",
                        static_cast<unsigned long long>(value));
      }
      const uint64_t waited = now_ns() - begin;
      if (waited >= limit_ns)
        return sdk::fail(error, ANYHAL_STATUS_TIMEOUT, 0, "not reached yet; wait again");
      pause(waited);
    }
  });
}

}  // namespace slots
}  // namespace hal::pjrt
