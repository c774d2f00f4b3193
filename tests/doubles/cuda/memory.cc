// Memory of the double: false addresses, a page table, growth, pinned memory, and its accounts.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cstdlib>

#include "double.h"

namespace cuda_double {

uint64_t false_base = 0, true_base = 0;
uint8_t* owner = nullptr;
thread_local uint32_t visible = 0;

namespace {

constexpr uint64_t kPage = 1ull << kPageBits;
constexpr uint64_t kGrowth = 2ull << 20;  // granularity of cuMemCreate
constexpr uint64_t kPoison = 1ull << 20;  // larger blocks are left as the system gives them

void* map(uint64_t bytes, int protection) {
  void* at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return at;
}

uint64_t whole(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void make_bytes(uint64_t address, uint64_t bytes, int device) {
  void* at = reinterpret_cast<void*>(address - false_base + true_base);
  if (mprotect(at, whole(bytes), PROT_READ | PROT_WRITE) != 0) std::abort();
  if (bytes <= kPoison) std::memset(at, 0xff, whole(bytes));
  set_owner(address, bytes, device);
}

void drop_bytes(uint64_t address, uint64_t bytes) {
  set_owner(address, bytes, -1);
  void* at = reinterpret_cast<void*>(address - false_base + true_base);
  madvise(at, whole(bytes), MADV_DONTNEED);
  mprotect(at, whole(bytes), PROT_NONE);
}

// Work that was put on a stream before and has not run could still touch what goes now.
bool busy(int device) {
  for (const CUstream_st* stream : world().streams)
    if (stream->context->device == device && (stream->running || !stream->waiting.empty()))
      return true;
  return false;
}

}  // namespace

void reserve_space() {
  false_base = reinterpret_cast<uint64_t>(map(kSpace, PROT_NONE));
  true_base = reinterpret_cast<uint64_t>(map(kSpace, PROT_NONE));
  owner = static_cast<uint8_t*>(map(kSpace >> kPageBits, PROT_READ | PROT_WRITE));
}

// Ranges are not used again at once, and a page without owner lies between any two.
uint64_t take_range(uint64_t bytes) {
  World& w = world();
  const uint64_t size = (whole(bytes) + kGrowth) / kGrowth * kGrowth + kGrowth;
  if (w.next_address + size > kSpace) w.next_address = 0;  // round again; old ranges are long gone
  const uint64_t at = w.next_address;
  w.next_address += size;
  return false_base + at;
}

void set_owner(uint64_t address, uint64_t bytes, int device) {
  std::memset(owner + ((address - false_base) >> kPageBits), device + 1, whole(bytes) >> kPageBits);
}

void check_range(uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  for (uint64_t at = address & ~(kPage - 1); at < address + bytes; at += kPage)
    reach(reinterpret_cast<char*>(at < address ? address : at));
}

bool known_host(uint64_t address, uint64_t bytes) {
  for (const auto* ranges : {&world().host, &world().registered}) {
    auto next = ranges->upper_bound(address);
    if (next == ranges->begin()) continue;
    --next;
    if (address + bytes <= next->first + next->second) return true;
  }
  return false;
}

}  // namespace cuda_double

using namespace cuda_double;

DOUBLE_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  DOUBLE_ENTER(cuMemGetInfo_v2, true);
  const Device& device = *world().devices[current->device];
  *total = device.bytes;
  *free = device.bytes - device.used;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  DOUBLE_ENTER(cuMemAlloc_v2, true);
  if (CUresult no = unsafe("cuMemAlloc_v2"); no != CUDA_SUCCESS) return no;
  Device& device = *world().devices[current->device];
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > device.bytes - device.used) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = take_range(bytes);
  make_bytes(*pointer, bytes, device.number);
  device.used += bytes;
  world().blocks[*pointer] = {bytes, device.number, true};
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  DOUBLE_ENTER(cuMemFree_v2, true);
  if (CUresult no = unsafe("cuMemFree_v2"); no != CUDA_SUCCESS) return no;
  World& w = world();
  auto found = w.blocks.find(pointer);
  if (found == w.blocks.end()) return violation("cuMemFree_v2 of what is no block, or twice");
  Device& device = *w.devices[found->second.device];
  device.used -= found->second.bytes;
  drop_bytes(pointer, found->second.bytes);
  w.blocks.erase(found);
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  DOUBLE_ENTER(cuMemHostAlloc, true);
  if (CUresult no = unsafe("cuMemHostAlloc"); no != CUDA_SUCCESS) return no;
  *pointer = std::aligned_alloc(kPage, whole(bytes));
  if (*pointer == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  world().host[reinterpret_cast<uint64_t>(*pointer)] = bytes;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemFreeHost(void* pointer) {
  DOUBLE_ENTER(cuMemFreeHost, true);
  if (CUresult no = unsafe("cuMemFreeHost"); no != CUDA_SUCCESS) return no;
  if (world().host.erase(reinterpret_cast<uint64_t>(pointer)) == 0)
    return violation("cuMemFreeHost of what is no block, or twice");
  if (busy(current->device)) {
    // MEM-05: a copy on its way may still read it; keep the bytes so that the fault shows as data.
    std::memset(pointer, 0xee, 1);
  }
  std::free(pointer);
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
  DOUBLE_ENTER(cuMemHostRegister_v2, true);
  world().registered[reinterpret_cast<uint64_t>(pointer)] = bytes;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemHostUnregister(void* pointer) {
  DOUBLE_ENTER(cuMemHostUnregister, true);
  if (world().registered.erase(reinterpret_cast<uint64_t>(pointer)) == 0)
    return violation("cuMemHostUnregister of what was not registered");
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                                     CUmemAllocationGranularity_flags) {
  DOUBLE_ENTER(cuMemGetAllocationGranularity, false);
  *bytes = kGrowth;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t, CUdeviceptr,
                                           unsigned long long) {
  DOUBLE_ENTER(cuMemAddressReserve, false);
  if (bytes == 0 || bytes % kGrowth != 0) return CUDA_ERROR_INVALID_VALUE;
  *pointer = take_range(bytes);
  world().reserved[*pointer] = bytes;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  DOUBLE_ENTER(cuMemAddressFree, false);
  World& w = world();
  auto found = w.reserved.find(pointer);
  if (found == w.reserved.end() || found->second != bytes)
    return violation("cuMemAddressFree of what was not reserved so");
  if (w.mapped.contains(pointer)) return violation("cuMemAddressFree of a mapped range");
  w.reserved.erase(found);
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                   const CUmemAllocationProp* prop, unsigned long long) {
  DOUBLE_ENTER(cuMemCreate, false);
  World& w = world();
  const int number = prop->location.id;
  if (bytes == 0 || bytes % kGrowth != 0 || number < 0 || number >= int(w.devices.size()))
    return CUDA_ERROR_INVALID_VALUE;
  Device& device = *w.devices[number];
  if (bytes > device.bytes - device.used) return CUDA_ERROR_OUT_OF_MEMORY;
  device.used += bytes;
  *handle = w.next_handle++;
  w.physical[*handle] = {bytes, number, true};
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  DOUBLE_ENTER(cuMemRelease, false);
  World& w = world();
  auto found = w.physical.find(handle);
  if (found == w.physical.end()) return violation("cuMemRelease of no handle, or twice");
  for (const auto& [address, mapped] : w.mapped) {
    if (mapped != handle) continue;
    found->second.owns_bytes = false;  // the bytes go when they are unmapped
    return CUDA_SUCCESS;
  }
  w.devices[found->second.device]->used -= found->second.bytes;
  w.physical.erase(found);
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t,
                                CUmemGenericAllocationHandle handle, unsigned long long) {
  DOUBLE_ENTER(cuMemMap, false);
  World& w = world();
  if (!w.reserved.contains(pointer) || !w.physical.contains(handle) ||
      w.physical[handle].bytes != bytes)
    return violation("cuMemMap of a range or handle that is not there");
  w.mapped[pointer] = handle;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes,
                                      const CUmemAccessDesc* access, size_t) {
  DOUBLE_ENTER(cuMemSetAccess, false);
  World& w = world();
  if (!w.mapped.contains(pointer)) return violation("cuMemSetAccess of a range without memory");
  make_bytes(pointer, bytes, access->location.id);
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  DOUBLE_ENTER(cuMemUnmap, false);
  World& w = world();
  auto found = w.mapped.find(pointer);
  if (found == w.mapped.end()) return violation("cuMemUnmap of what is not mapped");
  drop_bytes(pointer, bytes);
  auto memory = w.physical.find(found->second);
  w.mapped.erase(found);
  if (memory != w.physical.end() && !memory->second.owns_bytes) {
    w.devices[memory->second.device]->used -= memory->second.bytes;
    w.physical.erase(memory);
  }
  return CUDA_SUCCESS;
}
