// Queues of the fake backend: calls wait on a list and run, in order, when somebody waits for them.
// SPDX-License-Identifier: Apache-2.0
//
// There are no threads. Work is put off for as long as the contract allows, so that a missing wait,
// a block handed out too early or a read of a result too soon shows every time and not now and
// then.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "device.hh"

namespace hal::fake {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

namespace {

constexpr int64_t kTurn = 100000;  // a poll does at least so much of what is due

// Each object that a queued call names counts it, so that an early release is noticed.
void count_uses(const Item& item, int64_t change) {
  if (item.plan != nullptr) item.plan->pending += change;
  if (item.source != nullptr) item.source->waiters += change;
  for (const auto& operand : item.operands)
    if (operand.block != nullptr) operand.block->pending += change;
  if (item.workspace.block != nullptr) item.workspace.block->pending += change;
  for (const auto& region : item.regions) {
    if (region.destination.block != nullptr) region.destination.block->pending += change;
    if (region.source.block != nullptr) region.source.block->pending += change;
  }
}

void copy_region(const Region& region) {
  if (region.bytes == 0) return;
  const uint8_t* from = bytes_of(region.source);
  Block& to = *region.destination.block;
  if (to.cell && region.bytes == to.bytes) return store_whole(to, from);
  std::memmove(bytes_of(region.destination), from, region.bytes);
}

void fill_region(const Item& item) {
  uint8_t* to = bytes_of(item.regions[0].destination);
  const void* pattern = item.pattern_from != nullptr ? item.pattern_from : item.pattern;
  for (uint64_t i = 0; i < item.regions[0].bytes; i += item.pattern_bytes)
    std::memcpy(to + i, pattern, item.pattern_bytes);
}

// Accepted work that found no memory: what it would have updated in place is gone.
void lose_in_place_operands(const Item& item) {
  for (size_t i = 0; i < item.plan->alias_of.size(); ++i) {
    if (item.plan->alias_of[i] < 0) continue;
    const Operand& operand = item.operands[i];
    if (operand.block != nullptr && operand.block->cell) {
      empty_block(*operand.block);
    } else if (uint8_t* at = bytes_of(operand); at != nullptr) {
      std::memset(at, 0xff, item.plan->op.tensors[i].bytes);
    }
  }
}

[[noreturn]] void fail_late(const Item& item) {
  const std::string what =
      std::string(op_name(item.plan->op.op)) + ", tag " + std::to_string(item.tag);
  if (item.fails != ANYHAL_STATUS_OUT_OF_MEMORY)
    throw Fault{item.fails, ANYHAL_REASON_NONE, "scripted late failure of " + what};
  lose_in_place_operands(item);
  throw Fault{item.fails, ANYHAL_REASON_NONE,
              "no memory for accepted work, " + what + "; its in-place operands are lost"};
}

void kill_queue(Queue& queue, const Item& item, const Fault& fault) {
  const bool told =
      fault.status == ANYHAL_STATUS_OUT_OF_MEMORY || fault.status == ANYHAL_STATUS_INVALID_ARGUMENT;
  queue.status = told ? fault.status : ANYHAL_STATUS_EXECUTION_FAILED;
  queue.failure = fault.text;
  queue.failed_tag = item.tag;
  queue.failed_value = queue.signalled + 1;
  for (const auto& later : queue.items)
    if (later.type == Item::kSignal) {
      queue.failed_value = later.value;
      break;
    }
  for (const auto& later : queue.items) count_uses(later, -1);
  queue.items.clear();
}

bool due(const Queue& queue, int64_t now) {
  return !queue.items.empty() && queue.items.front().done_ns >= 0 &&
         queue.items.front().done_ns <= now;
}

// Runs what is submitted and due, until `end` has passed or `enough` is reached. Other queues are
// only touched where this one waits for them, and so far as it does.
void drive(Queue& queue, int64_t now, int64_t end, uint64_t enough = UINT64_MAX) {
  for (bool first = true; due(queue, now) && (first || now_ns() < end); first = false) {
    if (queue.completed >= enough) return;
    Item& head = queue.items.front();
    if (head.type == Item::kWait && head.source->completed < head.value &&
        head.source->status == ANYHAL_STATUS_OK) {
      Queue& source = *head.source;
      const uint64_t value = head.value;
      drive(source, now, end, value);
      if (source.completed < value && source.status == ANYHAL_STATUS_OK) return;
      continue;  // the source may wait for this queue and have driven it: look at its head anew
    }
    const Item item = std::move(head);
    queue.items.pop_front();
    count_uses(item, -1);
    try {
      if (item.type == Item::kSignal) {
        queue.completed = item.value;
      } else if (item.type != Item::kWait) {
        Item work = item;
        execute(*queue.device, work);
      }
    } catch (const Fault& fault) {
      return kill_queue(queue, item, fault);
    }
  }
}

// When the head of the queue may run next, seen through waits.
int64_t next_time(const Queue& queue) {
  if (queue.items.empty()) return kForever;
  const Item& head = queue.items.front();
  if (head.done_ns < 0) return kForever;
  if (head.type == Item::kWait && head.source->completed < head.value)
    return std::max(head.done_ns, next_time(*head.source));
  return head.done_ns;
}

void submit_all(Queue& queue) {
  const Script& script = queue.device->instance->script;
  for (auto& item : queue.items) {
    if (item.done_ns >= 0) continue;
    int64_t cost = item.type == Item::kRun ? script.delay_ns : 0;
    if (item.type == Item::kRun && item.plan->type == Plan::kOp &&
        script.hang.contains(item.plan->op.op))
      cost = kForever;
    const int64_t start = std::max(now_ns(), queue.busy_until_ns);
    queue.busy_until_ns = std::min(start + cost, kForever);
    item.done_ns = queue.busy_until_ns;
  }
}

void require_live_queue(Queue& queue) {
  Instance& instance = *queue.device->instance;
  require_alive(instance, &queue, ANYHAL_OBJECT_QUEUE);
  if (queue.status != ANYHAL_STATUS_OK)
    throw Fault{ANYHAL_STATUS_EXECUTION_FAILED, ANYHAL_REASON_NONE,
                "the queue is dead: " + queue.failure};
}

// The last signal up to a value.
uint64_t signal_before(const Queue& queue, uint64_t value) {
  uint64_t found = queue.completed;
  for (const Item& item : queue.items)
    if (item.type == Item::kSignal && item.value <= value) found = item.value;
  return found;
}

void report(const Queue& queue, anyhal_queue_state* state) {
  if (state == nullptr) return;
  anyhal_queue_state result = {};
  const uint32_t size = state->size;
  result.status = queue.status;
  result.completed = queue.completed;
  result.failed_value = queue.failed_value;
  result.failed_tag = queue.failed_tag;
  result.size = size;
  std::memcpy(state, &result, std::min<uint32_t>(size, sizeof result));
}

// Waits without holding the lock; other calls on the device go on meanwhile.
void wait_for(Queue& queue, uint64_t value, uint64_t limit_ns, std::unique_lock<std::mutex>& lock) {
  const int64_t start = now_ns();
  const bool no_limit = is_bad(*queue.device->instance, Bad::no_limit);
  const int64_t end = no_limit || limit_ns > static_cast<uint64_t>(kForever - start)
                          ? kForever
                          : start + static_cast<int64_t>(limit_ns);
  while (true) {
    drive(queue, now_ns(), std::max(end, start + kTurn));
    if (queue.completed >= value) return;
    if (queue.status != ANYHAL_STATUS_OK)
      throw Fault{queue.status, ANYHAL_REASON_NONE, queue.failure};
    if (queue.device->lost)
      throw Fault{ANYHAL_STATUS_DEVICE_LOST, ANYHAL_REASON_NONE, queue.device->loss};
    const int64_t now = now_ns();
    if (now >= end)
      throw Fault{ANYHAL_STATUS_TIMEOUT, ANYHAL_REASON_NONE,
                  "value " + std::to_string(value) + " is not reached yet"};
    const int64_t until = std::min({end, next_time(queue), now + 5000000});
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(until - now, 1000)));
    lock.lock();
  }
}

