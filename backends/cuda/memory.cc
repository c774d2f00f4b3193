// Blocks: device memory by growth or by allocation, pinned host memory, foreign memory; copies.
// SPDX-License-Identifier: Apache-2.0
#include "device.h"

namespace hal::cuda {
namespace {

CUmemAllocationProp property_of(const Device& device) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
  return prop;
}

// Pages that are mapped into a range of their own: given back one by one, without the driver
// waiting for the whole device as cuMemFree may.
std::unique_ptr<Block> grow(Device& device, uint64_t bytes) {
  const Driver& driver = device.driver();
  const uint64_t size = (bytes + device.granularity - 1) / device.granularity * device.granularity;
  auto block = std::make_unique<Block>(Block{&device, 0, size, Origin::kGrown, 0});
  HAL_CUDA(device, cuMemAddressReserve, &block->base, size, 0, 0, 0);
  const CUmemAllocationProp prop = property_of(device);
  CUresult code = driver.cuMemCreate(&block->handle, size, &prop, 0);
  const char* what = "cuMemCreate";
  if (code == CUDA_SUCCESS) {
    code = driver.cuMemMap(block->base, size, 0, block->handle, 0), what = "cuMemMap";
    if (code == CUDA_SUCCESS) {
      const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      code = driver.cuMemSetAccess(block->base, size, &access, 1), what = "cuMemSetAccess";
      if (code != CUDA_SUCCESS) driver.cuMemUnmap(block->base, size);
    }
    if (code != CUDA_SUCCESS) driver.cuMemRelease(block->handle);
  }
  if (code != CUDA_SUCCESS) driver.cuMemAddressFree(block->base, size);
  check(device, code, what);
  return block;
}

std::unique_ptr<Block> allocate(Device& device, const anyhal_memory_request& request) {
  if (request.kind == 1) {
    void* pointer = nullptr;
    HAL_CUDA(device, cuMemHostAlloc, &pointer, request.bytes, CU_MEMHOSTALLOC_PORTABLE);
    return std::make_unique<Block>(
        Block{&device, reinterpret_cast<uint64_t>(pointer), request.bytes, Origin::kPinned, 0});
  }
  if (device.growth && request.bytes >= device.granularity) return grow(device, request.bytes);
  auto block = std::make_unique<Block>(Block{&device, 0, request.bytes, Origin::kAllocated, 0});
  HAL_CUDA(device, cuMemAlloc_v2, &block->base, request.bytes);
  return block;
}

void hand_out(std::unique_ptr<Block> block, anyhal_memory_block* out) {
  anyhal_memory_block made = {};
  made.memory = reinterpret_cast<uint64_t>(block.get());
  made.bytes = block->bytes;
  made.device_address = block->base;
  const bool host = block->origin == Origin::kPinned || block->origin == Origin::kRegistered;
  made.host_address = host ? block->base : 0;
  sdk::write_record(out, made);
  block.release();
}

}  // namespace

// Whatever fails here fails on the way out: the first code is told, the rest is done all the same.
void end_block(Block* block, bool abandon) {
  std::unique_ptr<Block> owned(block);
  if (abandon) return;
  Device& device = *block->device;
  const Driver& driver = device.driver();
  Current current(device);
  CUresult code = CUDA_SUCCESS;
  const auto keep = [&](CUresult next) { code = code == CUDA_SUCCESS ? next : code; };
  switch (block->origin) {
    case Origin::kAllocated:
      keep(driver.cuMemFree_v2(block->base));
      break;
    case Origin::kGrown:
      keep(driver.cuMemUnmap(block->base, block->bytes));
      if (code == CUDA_SUCCESS) keep(driver.cuMemAddressFree(block->base, block->bytes));
      keep(driver.cuMemRelease(block->handle));
      break;
    case Origin::kPinned:
      keep(driver.cuMemFreeHost(reinterpret_cast<void*>(block->base)));
      break;
    case Origin::kRegistered:
      keep(driver.cuMemHostUnregister(reinterpret_cast<void*>(block->base)));
      break;
    case Origin::kForeign:
      break;
  }
  check(device, code, "giving memory back");
}

