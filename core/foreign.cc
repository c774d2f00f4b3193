// Asks a backend's extension "anyhal.foreign"; without it a device shares only host memory.
// SPDX-License-Identifier: Apache-2.0
#include "core/foreign.hpp"

#include "core/records.hpp"

namespace hal {
namespace {

const anyhal_foreign* table_of(Device& device) {
  const void* found = nullptr;
  ErrorRecord error;
  if (device.table->extension(device.instance->reply.self, ANYHAL_FOREIGN_NAME,
                              ANYHAL_FOREIGN_VERSION, &found, error) != ANYHAL_STATUS_OK)
    return nullptr;
  const auto* table = static_cast<const anyhal_foreign*>(found);
  const bool whole = table && ANYHAL_HAS(table, anyhal_foreign, stream) && table->place &&
                     table->address && table->stream;
  return whole ? table : nullptr;
}

void stream_after(Queue& queue, uint64_t value, uint64_t stream) {
  if (queue.completed.load(std::memory_order_acquire) >= value) return;
  Device& device = *queue.device;
  const anyhal_foreign* table = foreign_of(device).table;
  queue.signal();  // never a wait before its signal
  if (!table || !ANYHAL_HAS(table, anyhal_foreign, stream_wait) || !table->stream_wait)
    return queue.wait(value);
  ErrorRecord error;
  anyhal_status status;
  {
    const std::lock_guard guard(queue.lock);  // the handle stays
    if (queue.completed.load(std::memory_order_relaxed) >= value) return;
    status = table->stream_wait(queue.handle, value, stream, error);
  }
  if (status == ANYHAL_STATUS_UNSUPPORTED) return queue.wait(value);
  if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record);
  if (status == ANYHAL_STATUS_EXECUTION_FAILED)
    return queue.bury();  // the caller says what is lost
  check(status, error, "ordering a stream after work on " + device.name, *device.instance);
}

}  // namespace

const ForeignPlace& foreign_of(Device& device) {
  std::call_once(device.foreign_asked, [&] {
    if (device.synchronous || device.lost) return;  // no queue that a stream could wait for
    const anyhal_foreign* table = table_of(device);
    ForeignPlace found{table, 0, 0};
    ErrorRecord error;
    if (table && table->place(device.handle, &found.type, &found.id, error) == ANYHAL_STATUS_OK)
      device.foreign = found;
  });
  return device.foreign;
}

uint64_t foreign_address(Device& device, const anyhal_ref& ref) {
  uint64_t address = 0;
  ErrorRecord error;
  check(foreign_of(device).table->address(device.handle, ref, &address, error), error,
        "asking for an address on " + device.name, *device.instance);
  return address;
}

uint64_t foreign_stream(Queue& queue) {
  uint64_t stream = 0;
  ErrorRecord error;
  Device& device = *queue.device;
  const std::lock_guard guard(queue.lock);
  check(foreign_of(device).table->stream(queue.handle, &stream, error), error,
        "asking for the stream of a queue of " + device.name, *device.instance);
  return stream;
}

void order_stream(Buffer& buffer, uint64_t stream) {
  Use written;
  std::vector<Use> read;
  {
    std::lock_guard guard(buffer.uses);
    written = buffer.written;
    read = buffer.read;
  }
  for (const Use& use : read) stream_after(*use.queue, use.value, stream);
  if (!written.queue) return;
  stream_after(*written.queue, written.value, stream);
  written.queue->require_good(written.value);
}

uint64_t import_block(Device& device, uint64_t address, uint64_t bytes) {
  const anyhal_memory_import import = {
      sizeof(import), 0, ANYHAL_IMPORT_ADDRESS, device.compute_kind, address, 0, bytes, {0, 0}};
  anyhal_memory_block block{};
  block.size = sizeof(block);
  ErrorRecord error;
  check(device.table->memory_import(device.handle, &import, &block, error), error,
        "importing memory into " + device.name, *device.instance);
  return block.memory;
}

void release_block(Device& device, uint64_t block) {
  ErrorRecord ignored;
  device.table->release(device.instance->reply.self, ANYHAL_OBJECT_MEMORY, block,
                        device.lost ? uint32_t(ANYHAL_RELEASE_ABANDON) : 0u, ignored);
}

}  // namespace hal