void check_depth(Queue& queue) {
  const Instance& instance = *queue.device->instance;
  const uint32_t depth = instance.script.devices[queue.device->number].queue_depth;
  if (depth == 0) return;
  uint64_t waiting = 0;
  for (const auto& item : queue.items) waiting += item.type == Item::kRun;
  if (waiting >= depth)
    violation(*queue.device->instance,
              "more than queue_depth = " + std::to_string(depth) + " calls in flight");
}

}  // namespace

void write_pack(Plan& plan, const std::vector<Operand>& operands);

void run_now(Queue& queue) {
  submit_all(queue);
  drive(queue, now_ns(), kForever);
}

void enqueue(Queue& queue, Item item) {
  require_live_queue(queue);
  if (item.type == Item::kRun) check_depth(queue);
  count_uses(item, 1);
  queue.items.push_back(std::move(item));
}

void execute(Device& device, Item& item) {
  const int64_t begin = now_ns();
  if (item.fails != ANYHAL_STATUS_OK) fail_late(item);
  switch (item.type) {
    case Item::kRun:
      run_plan(device, *item.plan, item.operands, item.workspace);
      break;
    case Item::kCopy:
      for (const auto& region : item.regions) copy_region(region);
      break;
    case Item::kFill:
      fill_region(item);
      break;
    case Item::kPack:
      write_pack(*item.plan, item.operands);
      break;
    default:
      break;
  }
  const anyhal_services* services = device.instance->services;
  const bool profiled = std::any_of(device.queues.begin(), device.queues.end(), [](const Queue* q) {
    return (q->flags & ANYHAL_QUEUE_PROFILED) != 0;
  });
  const uint64_t unit = is_bad(*device.instance, Bad::span_us) ? 1000 : 1;
  if (profiled && item.type == Item::kRun && ANYHAL_HAS(services, anyhal_services, span))
    services->span(services->context, item.tag, static_cast<uint64_t>(begin) / unit,
                   static_cast<uint64_t>(now_ns()) / unit, 1);
}