// Between two devices the driver copies by itself, over a link where there is one.
void copy(Device& device, CUstream stream, const anyhal_ref& to, const anyhal_ref& from,
          uint64_t bytes) {
  if (bytes == 0) return;
  const auto* target = reinterpret_cast<const Block*>(to.memory);
  const auto* source = reinterpret_cast<const Block*>(from.memory);
  const bool host = target->origin == Origin::kPinned || source->origin == Origin::kPinned ||
                    target->origin == Origin::kRegistered || source->origin == Origin::kRegistered;
  if (target->device == source->device || host) {
    HAL_CUDA(device, cuMemcpyAsync, address_of(to), address_of(from), bytes, stream);
  } else {
    HAL_CUDA(device, cuMemcpyPeerAsync, address_of(to), target->device->context, address_of(from),
             source->device->context, bytes, stream);
  }
}

void fill(Device& device, CUstream stream, const anyhal_ref& to, uint64_t bytes,
          const void* pattern, uint32_t pattern_bytes) {
  const CUdeviceptr at = address_of(to);
  if ((pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4) || at % pattern_bytes != 0)
    throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ALIGNMENT, 0,
                "a fill repeats 1, 2 or 4 bytes from an address that they divide; use the op fill");
  if (bytes == 0) return;
  uint32_t value = 0;
  std::memcpy(&value, pattern, pattern_bytes);
  if (pattern_bytes == 1) {
    HAL_CUDA(device, cuMemsetD8Async, at, static_cast<unsigned char>(value), bytes, stream);
  } else if (pattern_bytes == 2) {
    HAL_CUDA(device, cuMemsetD16Async, at, static_cast<unsigned short>(value), bytes / 2, stream);
  } else {
    HAL_CUDA(device, cuMemsetD32Async, at, value, bytes / 4, stream);
  }
}

namespace slots {

anyhal_status memory_alloc(anyhal_device* handle, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  auto& device = *reinterpret_cast<Device*>(handle);
  return guarded(error, [&] {
    if (request->kind > 1 || request->flags != 0 || request->bytes == 0)
      throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_MEMORY_KIND, 0,
                  "kinds are 0, the device's memory, and 1, pinned host memory; and no block has 0 "
                  "bytes; correct the request");
    if (request->bytes > device.kinds[request->kind].heap_bytes)
      throw Fault(ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_NONE, 0,
                  "the request is larger than the memory; use smaller tensors");
    Current current(device);
    hand_out(allocate(device, *request), out_block);
  });
}

anyhal_status memory_import(anyhal_device* handle, const anyhal_memory_import* import,
                            anyhal_memory_block* out_block, anyhal_error* error) {
  auto& device = *reinterpret_cast<Device*>(handle);
  return guarded(error, [&] {
    Current current(device);
    const uint64_t base = import->handle + import->offset;
    auto block = std::make_unique<Block>(Block{&device, base, import->bytes, Origin::kForeign, 0});
    if (import->type == ANYHAL_IMPORT_HOST_POINTER) {
      block->origin = Origin::kRegistered;
      HAL_CUDA(device, cuMemHostRegister_v2, reinterpret_cast<void*>(base), import->bytes,
               CU_MEMHOSTREGISTER_PORTABLE);
    } else if (import->type != ANYHAL_IMPORT_ADDRESS) {
      throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND, 0,
                  "host pointers and device addresses can be imported; copy the memory instead");
    }
    hand_out(std::move(block), out_block);
  });
}

anyhal_status queue_copy(anyhal_queue* handle, const anyhal_copy_region* regions,
                         uint32_t region_count, anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(handle);
  return guarded(error, [&] {
    const auto live = require_live(queue);
    Current current(*queue.device);
    for (uint32_t i = 0; i < region_count; ++i)
      copy(*queue.device, queue.stream, regions[i].destination, regions[i].source,
           regions[i].bytes);
  });
}

anyhal_status queue_fill(anyhal_queue* handle, anyhal_ref ref, uint64_t bytes, const void* pattern,
                         uint32_t pattern_bytes, anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(handle);
  return guarded(error, [&] {
    const auto live = require_live(queue);
    Current current(*queue.device);
    fill(*queue.device, queue.stream, ref, bytes, pattern, pattern_bytes);
  });
}

}  // namespace slots
}  // namespace hal::cuda
