// Memory of the fake backend: linear blocks, cells, host views; copies and fills between them.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <new>

#include "device.hh"

namespace hal::fake {
namespace {

constexpr uint64_t kPoisonLimit = 64ull << 20;  // larger blocks stay untouched, so claims are cheap

uint8_t* poisoned(uint64_t bytes) {
  const uint64_t rounded = (std::max<uint64_t>(bytes, 1) + 255) / 256 * 256;
  auto* data = static_cast<uint8_t*>(std::aligned_alloc(256, rounded));
  if (data == nullptr) throw std::bad_alloc();
  if (bytes <= kPoisonLimit) std::memset(data, 0xff, rounded);
  return data;
}

void check_room(Device& device, const anyhal_memory_request& request) {
  Instance& instance = *device.instance;
  const DeviceScript& script = instance.script.devices[device.number];
  const uint32_t kinds = instance.script.async || instance.script.cell ? 2 : 1;
  if (is_bad(instance, Bad::any_kind) && (request.kind >= kinds || request.flags != 0)) return;
  if (request.kind >= kinds) violation(instance, "memory_alloc names a kind that does not exist");
  if (request.flags != 0 || request.reserved[0] != 0 || request.reserved[1] != 0)
    violation(instance, "memory_alloc has unknown flags or a reserved word that is not zero");
  if (request.bytes == 0) violation(instance, "memory_alloc of 0 bytes");
  if (script.block_max != 0 && request.bytes > script.block_max)
    violation(instance, "memory_alloc of more than block_bytes_max");
  const bool one_heap = is_bad(instance, Bad::heaps_shared);
  const uint64_t used =
      one_heap ? device.live_bytes[0] + device.live_bytes[1] : device.live_bytes[request.kind];
  if (instance.refused_memory || used + request.bytes > script.heap ||
      (script.blocks_max != 0 && instance.live[ANYHAL_OBJECT_MEMORY] >= script.blocks_max)) {
    instance.refused_memory = is_bad(instance, Bad::oom_sticky);
    const bool internal = is_bad(instance, Bad::oom_internal);
    throw Fault{internal ? ANYHAL_STATUS_INTERNAL : ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_NONE,
                "device " + std::to_string(device.number) + " has " +
                    std::to_string(script.heap - std::min(script.heap, used)) + " of " +
                    std::to_string(script.heap) + " bytes free, asked for " +
                    std::to_string(request.bytes)};
  }
}

void describe_block(const Block& block, bool host, anyhal_memory_block& out) {
  const uint32_t size = out.size;
  anyhal_memory_block result = {};
  result.memory = reinterpret_cast<uint64_t>(&block);
  result.bytes = block.bytes;
  if (host) result.host_address = reinterpret_cast<uint64_t>(block.data);
  if (host && block.kind_index == 0) result.device_address = result.host_address;
  result.size = size;
  std::memcpy(&out, &result, std::min<uint32_t>(size, sizeof result));
}

bool host_kind(const Device& device, uint32_t kind) {
  const Script& script = device.instance->script;
  return kind == 1 || (!script.async && !script.cell);
}

Device& device_behind(anyhal_queue* queue, const anyhal_ref& ref) {
  if (queue != nullptr) return *reinterpret_cast<Queue*>(queue)->device;
  return *reinterpret_cast<Block*>(ref.memory)->device;
}

// Queued behind the queue's calls, or done at once where there are no queues.
void submit(anyhal_queue* queue, Device& device, Item item) {
  if (queue != nullptr && is_bad(*device.instance, Bad::copies_first)) return execute(device, item);
  if (queue != nullptr) return enqueue(*reinterpret_cast<Queue*>(queue), std::move(item));
  if (device.instance->script.async) violation(*device.instance, "queued work without a queue");
  execute(device, item);
}

}  // namespace

uint8_t* bytes_of(const Operand& operand) {
  if (operand.block == nullptr) return nullptr;
  if (operand.block->everything) return reinterpret_cast<uint8_t*>(operand.offset);
  make_cell(*operand.block);
  return operand.block->data + operand.offset;
}

void make_cell(Block& block) {
  if (block.data == nullptr) block.data = poisoned(block.bytes);
}

// A whole write puts another buffer behind the handle, as plugin-managed memory does.
void store_whole(Block& block, const uint8_t* bytes) {
  uint8_t* fresh = poisoned(block.bytes);
  std::memcpy(fresh, bytes, block.bytes);
  empty_block(block);
  block.data = fresh;
}

void empty_block(Block& block) {
  if (!block.foreign && block.data != nullptr) {
    if (block.bytes <= kPoisonLimit) std::memset(block.data, 0xff, block.bytes);
    std::free(block.data);
  }
  block.data = nullptr;
}

Operand resolve(Device& device, const anyhal_ref& ref, uint64_t bytes, const char* what) {
  Instance& instance = *device.instance;
  auto* block = reinterpret_cast<Block*>(ref.memory);
  if (block == nullptr && bytes == 0) return {};
  require_alive(instance, block, ANYHAL_OBJECT_MEMORY);
  if (block->device != &device && instance.script.edge != 2)
    throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                std::string(what) + " reaches into another device's memory"};
  if (block->everything) return {block, ref.offset, {}};
  if (ref.offset > block->bytes || bytes > block->bytes - ref.offset)
    violation(instance, std::string(what) + " leaves its block: offset " +
                            std::to_string(ref.offset) + " + " + std::to_string(bytes) +
                            " bytes of " + std::to_string(block->bytes));
  const uint32_t alignment = instance.script.devices[device.number].offset_alignment;
  if (block->kind_index == 0 && ref.offset % alignment != 0)
    violation(instance, std::string(what) + " breaks offset_alignment");
  return {block, ref.offset, {}};
}