namespace slots {

anyhal_status queue_create(anyhal_device* handle, const anyhal_queue_options* options,
                           anyhal_queue** out_queue, anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 8, error, [&](auto&) {
    require_alive(*device.instance, &device, ANYHAL_OBJECT_DEVICE);
    const uint32_t most = device.instance->script.devices[device.number].queue_count;
    if (most != 0 && device.queues.size() >= most)
      throw Fault{ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_NONE,
                  "the device has no more than " + std::to_string(most) + " queues"};
    auto queue = std::make_unique<Queue>();
    if (options != nullptr) queue->flags = options->flags;
    Queue* made = adopt(*device.instance, std::move(queue), ANYHAL_OBJECT_QUEUE, &device);
    device.queues.push_back(made);
    *out_queue = reinterpret_cast<anyhal_queue*>(made);
  });
}

anyhal_status queue_signal(anyhal_queue* handle, uint64_t value, anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  return guarded(*queue.device->instance, queue.device, 9, error, [&](auto&) {
    require_live_queue(queue);
    if (value <= queue.signalled)
      violation(*queue.device->instance, "queue_signal with a value that does not rise");
    Item item;
    item.type = Item::kSignal;
    item.value = value;
    queue.items.push_back(std::move(item));
    queue.signalled = value;
    submit_all(queue);
    if (is_bad(*queue.device->instance, Bad::signal_waits)) run_now(queue);
  });
}

