// Buffers: allocation, copies to and from the host, copies between devices.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/api/call.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"
#include "core/dispatch.hpp"

namespace hal {
namespace {

constexpr uint64_t kPiece = 16 << 20;  // of a copy between devices

// A range of a buffer that was checked.
struct Range {
  Slot* slot;
  Buffer* buffer;
  Operand operand;
  uint64_t offset, bytes;
  bool whole() const { return offset == 0 && bytes == slot->bytes; }
};

Range range_of(const void* handle, uint64_t offset, uint64_t bytes, const char* argument) {
  Slot& slot = slot_of(handle, Kind::kBuffer, argument);
  if (offset > slot.bytes || bytes > slot.bytes - offset)
    invalid(std::string("bytes ") + std::to_string(offset) + " + " + std::to_string(bytes) +
                " leave the " + argument + " of " + std::to_string(slot.bytes) + " bytes on " +
                slot.device->name,
            HAL_REASON_BOUNDS);
  auto* buffer = static_cast<Buffer*>(slot.object);
  return {&slot, buffer, {data_of(*buffer) + offset, buffer}, offset, bytes};
}

void require_device(const ApiQueue& q, const Slot& slot, const char* argument) {
  if (slot.device != q.core->device)
    invalid(std::string("the ") + argument + " is on " + slot.device->name + ", the queue on " +
            q.device->name + "; pass a queue of the buffer's device");
}

void require_writable(const Range& r) {
  if (r.slot->flags.load(std::memory_order_relaxed) & OperandWord::kFrozen)
    invalid("writing a buffer on " + r.slot->device->name +
            ": it was frozen, so its bytes never change; allocate another");
  if (r.buffer->cell && !r.whole())
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "writing part of a buffer on " + r.slot->device->name +
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
    require_no_capture(q, "writing a buffer");
    std::memcpy(to.buffer->host + to.offset, source, to.bytes);
    return;
  }
  std::lock_guard guard(q.lockable());
  require_no_capture(q, "writing a buffer");
  // Stamped by the copy, so that the pool does not hand it out before that has run.
  const Staging staging(*q.core->device, to.bytes);
  std::memcpy(staging.buffer->host, source, to.bytes);
  copy_bytes(*q.core, to.operand, staging.operand(), to.bytes);
}

void read(ApiQueue& q, const Range& from, void* destination) {
  Device& device = *q.core->device;
  device.require_alive();
  if (from.bytes == 0) return;
  if (device.host_memory) {
    const auto lock = settle(q, *from.buffer, false);
    require_no_capture(q, "reading a buffer");
    std::memcpy(destination, from.buffer->host + from.offset, from.bytes);
    return;
  }
  const bool cell = from.buffer->cell;
  std::unique_lock lock(q.lockable());
  require_no_capture(q, "reading a buffer");
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

ApiDevice* api_device_of(const Slot& slot) {
  for (ApiDevice* d : ranked_devices())
    if (d->native() == slot.device) return d;
  invalid("a buffer's device is gone");
}

// Through the host, piece by piece; cells in one.
void copy_between(ApiQueue& q, const Range& to, const Range& from) {
  require_writable(to);
  Helper helper(from.slot->device, api_device_of(*from.slot));
  const uint64_t step = to.buffer->cell ? to.bytes : std::min(kPiece, to.bytes);
  std::vector<uint8_t> bytes(step);
  for (uint64_t at = 0; at < to.bytes; at += step) {
    const uint64_t n = std::min(step, to.bytes - at);
    const auto part = [&](const Range& r) {
      return Range{r.slot, r.buffer, {r.operand.data + at, r.buffer}, r.offset + at, n};
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
  if (to.buffer == from.buffer && to.offset < from.offset + from.bytes &&
      from.offset < to.offset + to.bytes)
    invalid("copying inside a buffer on " + q.device->name + ": the ranges overlap",
            HAL_REASON_ALIASING);
  if (q.core->device->host_memory) {
    {
      const auto lock = settle(q, *from.buffer, false);
    }
    const auto lock = settle(q, *to.buffer, true);
    require_no_capture(q, "copying a buffer");
    std::memcpy(to.buffer->host + to.offset, from.buffer->host + from.offset, to.bytes);
    return;
  }
  std::lock_guard guard(q.lockable());
  require_no_capture(q, "copying a buffer");
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
    ApiQueue& q = queue_of(queue);
    if (purpose < HAL_PURPOSE_ACTIVATIONS || purpose > HAL_PURPOSE_CACHE)
      invalid("allocating on " + q.device->name + ": purpose " + std::to_string(purpose) +
              " is none of hal_purpose");
    Device& device = *q.core->device;
    device.require_alive();
    std::unique_lock<std::recursive_mutex> guard(q.lockable(), std::defer_lock);
    if (!device.synchronous) guard.lock();  // whether a block is free is asked of its queues
    Buffer* b = device.memory.alloc(bytes, uint32_t(purpose), q.core);
    const anyhal_ref base = ref_of(device, {data_of(*b), b});
    try {
      *out_buffer = static_cast<hal_buffer*>(handles(Kind::kBuffer).add([&](Slot& slot) {
        slot.object = b, slot.device = &device, slot.base = base;
        slot.bytes = b->cell ? b->bytes : bytes;
        slot.flags.store(0, std::memory_order_relaxed);
      }));
    } catch (...) {
      release(b);
      throw;
    }
  });
}

hal_status hal_free(hal_buffer* buffer, hal_error* error) {
  if (!buffer) return HAL_STATUS_OK;
  return at_edge(error, [&] {
    auto* b = static_cast<Buffer*>(handles(Kind::kBuffer).remove(buffer));
    if (!b) slot_of(buffer, Kind::kBuffer, "buffer");
    release(b);
  });
}

hal_status hal_buffer_freeze(hal_buffer* buffer, hal_error* error) {
  return at_edge(error, [&] {
    Slot& slot = slot_of(buffer, Kind::kBuffer, "buffer");
    static_cast<Buffer*>(slot.object)->constant = true;
    slot.flags.store(OperandWord::kFrozen, std::memory_order_release);
  });
}

hal_status hal_buffer_address(hal_buffer* buffer, void** out_address, hal_error* error) {
  return at_edge(error, [&] {
    need(out_address, "out_address");
    const Slot& slot = slot_of(buffer, Kind::kBuffer, "buffer");
    if (!slot.device->host_memory)
      throw Error(ANYHAL_STATUS_UNSUPPORTED,
                  "the host cannot address memory of " + slot.device->name +
                      "; use hal_buffer_read and hal_buffer_write",
                  ANYHAL_REASON_MEMORY_KIND);
    *out_address = static_cast<Buffer*>(slot.object)->host;
  });
}

hal_status hal_buffer_write(hal_queue* queue, hal_buffer* buffer, uint64_t offset_bytes,
                            const void* source, uint64_t bytes, hal_error* error) {
  return at_edge(error, [&] {
    ApiQueue& q = queue_of(queue);
    const Range to = range_of(buffer, offset_bytes, bytes, "buffer");
    require_device(q, *to.slot, "buffer");
    if (bytes) need(source, "source");
    write(q, to, source);
  });
}

hal_status hal_buffer_read(hal_queue* queue, hal_buffer* buffer, uint64_t offset_bytes,
                           void* destination, uint64_t bytes, hal_error* error) {
  return at_edge(error, [&] {
    ApiQueue& q = queue_of(queue);
    const Range from = range_of(buffer, offset_bytes, bytes, "buffer");
    require_device(q, *from.slot, "buffer");
    if (bytes) need(destination, "destination");
    read(q, from, destination);
  });
}

hal_status hal_buffer_copy(hal_queue* queue, hal_buffer* destination,
                           uint64_t destination_offset_bytes, hal_buffer* source,
                           uint64_t source_offset_bytes, uint64_t bytes, hal_error* error) {
  return at_edge(error, [&] {
    ApiQueue& q = queue_of(queue);
    const Range to = range_of(destination, destination_offset_bytes, bytes, "destination");
    const Range from = range_of(source, source_offset_bytes, bytes, "source");
    require_device(q, *to.slot, "destination");
    q.core->device->require_alive();
    if (!bytes) return;
    if (from.slot->device == to.slot->device)
      copy_within(q, to, from);
    else
      copy_between(q, to, from);
  });
}

}  // extern "C"