void check_part(Device& device, const Operand& operand, uint64_t bytes, bool writes) {
  const Block* block = operand.block;
  if (block == nullptr || !block->cell || bytes == block->bytes || bytes == 0) return;
  const uint32_t need = writes ? ANYHAL_MEMORY_PARTIAL_WRITE : ANYHAL_MEMORY_PARTIAL_READ;
  if ((device.instance->script.partial & need) == 0)
    violation(*device.instance, writes ? "queue_copy into a part of a cell without PARTIAL_WRITE"
                                       : "queue_copy out of a part of a cell without PARTIAL_READ");
}

namespace slots {

anyhal_status memory_alloc(anyhal_device* handle, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 3, error, [&](auto&) {
    require_alive(*device.instance, &device, ANYHAL_OBJECT_DEVICE);
    check_room(device, *request);
    auto block = std::make_unique<Block>();
    block->bytes = request->bytes;
    block->kind_index = request->kind;
    block->cell = device.instance->script.cell && request->kind == 0;
    if (!bad_block(device, request->purpose, *block) && !block->cell)
      block->data = poisoned(block->bytes);
    if (is_bad(*device.instance, Bad::odd_blocks) && block->bytes == 4097 && !block->cell) {
      block->data = poisoned(block->bytes + 8) + 8;
      block->foreign = true;
    }
    Block* made = adopt(*device.instance, std::move(block), ANYHAL_OBJECT_MEMORY, &device);
    device.live_bytes[request->kind % 2] += made->bytes;
    describe_block(*made, host_kind(device, request->kind), *out_block);
  });
}

anyhal_status memory_import(anyhal_device* handle, const anyhal_memory_import* import,
                            anyhal_memory_block* out_block, anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 15, error, [&](auto&) {
    const bool host = import->type == ANYHAL_IMPORT_HOST_POINTER;
    const bool shared = import->type == ANYHAL_IMPORT_ADDRESS && device.instance->script.foreign;
    if (!(host && host_kind(device, import->kind)) && !shared)
      throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                  "only host pointers can be imported, into host-visible memory"};
    auto block = std::make_unique<Block>();
    block->bytes = import->bytes;
    block->kind_index = import->kind;
    block->foreign = true;
    block->data = reinterpret_cast<uint8_t*>(import->handle + import->offset);
    Block* made = adopt(*device.instance, std::move(block), ANYHAL_OBJECT_MEMORY, &device);
    describe_block(*made, host, *out_block);
  });
}

anyhal_status memory_map(anyhal_device* handle, anyhal_ref ref, uint64_t bytes, uint32_t flags,
                         void** out_pointer, anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 14, error, [&](auto&) {
    const Operand operand = resolve(device, ref, bytes, "memory_map");
    if (operand.block == nullptr || !host_kind(device, operand.block->kind_index))
      throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                  "this memory is not host-visible; copy to one that is"};
    if (operand.block->pending != 0)
      violation(*device.instance, "memory_map of a range that is not idle");
    if ((flags & ANYHAL_MAP_END) != 0) return;
    *out_pointer = bytes_of(operand);
    if (!is_bad(*device.instance, Bad::mapping_copied)) return;
    static std::vector<std::unique_ptr<uint8_t[]>> copies;
    copies.push_back(std::make_unique<uint8_t[]>(bytes));
    std::memcpy(copies.back().get(), bytes_of(operand), bytes);
    *out_pointer = copies.back().get();
  });
}

anyhal_status queue_copy(anyhal_queue* queue, const anyhal_copy_region* regions,
                         uint32_t region_count, anyhal_error* error) {
  if (region_count == 0) return ANYHAL_STATUS_OK;
  Device& device = device_behind(queue, regions[0].destination);
  return guarded(*device.instance, &device, 12, error, [&](auto&) {
    Item item;
    item.type = Item::kCopy;
    for (uint32_t i = 0; i < region_count; ++i) {
      Region region;
      region.bytes = regions[i].bytes;
      region.destination = resolve(device, regions[i].destination, region.bytes, "queue_copy");
      region.source = resolve(device, regions[i].source, region.bytes, "queue_copy");
      check_part(device, region.destination, region.bytes, true);
      check_part(device, region.source, region.bytes, false);
      item.regions.push_back(region);
    }
    submit(queue, device, std::move(item));
  });
}

anyhal_status queue_fill(anyhal_queue* queue, anyhal_ref ref, uint64_t bytes, const void* pattern,
                         uint32_t pattern_bytes, anyhal_error* error) {
  Device& device = device_behind(queue, ref);
  return guarded(*device.instance, &device, 17, error, [&](auto&) {
    if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4)
      violation(*device.instance, "queue_fill with a pattern of neither 1, 2 nor 4 bytes");
    if (bytes % pattern_bytes != 0)
      violation(*device.instance, "queue_fill of bytes that are no multiple of the pattern");
    Item item;
    item.type = Item::kFill;
    item.regions.push_back({resolve(device, ref, bytes, "queue_fill"), {}, bytes});
    check_part(device, item.regions[0].destination, bytes, true);
    item.pattern_bytes = pattern_bytes;
    std::memcpy(item.pattern, pattern, pattern_bytes);
    if (is_bad(*device.instance, Bad::late_pattern)) item.pattern_from = pattern;
    submit(queue, device, std::move(item));
  });
}

}  // namespace slots
}  // namespace hal::fake
