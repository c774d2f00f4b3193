// The general path of a call.
// SPDX-License-Identifier: Apache-2.0
#include "core/dispatch.hpp"

#include <time.h>

#include <cstring>
#include <mutex>

#include "core/graph.hpp"

namespace hal {
namespace {

// Waits that program order across queues asks for, before a call that touches these operands.
void order(const Plan& plan, const Operand* operands, Queue& queue) {
  for (uint32_t i = 0; i < plan.operand_count; ++i) {
    Buffer* b = operands[i].buffer;
    if (!b) continue;
    Use written;
    std::vector<Use> read;
    {
      std::lock_guard guard(b->uses);
      written = b->written;
      if (plan.writes >> i & 1) read = b->read;
    }
    if (written.queue) {
      if (written.queue != &queue) queue.wait_for(*written.queue, written.value);
      if (plan.reads >> i & 1) written.queue->require_good(written.value);
    }
    for (const Use& use : read)
      if (use.queue != &queue) queue.wait_for(*use.queue, use.value);
  }
}

void stamp(const Plan& plan, const Operand* operands, Queue& queue, uint64_t value) {
  for (uint32_t i = 0; i < plan.operand_count; ++i) {
    Buffer* b = operands[i].buffer;
    if (!b) continue;
    std::lock_guard guard(b->uses);
    if (plan.writes >> i & 1) {
      b->written = {&queue, value};
      b->read.clear();
      continue;
    }
    bool found = false;
    for (Use& use : b->read)
      if (use.queue == &queue) use.value = value, found = true;
    if (!found) b->read.push_back({&queue, value});
  }
}

// Keeps within the device's declared depth, in one visible place.
void hold_depth(Queue& queue) {
  const uint64_t depth = queue.device->info.queue_depth;
  if (depth && queue.submitted - queue.completed.load() >= depth)
    queue.wait(queue.submitted - depth + 1);
}

// The packed copy that plan.packs[i] asks for, made on first use.
Operand packed_operand(Plan& plan, const anyhal_pack& pack, const Operand& source, Queue& queue) {
  Buffer* b = source.buffer;
  if (!b || !b->constant)
    throw Error(ANYHAL_STATUS_INTERNAL,
                plan.label() + " on " + plan.device->name + ": the plan packs operand " +
                    std::to_string(pack.operand) + ", which is not a constant");
  std::string key(static_cast<const char*>(pack.key), pack.key_size);
  const uint64_t where[2] = {source.data, pack.bytes};
  key.append(reinterpret_cast<const char*>(where), sizeof(where));
  // What a pack waits for, its place and its note are one step, as for a call.
  std::unique_lock ordered(plan.device->order, std::defer_lock);
  if (!plan.device->synchronous) ordered.lock();
  // Threads that meet a constant for the first time at once: one packs, the others wait for it.
  std::lock_guard packing(plan.device->packing);
  for (Packed* p = b->packed; p; p = p->next)
    if (p->key == key) return {data_of(*p->buffer), p->buffer};
  if (!plan.device->instance->has_constant_pack)
    throw Error(ANYHAL_STATUS_INTERNAL, plan.label() + " on " + plan.device->name +
                                            ": the plan asks for packing but has no constant_pack");
  Buffer* copy = plan.device->memory.alloc(pack.bytes, ANYHAL_PURPOSE_WEIGHTS, &queue);
  copy->constant = true;
  const Operand target{data_of(*copy), copy};
  const Operand operands[2] = {source, target};
  Plan shape;  // only its operand counts matter to order() and stamp()
  shape.set_counts(2, 1);
  ErrorRecord error;
  anyhal_status status;
  try {
    if (ordered) order(shape, operands, queue);
  } catch (...) {
    release(copy);
    throw;
  }
  {
    std::lock_guard guard(queue.lock);
    status = plan.device->table->constant_pack(queue.handle, plan.handle, pack.operand,
                                               ref_of(*plan.device, source),
                                               ref_of(*plan.device, target), error);
    queue.accept(status == ANYHAL_STATUS_OK);
    if (queue.device->synchronous) queue.completed.store(queue.submitted);
  }
  if (status != ANYHAL_STATUS_OK) {
    release(copy);
    raise_call(plan, status, error.record);
  }
  if (ordered) stamp(shape, operands, queue, queue.submitted);
  b->packed = new Packed{std::move(key), copy, b->packed};
  return target;
}

// Holds a buffer for the length of a call.
struct Held {
  Buffer* buffer = nullptr;
  ~Held() {
    if (buffer) release(buffer);
  }
};

void run_single(Plan& plan, const Operand* given, Queue& queue) {
  Device& device = *plan.device;
  Operand operands[kMaxOperands];
  std::copy(given, given + plan.operand_count, operands);
  for (const anyhal_pack& pack : plan.packs)
    operands[pack.operand] = packed_operand(plan, pack, given[pack.operand], queue);
  Held workspace;
  if (plan.workspace_bytes && !queue.capture)
    workspace.buffer = device.memory.alloc(plan.workspace_bytes, ANYHAL_PURPOSE_WORKSPACE, &queue);
  if (queue.capture) {
    queue.capture->record(plan, operands);
    return;
  }
  anyhal_ref refs[kMaxOperands];
  for (uint32_t i = 0; i < plan.operand_count; ++i) refs[i] = ref_of(device, operands[i]);
  anyhal_call call{};
  call.size = sizeof(call);
  call.tag = plan.id;
  call.operands = refs;
  call.operand_count = plan.operand_count;
  if (workspace.buffer)
    call.workspace = ref_of(device, {data_of(*workspace.buffer), workspace.buffer});
  run_recorded(plan, operands, call, queue);
  if (workspace.buffer && !device.synchronous)
    workspace.buffer->written = {&queue, queue.submitted};
}

void run_composite(Plan& plan, const Operand* operands, Queue& queue) {
  const Composite& c = *plan.composite;
  Device& device = *plan.device;
  // Linear memory: one workspace with the temporaries inside. Cells hold one tensor per block.
  std::vector<Held> blocks(device.cells ? c.temp_bytes.size() : (c.workspace_bytes ? 1 : 0));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const uint64_t bytes = device.cells ? c.temp_bytes[i] : c.workspace_bytes;
    if (queue.capture)
      blocks[i].buffer = queue.capture->workspace(i, bytes);
    else
      blocks[i].buffer = device.memory.alloc(bytes, ANYHAL_PURPOSE_WORKSPACE, &queue);
  }
  Operand args[kMaxOperands];
  for (const Node& node : c.nodes) {
    for (size_t i = 0; i < node.refs.size(); ++i) {
      const NodeRef& r = node.refs[i];
      switch (r.kind) {
        case NodeRef::kAbsent:
          args[i] = {};
          break;
        case NodeRef::kOperand:
          args[i] = {operands[r.index].data + r.offset, operands[r.index].buffer};
          break;
        case NodeRef::kTemp: {
          Buffer* b = blocks[device.cells ? r.index : 0].buffer;
          args[i] = {data_of(*b) + (device.cells ? 0 : c.temp_offsets[r.index]) + r.offset, b};
          break;
        }
        default: {
          Buffer* b = c.constants[r.index];
          args[i] = {data_of(*b) + r.offset, b};
        }
      }
    }
    try {
      run_single(*node.plan, args, queue);
    } catch (Error& e) {
      // The part is named by what failed; say whose part it is.
      if (e.status != ANYHAL_STATUS_DEVICE_LOST) e.text = plan.label() + ", its part " + e.text;
      throw;
    }
  }
  if (!queue.capture) plan.calls.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void run_recorded(Plan& plan, const Operand* operands, const anyhal_call& call, Queue& queue) {
  Device& device = *plan.device;
  // What a call waits for, its place on the queue and the note of what it touches are one step:
  // a call of another thread on another queue comes wholly before it or after it.
  std::unique_lock ordered(device.order, std::defer_lock);
  if (!device.synchronous) {
    hold_depth(queue);
    ordered.lock();
    order(plan, operands, queue);
  }
  ErrorRecord error;
  const bool timed = receipts_on();
  anyhal_status status;
  uint64_t value = 0, elapsed = 0;
  anyhal_call numbered = call;  // a queue that fails later names the call by its number
  const auto attempt = [&] {
    std::lock_guard guard(queue.lock);
    numbered.tag = device.synchronous ? call.tag : queue.submitted + 1;
    const InCall inside;
    const uint64_t begin = timed ? now_ns() : 0;
    status = plan.enqueue(queue.handle, plan.handle, &numbered, error);
    if (timed) elapsed = now_ns() - begin;
    if (status == ANYHAL_STATUS_OK) queue.note(queue.accept(), plan.id);
    value = queue.submitted;
    if (device.synchronous) queue.completed.store(value, std::memory_order_relaxed);
  };
  attempt();
  if (status == ANYHAL_STATUS_OUT_OF_MEMORY) {  // not accepted: once more with all memory there is
    if (ordered) ordered.unlock();
    device.memory.reclaim();
    if (!device.synchronous) ordered.lock(), order(plan, operands, queue);
    attempt();
  }
  // An earlier call killed the queue: on the new one this call runs, unless it reads what is lost.
  if (status == ANYHAL_STATUS_EXECUTION_FAILED && !device.synchronous) {
    queue.bury();
    order(plan, operands, queue);
    attempt();
  }
  plan.calls.fetch_add(1, std::memory_order_relaxed);
  if (timed) {
    plan.time_ns.fetch_add(elapsed, std::memory_order_relaxed);
    record_receipt(plan, status, elapsed);
  }
  if (status != ANYHAL_STATUS_OK) raise_call(plan, status, error.record);
  if (!device.synchronous) stamp(plan, operands, queue, value);
}

void raise_call(Plan& plan, anyhal_status status, const anyhal_error& error) {
  Device& device = *plan.device;
  if (status == ANYHAL_STATUS_DEVICE_LOST) {
    device.lose(error);
    device.require_alive();
  }
  raise(status, error, plan.label() + " on " + device.name, *device.instance);
}

void run_plan(Plan& plan, const Operand* operands, Queue& queue) {
  require_outside_call();
  plan.device->require_alive();
  if (queue.capture) queue.capture->require_owner();
  if (plan.composite)
    run_composite(plan, operands, queue);
  else
    run_single(plan, operands, queue);
}

void copy_bytes(Queue& queue, const Operand& to, const Operand& from, uint64_t bytes) {
  Device& device = *queue.device;
  device.require_alive();
  if (bytes == 0) return;
  device.counters.copies.fetch_add(1, std::memory_order_relaxed);
  Plan shape;  // only its operand counts matter to order() and stamp()
  shape.set_counts(2, 1);
  const Operand operands[2] = {from, to};
  std::unique_lock ordered(device.order, std::defer_lock);  // as for a call
  if (!device.synchronous) ordered.lock(), order(shape, operands, queue);
  const anyhal_copy_region region = {ref_of(device, to), ref_of(device, from), bytes};
  ErrorRecord error;
  anyhal_status status;
  uint64_t value;
  const auto attempt = [&] {
    std::lock_guard guard(queue.lock);
    status = device.table->queue_copy(queue.handle, &region, 1, error);
    if (status == ANYHAL_STATUS_OK) queue.accept();
    value = queue.submitted;
    if (device.synchronous) queue.completed.store(value);
  };
  attempt();
  if (status == ANYHAL_STATUS_EXECUTION_FAILED && !device.synchronous) {  // as for a call
    queue.bury();
    order(shape, operands, queue);
    attempt();
  }
  if (status == ANYHAL_STATUS_DEVICE_LOST) {
    device.lose(error.record);
    device.require_alive();
  }
  if (status == ANYHAL_STATUS_EXECUTION_FAILED) queue.bury();
  check(status, error, "copying " + std::to_string(bytes) + " bytes on " + device.name,
        *device.instance);
  if (!device.synchronous) stamp(shape, operands, queue, value);
}

namespace {

// What the queue answers for a native call, and what the callback itself answered.
struct Answered {
  anyhal_native_fn callback;
  void* argument;
  bool called = false;
  anyhal_status own = ANYHAL_STATUS_OK;

