// Buffers: allocation, copies to and from the host, copies between devices.
// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/api/call.hpp"
#include "core/api/fork.hpp"
#include "core/api/imports.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"
#include "core/dispatch.hpp"

namespace hal {
namespace {

constexpr uint64_t kPiece = 16 << 20;  // of a copy between devices

// A range of a buffer that was checked; the buffer is held by the call.
struct Range {
  Buffer* buffer;
  uint64_t room;  // bytes that were asked for
  bool frozen;
  Operand operand;
  uint64_t offset, bytes;
  const Device& device() const { return *buffer->device; }
  bool whole() const { return offset == 0 && bytes == room; }
};

struct HeldRange : Range {
  Held<Buffer> held;
};

HeldRange range_of(const void* handle, uint64_t offset, uint64_t bytes, const char* argument) {
  uint64_t room = 0, flags = 0;
  Held<Buffer> held = hold_of<Buffer>(handle, Kind::kBuffer, argument, [&](const Slot& slot) {
    room = slot.bytes, flags = slot.flags;
  });
  if (offset > room || bytes > room - offset)
    invalid(std::string("bytes ") + std::to_string(offset) + " + " + std::to_string(bytes) +
                " leave the " + argument + " of " + std::to_string(room) + " bytes on " +
                held->device->name,
            HAL_REASON_BOUNDS);
  Buffer* b = held.get();
  const Operand operand{data_of(*b) + offset, b};
  return {{b, room, (flags & OperandWord::kFrozen) != 0, operand, offset, bytes}, std::move(held)};
}

// Buffers whose handle ended while calls were running that may have found it before: they go back
// once each of those queues was found unlocked.
class Ended {
 public:
  void add(const void* handle, Buffer* buffer) {
    One one{handle, buffer, buffer->device->busy_queues()};
    if (one.busy.empty()) return finish(one);
    std::lock_guard guard(mutex_);
    waiting_.push_back(std::move(one));
    any_.store(true, std::memory_order_release);
  }
  std::mutex& fork_lock() { return mutex_; }
  // Gives back what it can; with `wait` all that waits now.
  void collect(bool wait) {
    while (any_.load(std::memory_order_acquire)) {
      std::vector<One> ready;
      {
        std::lock_guard guard(mutex_);
        std::erase_if(waiting_, [&](One& one) {
          std::erase_if(one.busy, [](Queue* q) { return !q->lock.is_locked(); });
          if (one.busy.empty()) ready.push_back(std::move(one));
          return one.busy.empty();
        });
        any_.store(!waiting_.empty(), std::memory_order_relaxed);
      }
      for (const One& one : ready) finish(one);
      if (!wait) return;
      sched_yield();
    }
  }

 private:
  struct One {
    const void* handle;
    Buffer* buffer;
    std::vector<Queue*> busy;
  };
  static void finish(const One& one) {
    handles(Kind::kBuffer).recycle(one.handle);
    release(one.buffer);
  }
  std::mutex mutex_;
  std::vector<One> waiting_;
  std::atomic<bool> any_{false};
};
Ended& ended() {
  static auto* e = new Ended;
  return *e;
}

}  // namespace

void buffers_before_fork() {
  ended().fork_lock().lock();
  imports().fork_lock().lock();
}
void buffers_after_fork() {
  imports().fork_lock().unlock();
  ended().fork_lock().unlock();
}

namespace {

// The buffer of a call to hal_alloc; what waits for other calls is memory too.
Buffer* allocate(ApiQueue& q, uint64_t bytes, int32_t purpose) {
  ended().collect(false);
  Device& device = *q.core->device;
  std::unique_lock<std::recursive_mutex> guard(q.lockable(), std::defer_lock);
  if (!device.synchronous) guard.lock();  // whether a block is free is asked of its queues
  try {
    return device.memory.alloc(bytes, uint32_t(purpose), q.core);
  } catch (const Error& e) {
    if (e.status != ANYHAL_STATUS_OUT_OF_MEMORY) throw;
  }
  if (guard) guard.unlock();
  ended().collect(true);
  if (!device.synchronous) guard.lock();
  return device.memory.alloc(bytes, uint32_t(purpose), q.core);
}

// A handle for a buffer; takes over its reference. `taken` runs when nothing can fail any more.
template <class Taken>
hal_buffer* publish(Buffer* b, uint64_t bytes, const Taken& taken) {
  Device& device = *b->device;
  const anyhal_ref base = ref_of(device, {data_of(*b), b});
  try {
    return static_cast<hal_buffer*>(handles(Kind::kBuffer).add([&](Slot& slot) {
      slot.object = b, slot.device = &device;
      slot.memory = base.memory, slot.offset = base.offset;
      slot.bytes = bytes;
      slot.flags = 0;
      taken();
    }));
  } catch (...) {
    release(b);
    throw;
  }
}

// Memory of the application's, and how it learns that it has it back.
struct Foreign {
  Foreign(Device& d, uint64_t address, uint64_t size) : device(&d), begin(address), bytes(size) {
    imports().add(d, address, size);
  }
  Foreign(const Foreign&) = delete;
  ~Foreign() {
    ErrorRecord ignored;
    if (block)
      device->table->release(device->instance->reply.self, ANYHAL_OBJECT_MEMORY, block, 0, ignored);
    imports().remove(*device, begin, bytes);
  }