anyhal_status queue_wait(anyhal_queue* handle, anyhal_queue* source_handle, uint64_t value,
                         anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  Queue& source = *reinterpret_cast<Queue*>(source_handle);
  return guarded(*queue.device->instance, queue.device, 10, error, [&](auto&) {
    require_live_queue(queue);
    require_alive(*queue.device->instance, &source, ANYHAL_OBJECT_QUEUE);
    if (value > source.signalled)
      violation(*queue.device->instance,
                "queue_wait on value " + std::to_string(value) + ", which was not submitted");
    if (queue.device != source.device && queue.device->instance->script.edge != 2)
      throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_NONE,
                  "there is no native edge between these devices"};
    Item item;
    item.type = Item::kWait;
    item.source = &source;
    item.value = value;
    const Script& script = queue.device->instance->script;
    if (script.is(Bad::no_wait)) return;
    if (script.is(Bad::early_value)) item.value = signal_before(source, value);
    count_uses(item, 1);
    queue.items.push_back(std::move(item));
  });
}

anyhal_status host_wait(anyhal_queue* handle, uint64_t value, uint64_t limit_ns,
                        anyhal_queue_state* state, anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  const anyhal_status status =
      guarded(*queue.device->instance, queue.device, 11, error, [&](auto& lock) {
        require_alive(*queue.device->instance, &queue, ANYHAL_OBJECT_QUEUE);
        if (value > queue.signalled && queue.status == ANYHAL_STATUS_OK)
          violation(*queue.device->instance,
                    "host_wait for value " + std::to_string(value) + ", which was not signalled");
        if (is_bad(*queue.device->instance, Bad::early_done) && limit_ns == 0) return;
        wait_for(queue, value, limit_ns, lock);
      });
  std::lock_guard lock(queue.device->instance->mutex);
  report(queue, state);
  const Script& script = queue.device->instance->script;
  if (state != nullptr && status == ANYHAL_STATUS_OK) {
    if (script.is(Bad::falls)) state->completed = value;
    if (script.is(Bad::early_done) && limit_ns == 0) state->completed = queue.signalled;
  }
  if (script.is(Bad::failure_forgotten) && queue.status != ANYHAL_STATUS_OK) {
    queue.status = ANYHAL_STATUS_OK;
    queue.completed = queue.signalled;
  }
  return status;
}

// Runs the work up to the value before it returns, since nothing else here would.
anyhal_status queue_notify(anyhal_queue* handle, uint64_t value, anyhal_notify_fn fn,
                           void* argument, anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  anyhal_status reached = ANYHAL_STATUS_OK;
  const anyhal_status status =
      guarded(*queue.device->instance, queue.device, 18, error, [&](auto& lock) {
        require_alive(*queue.device->instance, &queue, ANYHAL_OBJECT_QUEUE);
        if (value > queue.signalled)
          violation(*queue.device->instance, "queue_notify on a value that was not submitted");
        try {
          wait_for(queue, value, ANYHAL_NO_LIMIT, lock);
        } catch (const Fault& fault) {
          reached = fault.status;
        }
      });
  if (status == ANYHAL_STATUS_OK) fn(argument, reached);
  if (is_bad(*queue.device->instance, Bad::notice_twice)) fn(argument, reached);
  return status;
}

anyhal_status queue_native(anyhal_queue* handle, anyhal_native_fn callback, void* argument,
                           const anyhal_native_operand* operands, uint32_t operand_count,
                           anyhal_error* error) {
  if (handle != nullptr || operand_count == 0)
    return fail(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_NONE,
                "native work needs mode=sync and an operand", error);
  Device& device = *reinterpret_cast<Block*>(operands[0].ref.memory)->device;
  std::vector<uint64_t> addresses;
  const anyhal_status status = guarded(*device.instance, &device, 22, error, [&](auto&) {
    for (uint32_t i = 0; i < operand_count; ++i)
      addresses.push_back(reinterpret_cast<uint64_t>(
          bytes_of(resolve(device, operands[i].ref, 1, "queue_native"))));
  });
  if (status != ANYHAL_STATUS_OK) return status;
  const anyhal_native_queue native = {sizeof native,    ANYHAL_NATIVE_HOST, 0,
                                      addresses.data(), operand_count,      0};
  return callback(argument, &native);
}

}  // namespace slots
}  // namespace hal::fake
