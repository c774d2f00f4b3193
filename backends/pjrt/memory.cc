// Cells, staging blocks, and the copies between them.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "objects.h"

namespace hal::pjrt {
namespace {

using sdk::Failure;

// The source is staging memory, which the core keeps until the flight has landed.
void copy_in(anyhal_queue& queue, Block& to, const void* from) {
  const int64_t dims[1] = {static_cast<int64_t>(to.bytes)};
  api::Args<api::ClientBufferFromHostBuffer> args = queue.plugin->from_host(from, dims);
  args->semantics = api::kImmutableUntilTransferCompletes;
  std::unique_lock cells(queue.plugin->cells());
  queue.plugin->must("copying to the device", api::kClientBufferFromHostBuffer, args);
  count(kLiveBuffers);
  Flight flight;
  flight.event = args->done_with_host_buffer;
  flight.drop(to.buffer);
  to.buffer = args->buffer;
  to.lost = false;
  cells.unlock();
  flight.name("copying to the device");
  take_off(queue, std::move(flight));
}

void copy_out(anyhal_queue& queue, Block& from, void* to) {
  api::Args<api::BufferToHostBuffer> args;
  std::unique_lock cells(queue.plugin->cells());
  args->source = filled(from);
  args->destination = to;
  args->destination_bytes = from.bytes;
  queue.plugin->must("copying from the device", api::kBufferToHostBuffer, args);
  cells.unlock();
  Flight flight;
  flight.event = args->event;
  flight.name("copying from the device");
  take_off(queue, std::move(flight));
}

void check_region(const anyhal_queue& queue, const anyhal_copy_region& region) {
  const Block& to = *block_of(region.destination);
  const Block& from = *block_of(region.source);
  const Block& cell = to.host == nullptr ? to : from;
  const anyhal_ref& place = to.host == nullptr ? region.destination : region.source;
  const Block& staging = to.host == nullptr ? from : to;
  const anyhal_ref& other = to.host == nullptr ? region.source : region.destination;
  if (cell.host != nullptr || staging.host == nullptr || cell.plugin != queue.plugin)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                  "copies run between a cell of this device and host memory; go through the host");
  if (place.offset != 0 || region.bytes != cell.bytes)
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "%llu bytes at %llu are not the whole cell of %llu; copy all of it",
                  static_cast<unsigned long long>(region.bytes),
                  static_cast<unsigned long long>(place.offset),
                  static_cast<unsigned long long>(cell.bytes));
  if (other.offset > staging.bytes || region.bytes > staging.bytes - other.offset)
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "the copy leaves its staging block of %llu bytes; copy less",
                  static_cast<unsigned long long>(staging.bytes));
}

}  // namespace

api::Buffer* filled(Block& cell) {
  if (cell.lost)
    throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0,
                  "what it reads was lost in a call that failed while updating it in place; write "
                  "it anew");
  std::atomic_ref<api::Buffer*> buffer(cell.buffer);
  if (api::Buffer* there = buffer.load(std::memory_order_acquire)) return there;
  // Two queues may read it at once.
  static std::mutex* filling = new std::mutex;
  std::lock_guard lock(*filling);
  if (cell.buffer != nullptr) return cell.buffer;
  void* zeros = std::calloc(1, cell.bytes);
  if (zeros == nullptr) throw std::bad_alloc();
  try {
    buffer.store(cell.plugin->buffer_of(zeros, cell.bytes), std::memory_order_release);
  } catch (...) {
    std::free(zeros);
    throw;
  }
  std::free(zeros);
  return cell.buffer;
}

namespace slots {

anyhal_status memory_alloc(anyhal_device* device, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(device);
    if (request->kind > 1 || request->flags != 0)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_MEMORY_KIND,
                    "memory kind %u with flags %u is unknown; use kind 0 or 1", request->kind,
                    request->flags);
    // Plugins end the process over a size whose arithmetic overflows.
    if (request->bytes == 0 || request->bytes > uint64_t{1} << 47)
      throw Failure(ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_SHAPE_LIMIT,
                    "a block has 1 to 2^47 bytes, not %llu; split the tensor",
                    static_cast<unsigned long long>(request->bytes));
    auto block = std::make_unique<Block>();
    block->plugin = device->plugin;
    block->bytes = request->bytes;
    if (request->kind == 1) {
      const uint64_t alignment = request->alignment > 64 ? request->alignment : 64;
      block->host =
          std::aligned_alloc(alignment, (request->bytes + alignment - 1) / alignment * alignment);
      if (block->host == nullptr) throw std::bad_alloc();
    }
    anyhal_memory_block made = {};
    made.memory = reinterpret_cast<uint64_t>(block.get());
    made.bytes = block->bytes;
    made.host_address = reinterpret_cast<uint64_t>(block->host);
    sdk::write_record(out_block, made);
    block.release();
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status queue_copy(anyhal_queue* queue, const anyhal_copy_region* regions,
                         uint32_t region_count, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(queue);
    for (uint32_t i = 0; i < region_count; ++i)
      if (regions[i].bytes != 0) check_region(*queue, regions[i]);
    for (uint32_t i = 0; i < region_count; ++i) {
      const anyhal_copy_region& region = regions[i];
      if (region.bytes == 0) continue;
      Block &to = *block_of(region.destination), &from = *block_of(region.source);
      if (to.host == nullptr)
        copy_in(*queue, to, static_cast<char*>(from.host) + region.source.offset);
      else
        copy_out(*queue, from, static_cast<char*>(to.host) + region.destination.offset);
    }
    return ANYHAL_STATUS_OK;
  });
}

}  // namespace slots
}  // namespace hal::pjrt