  Device* device;
  uint64_t begin, bytes;
  uint64_t block = 0;  // the backend's view of it, or 0
  void (*released)(void*) = nullptr;
  void* argument = nullptr;

  static void give_back(void* owner) {
    std::unique_ptr<Foreign> f(static_cast<Foreign*>(owner));
    const auto released = f->released;
    void* const argument = f->argument;
    f.reset();  // so that `released` may import the memory again
    if (released) released(argument);
  }
};

// Zero copy or a refusal: a copy is the caller's to ask for.
Buffer* import_host(Device& device, void* address, uint64_t bytes) {
  const std::string what = "importing " + std::to_string(bytes) + " bytes on " + device.name;
  const char* const advice = "; use hal_alloc and hal_buffer_write";
  const anyhal_memory_kind& kind = device.kinds[device.compute_kind];
  const auto where = reinterpret_cast<uint64_t>(address);
  if (device.cells)
    throw Error(ANYHAL_STATUS_UNSUPPORTED, what + ": its memory holds whole tensors" + advice,
                ANYHAL_REASON_MEMORY_KIND);
  if (const uint32_t least = std::min<uint32_t>(kind.offset_alignment, 64);
      least && where % least != 0)
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                what + ": the address is not a multiple of " + std::to_string(least) + advice,
                ANYHAL_REASON_ALIGNMENT);
  ended().collect(false);
  if (imports().overlap(device, where, bytes)) {  // of those that are no longer used some may wait
    ended().collect(true);
    if (!device.synchronous) {
      std::lock_guard guard(device.order);
      device.memory.collect_foreign();
    }
  }
  auto owner = std::make_unique<Foreign>(device, where, bytes);
  auto b = std::make_unique<Buffer>();
  b->device = &device, b->bytes = bytes, b->host = static_cast<uint8_t*>(address);
  b->purpose = ANYHAL_PURPOSE_ACTIVATIONS;
  if (device.address_block) {
    b->memory = device.address_block, b->offset = where;
  } else {
    const anyhal_memory_import import = {
        sizeof(import), 0,     ANYHAL_IMPORT_HOST_POINTER, device.compute_kind, where, 0,
        bytes,          {0, 0}};
    anyhal_memory_block block{};
    block.size = sizeof(block);
    ErrorRecord error;
    check(device.table->memory_import(device.handle, &import, &block, error), error, what,
          *device.instance);
    b->memory = owner->block = block.memory;
    if (!device.host_memory) b->host = nullptr;
  }
  b->deleter = Foreign::give_back, b->owner = owner.release();
  return b.release();
}

void require_device(const ApiQueue& q, const Range& r, const char* argument) {
  if (&r.device() != q.core->device)
    invalid(std::string("the ") + argument + " is on " + r.device().name + ", the queue on " +
            q.device->name + "; pass a queue of the buffer's device");
}

void require_writable(const Range& r) {
  if (r.frozen)
    invalid("writing a buffer on " + r.device().name +
            ": it was frozen, so its bytes never change; allocate another");
  if (r.buffer->cell && !r.whole())
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "writing part of a buffer on " + r.device().name +
                    ": its memory holds whole tensors; write all of its bytes",
                ANYHAL_REASON_MEMORY_KIND);
}

struct Staging {
  Staging(Device& d, uint64_t bytes)
      : buffer(d.memory.alloc(bytes, ANYHAL_PURPOSE_STAGING, d.queue, true)) {}
  ~Staging() { release(buffer); }
  Operand operand() const { return {data_of(*buffer), buffer}; }
  Buffer* buffer;
};

