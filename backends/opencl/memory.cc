// Blocks of device memory and of staging memory, and moving bytes between them.
// SPDX-License-Identifier: Apache-2.0
#include "objects.h"

namespace hal::opencl {

namespace {

// The block behind a ref whose first `bytes` exist.
Block& block_of(const anyhal_ref& ref, uint64_t bytes) {
  Block* block = reinterpret_cast<Block*>(ref.memory);
  if (block == nullptr || ref.offset > block->bytes || bytes > block->bytes - ref.offset)
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "%llu bytes at offset %llu leave their block of %llu; correct the ref",
                  static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(ref.offset),
                  static_cast<unsigned long long>(block != nullptr ? block->bytes : 0));
  return *block;
}

void require_copyable(const Queue& queue, const anyhal_copy_region& region) {
  const Block& to = block_of(region.destination, region.bytes);
  const Block& from = block_of(region.source, region.bytes);
  if (to.device == queue.device && from.device == queue.device && !(to.host && from.host)) return;
  throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                "a queue copies to, from or within its own device's memory; go through that");
}

// The bytes of a mapped block are reached by address: it is never an argument of a command.
void copy_region(Queue& queue, const anyhal_copy_region& region) {
  const Api& api = queue.device->self->api;
  const Block& to = *reinterpret_cast<Block*>(region.destination.memory);
  const Block& from = *reinterpret_cast<Block*>(region.source.memory);
  if (region.bytes == 0) return;
  if (to.host != nullptr) {
    enqueue(queue, "clEnqueueReadBuffer", 0, [&](cl_event* event) {
      return api.EnqueueReadBuffer(queue.handle, from.memory, 0, region.source.offset, region.bytes,
                                   to.host + region.destination.offset, 0, nullptr, event);
    });
  } else if (from.host != nullptr) {
    enqueue(queue, "clEnqueueWriteBuffer", 0, [&](cl_event* event) {
      return api.EnqueueWriteBuffer(queue.handle, to.memory, 0, region.destination.offset,
                                    region.bytes, from.host + region.source.offset, 0, nullptr,
                                    event);
    });
  } else {
    enqueue(queue, "clEnqueueCopyBuffer", 0, [&](cl_event* event) {
      return api.EnqueueCopyBuffer(queue.handle, from.memory, to.memory, region.source.offset,
                                   region.destination.offset, region.bytes, 0, nullptr, event);
    });
  }
}

// Drivers take memory at first use, so that a claim beyond the heap would fail much later.
void claim(Device& device, uint64_t bytes) {
  const uint64_t heap = device.facts->global_bytes;
  uint64_t used = device.used_bytes.load();
  do {
    if (bytes > heap || used > heap - bytes)
      throw Failure(ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                    "%llu of its %llu bytes are taken, %llu more do not fit; free arrays",
                    static_cast<unsigned long long>(used), static_cast<unsigned long long>(heap),
                    static_cast<unsigned long long>(bytes));
  } while (!device.used_bytes.compare_exchange_weak(used, used + bytes));
}

struct Claim {
  Device& device;
  uint64_t bytes;
  bool kept = false;
  ~Claim() {
    if (!kept) device.used_bytes -= bytes;
  }
};

void make_block(Device& device, const anyhal_memory_request& request, anyhal_memory_block* out) {
  const Api& api = device.self->api;
  const bool staging = request.kind == kStagingKind;
  claim(device, request.bytes);
  Claim taken{device, request.bytes};
  static std::atomic<uint64_t> serials{0};
  auto block = std::make_unique<Block>(Block{&device, nullptr, request.bytes, nullptr, ++serials});
  cl_int code = kSuccess;
  block->memory = api.CreateBuffer(device.context, kMemReadWrite | (staging ? kMemAllocHostPtr : 0),
                                   request.bytes, nullptr, &code);
  check(device, code == kInvalidBufferSize ? kMemObjectAllocationFailure : code, "clCreateBuffer");
  if (staging) {
    void* mapped = api.EnqueueMapBuffer(device.mapper, block->memory, 1, kMapRead | kMapWrite, 0,
                                        request.bytes, 0, nullptr, nullptr, &code);
    if (code != kSuccess) api.ReleaseMemObject(block->memory);
    check(device, code, "clEnqueueMapBuffer");
    block->host = static_cast<char*>(mapped);
  }
  anyhal_memory_block result = {};
  result.memory = reinterpret_cast<uintptr_t>(block.get());
  result.bytes = request.bytes;
  result.host_address = reinterpret_cast<uintptr_t>(block->host);
  sdk::write_record(out, result);
  taken.kept = true;
  ++device.blocks;
  block.release();
}

}  // namespace

namespace slots {

anyhal_status memory_alloc(anyhal_device* device, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_present(*device);
    if (request->kind > kStagingKind || request->flags != 0 || request->bytes == 0)
      throw Failure(
          ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_MEMORY_KIND,
          "memory kind %u with flags %u and %llu bytes is none of this device's; use kind "
          "0 or 1 without flags",
          request->kind, request->flags, static_cast<unsigned long long>(request->bytes));
    if (request->bytes > device->facts->block_bytes)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_SHAPE_LIMIT,
                    "%llu bytes are above the %llu of one block; split the tensor",
                    static_cast<unsigned long long>(request->bytes),
                    static_cast<unsigned long long>(device->facts->block_bytes));
    make_block(*device, *request, out_block);
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status queue_copy(anyhal_queue* handle, const anyhal_copy_region* regions,
                         uint32_t region_count, anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  return sdk::guard(error, [&] {
    require_live(queue);
    for (uint32_t i = 0; i < region_count; ++i) require_copyable(queue, regions[i]);
    order_after_all(queue);
    for (uint32_t i = 0; i < region_count; ++i) copy_region(queue, regions[i]);
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status queue_fill(anyhal_queue* handle, anyhal_ref ref, uint64_t bytes, const void* pattern,
                         uint32_t pattern_bytes, anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  return sdk::guard(error, [&] {
    require_live(queue);
    Block& block = block_of(ref, bytes);
    if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "a pattern of %u bytes is none of 1, 2 and 4; correct it", pattern_bytes);
    if (block.host != nullptr || block.device != queue.device || ref.offset % pattern_bytes != 0 ||
        bytes % pattern_bytes != 0)
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ALIGNMENT,
                    "clEnqueueFillBuffer fills device memory in whole patterns; use the op fill");
    if (bytes == 0) return ANYHAL_STATUS_OK;
    order_after_all(queue);
    enqueue(queue, "clEnqueueFillBuffer", 0, [&](cl_event* event) {
      return queue.device->self->api.EnqueueFillBuffer(
          queue.handle, block.memory, pattern, pattern_bytes, ref.offset, bytes, 0, nullptr, event);
    });
    return ANYHAL_STATUS_OK;
  });
}

void release_block(Block* block, bool abandon) {
  Device& device = *block->device;
  const Api& api = device.self->api;
  if (!abandon) {
    if (block->host != nullptr)
      api.EnqueueUnmapMemObject(device.mapper, block->memory, block->host, 0, nullptr, nullptr);
    gave_back(*device.self, api.ReleaseMemObject(block->memory), "clReleaseMemObject");
  }
  device.used_bytes -= block->bytes;
  --device.blocks;
  delete block;
}

}  // namespace slots
}  // namespace hal::opencl