  static anyhal_status call(void* self, const anyhal_native_queue* native) {
    auto& a = *static_cast<Answered*>(self);
    a.called = true;
    return a.own = a.callback(a.argument, native);
  }
};

anyhal_status enqueue_native(Queue& queue, Answered& answered, const Operand* operands,
                             const Plan& shape, anyhal_error* error) {
  Device& device = *queue.device;
  const uint32_t count = shape.operand_count;
  if (device.instance->has_queue_native) {
    anyhal_native_operand native[kMaxOperands];
    for (uint32_t i = 0; i < count; ++i)
      native[i] = {ref_of(device, operands[i]),
                   (shape.reads >> i & 1) * ANYHAL_ACCESS_READ |
                       (shape.writes >> i & 1) * ANYHAL_ACCESS_WRITE,
                   0};
    return device.table->queue_native(queue.handle, Answered::call, &answered, native, count,
                                      error);
  }
  if (!device.synchronous || !device.host_memory) return ANYHAL_STATUS_UNSUPPORTED;
  uint64_t addresses[kMaxOperands];
  for (uint32_t i = 0; i < count; ++i) addresses[i] = host_address(operands[i]);
  const anyhal_native_queue native = {sizeof(native), ANYHAL_NATIVE_HOST, 0, addresses, count, 0};
  return Answered::call(&answered, &native);
}

}  // namespace

void run_native(Queue& queue, anyhal_native_fn callback, void* argument, const Operand* operands,
                uint32_t reads, uint32_t writes, uint32_t count) {
  Device& device = *queue.device;
  device.require_alive();
  Plan shape;  // only its operands matter to order() and stamp()
  shape.operand_count = count, shape.reads = reads, shape.writes = writes;
  if (!device.synchronous) {
    order(shape, operands, queue);
    hold_depth(queue);
  }
  // The lock cannot be held, since the callback may call on this queue: who comes later finds the
  // general path, and who came before is through when the lock was free once.
  struct Aside {
    explicit Aside(Queue& q) : queue(q) {
      queue.plain = false;
      queue.lock.lock(), queue.lock.unlock();
    }
    ~Aside() { queue.update_plain(); }
    Queue& queue;
  };
  Answered answered{callback, argument};
  ErrorRecord error;
  anyhal_status status;
  {
    const Aside aside(queue);
    status = enqueue_native(queue, answered, operands, shape, error);
    if (status == ANYHAL_STATUS_EXECUTION_FAILED && !answered.called && !device.synchronous) {
      queue.bury();  // an earlier call killed it: as for a call
      order(shape, operands, queue);
      status = enqueue_native(queue, answered, operands, shape, error);
    }
  }
  const std::string what = "native work on " + device.name;
  if (answered.called && answered.own != ANYHAL_STATUS_OK)
    throw Error(answered.own, what + ": the callback answered " + status_name(answered.own) +
                                  "; what it wrote is its own to know");
  if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record);
  if (status == ANYHAL_STATUS_EXECUTION_FAILED) queue.bury();
  check(status, error, what, *device.instance);
  uint64_t value;
  {
    std::lock_guard guard(queue.lock);
    value = queue.accept();
    if (device.synchronous) queue.completed.store(value);
  }
  if (!device.synchronous) stamp(shape, operands, queue, value);
}

// ---- receipts

std::atomic<bool> g_receipts{false};

namespace {
constexpr uint64_t kRing = 4096;
SpinLock g_ring_lock;
Receipt g_ring[kRing];
uint64_t g_written = 0;
}  // namespace

void set_receipts(bool on) { g_receipts.store(on); }

void record_receipt(const Plan& plan, int32_t status, uint64_t time_ns) {
  std::lock_guard guard(g_ring_lock);
  g_ring[g_written % kRing] = {g_written, plan.id, time_ns, plan.op, status};
  ++g_written;
}

void receipts_before_fork() { g_ring_lock.lock(); }
void receipts_after_fork() { g_ring_lock.unlock(); }

std::vector<Receipt> read_receipts() {
  std::lock_guard guard(g_ring_lock);
  std::vector<Receipt> out;
  for (uint64_t i = g_written > kRing ? g_written - kRing : 0; i < g_written; ++i)
    out.push_back(g_ring[i % kRing]);
  return out;
}

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
}

}  // namespace hal