void write(ApiQueue& q, const Range& to, const void* source) {
  require_writable(to);
  q.core->device->require_alive();
  if (to.bytes == 0) return;
  if (q.core->device->host_memory) {
    const auto lock = settle(q, *to.buffer, true);
    require_no_capture(q, "writing a buffer", to.buffer);
    std::memcpy(to.buffer->host + to.offset, source, to.bytes);
    return;
  }
  const auto lock = q.enter();
  require_no_capture(q, "writing a buffer", to.buffer);
  // Stamped by the copy, so that the pool does not hand it out before that has run.
  const Staging staging(*q.core->device, to.bytes);
  std::memcpy(staging.buffer->host, source, to.bytes);
  copy_bytes(*q.core, to.operand, staging.operand(), to.bytes);
}

void read(ApiQueue& q, const Range& from, void* destination) {
  Device& device = *q.core->device;
  device.require_alive();
  // A call that had nothing to write may have failed all the same.
  if (device.host_memory || from.bytes == 0) {
    const auto lock = settle(q, *from.buffer, false);
    require_no_capture(q, "reading a buffer", from.buffer);
    if (from.bytes) std::memcpy(destination, from.buffer->host + from.offset, from.bytes);
    return;
  }
  const bool cell = from.buffer->cell;
  auto lock = q.enter();
  require_no_capture(q, "reading a buffer", from.buffer);
  const Staging staging(device, cell ? from.buffer->bytes : from.bytes);
  const Operand source = cell ? Operand{data_of(*from.buffer), from.buffer} : from.operand;
  copy_bytes(*q.core, staging.operand(), source, cell ? from.buffer->bytes : from.bytes);
  const uint64_t value = q.core->submitted;
  lock.unlock();
  wait_in_pieces(*q.core, value, HAL_NO_LIMIT);
  lock.lock();
  q.core->require_good(value);
  std::memcpy(destination, staging.buffer->host + (cell ? from.offset : 0), from.bytes);
}

// A queue for the waits on the source's side of a copy between devices.
struct Helper {
  explicit Helper(Device* d, ApiDevice* api) : queue(api, d->queue) {}
  ApiQueue queue;
};

ApiDevice* api_device_of(const Buffer& buffer) {
  for (ApiDevice* d : ranked_devices())
    if (d->native() == buffer.device) return d;
  invalid("a buffer's device is gone");
}

// By address where the host has one: imported memory may be another buffer's as well.
void require_apart(const Range& to, const Range& from) {
  const bool host = to.buffer->host && from.buffer->host;
  if (!host && to.buffer != from.buffer) return;
  const auto begin = [&](const Range& r) {
    return r.offset + (host ? reinterpret_cast<uint64_t>(r.buffer->host) : 0);
  };
  if (begin(to) < begin(from) + from.bytes && begin(from) < begin(to) + to.bytes)
    invalid("copying to a buffer on " + to.device().name +
                ": the two ranges overlap; copy through other memory",
            HAL_REASON_ALIASING);
}

// Through the host, piece by piece; cells in one.
void copy_between(ApiQueue& q, const Range& to, const Range& from) {
  require_writable(to);
  Helper helper(from.buffer->device, api_device_of(*from.buffer));
  const uint64_t step = to.buffer->cell ? to.bytes : std::min(kPiece, to.bytes);
  std::vector<uint8_t> bytes(step);
  for (uint64_t at = 0; at < to.bytes; at += step) {
    const uint64_t n = std::min(step, to.bytes - at);
    const auto part = [&](const Range& r) {
      return Range{r.buffer, r.room, r.frozen, {r.operand.data + at, r.buffer}, r.offset + at, n};
    };
    read(helper.queue, part(from), bytes.data());
    write(q, part(to), bytes.data());
  }
}

void copy_within(ApiQueue& q, const Range& to, const Range& from) {
  require_writable(to);
  if (from.buffer->cell && !from.whole())
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "copying part of a buffer on " + q.device->name +
                    ": its memory holds whole tensors; copy all of its bytes",
                ANYHAL_REASON_MEMORY_KIND);
  if (q.core->device->host_memory) {
    {
      const auto lock = settle(q, *from.buffer, false);
    }
    const auto lock = settle(q, *to.buffer, true);
    require_no_capture(q, "copying a buffer", from.buffer);
    require_no_capture(q, "copying to a buffer", to.buffer);
    std::memcpy(to.buffer->host + to.offset, from.buffer->host + from.offset, to.bytes);
    return;
  }
  const auto lock = q.enter();
  require_no_capture(q, "copying a buffer", from.buffer);
  require_no_capture(q, "copying to a buffer", to.buffer);
  copy_bytes(*q.core, to.operand, from.operand, to.bytes);
}

}  // namespace
}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_alloc(hal_queue* queue, uint64_t bytes, int32_t purpose, hal_buffer** out_buffer,
                     hal_error* error) {
  return at_edge(error, [&] {
    need(out_buffer, "out_buffer");
    const Held<ApiQueue> held = queue_of(queue);
    ApiQueue& q = *held;
    if (purpose < HAL_PURPOSE_ACTIVATIONS || purpose > HAL_PURPOSE_CACHE)
      invalid("allocating on " + q.device->name + ": purpose " + std::to_string(purpose) +
              " is none of hal_purpose");
    Device& device = *q.core->device;
    device.require_alive();
    Buffer* b = allocate(q, bytes, purpose);
    *out_buffer = publish(b, b->cell ? b->bytes : bytes, [] {});
  });
}

hal_status hal_buffer_import(hal_queue* queue, void* address, uint64_t bytes,
                             void (*released)(void* argument), void* argument,
                             hal_buffer** out_buffer, hal_error* error) {
  return at_edge(error, [&] {
    need(out_buffer, "out_buffer");
    need(address, "address");
    const Held<ApiQueue> q = queue_of(queue);
    Device& device = *q->core->device;
    device.require_alive();
    Buffer* b = import_host(device, address, bytes);
    auto* const owner = static_cast<Foreign*>(b->owner);
    // A call that fails has taken nothing, so it gives nothing back.
    *out_buffer =
        publish(b, bytes, [&] { owner->released = released, owner->argument = argument; });
  });
}

hal_status hal_free(hal_buffer* buffer, hal_error* error) {
  if (!buffer) return HAL_STATUS_OK;
  return at_edge(error, [&] {
    auto* b = static_cast<Buffer*>(handles(Kind::kBuffer).end(buffer));
    if (!b) slot_of(buffer, Kind::kBuffer, "buffer");
    ended().add(buffer, b);
  });
}

hal_status hal_buffer_freeze(hal_buffer* buffer, hal_error* error) {
  return at_edge(error, [&] {
    const Held<Buffer> held = hold_of<Buffer>(buffer, Kind::kBuffer, "buffer", [](Slot& slot) {
      auto& b = *slot.as<Buffer>();
      if (b.captured) return;
      b.constant = true;
      slot.flags = OperandWord::kFrozen;
    });
    if (!held->constant)
      invalid("freezing a buffer on " + held->device->name +
                  ": a graph is being captured that writes it; end it and launch it first",
              HAL_REASON_CAPTURE);
  });
}

hal_status hal_buffer_address(hal_buffer* buffer, void** out_address, hal_error* error) {
  return at_edge(error, [&] {
    need(out_address, "out_address");
    const Held<Buffer> b = hold_of<Buffer>(buffer, Kind::kBuffer, "buffer");
    if (!b->device->host_memory)
      throw Error(ANYHAL_STATUS_UNSUPPORTED,
                  "the host cannot address memory of " + b->device->name +
                      "; use hal_buffer_read and hal_buffer_write",
                  ANYHAL_REASON_MEMORY_KIND);
    *out_address = b->host;
  });
}

hal_status hal_buffer_write(hal_queue* queue, hal_buffer* buffer, uint64_t offset_bytes,
                            const void* source, uint64_t bytes, hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiQueue> held = queue_of(queue);
    ApiQueue& q = *held;
    const HeldRange to = range_of(buffer, offset_bytes, bytes, "buffer");
    require_device(q, to, "buffer");
    if (bytes) need(source, "source");
    write(q, to, source);
  });
}

hal_status hal_buffer_read(hal_queue* queue, hal_buffer* buffer, uint64_t offset_bytes,
                           void* destination, uint64_t bytes, hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiQueue> held = queue_of(queue);
    ApiQueue& q = *held;
    const HeldRange from = range_of(buffer, offset_bytes, bytes, "buffer");
    require_device(q, from, "buffer");
    if (bytes) need(destination, "destination");
    read(q, from, destination);
  });
}

hal_status hal_buffer_copy(hal_queue* queue, hal_buffer* destination,
                           uint64_t destination_offset_bytes, hal_buffer* source,
                           uint64_t source_offset_bytes, uint64_t bytes, hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiQueue> held = queue_of(queue);
    ApiQueue& q = *held;
    const HeldRange to = range_of(destination, destination_offset_bytes, bytes, "destination");
    const HeldRange from = range_of(source, source_offset_bytes, bytes, "source");
    require_device(q, to, "destination");
    q.core->device->require_alive();
    if (!bytes) return;
    require_apart(to, from);
    if (&from.device() == &to.device())
      copy_within(q, to, from);
    else
      copy_between(q, to, from);
  });
}

}  // extern "C"
