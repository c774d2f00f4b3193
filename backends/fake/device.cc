// Devices and facts of the fake backend: list, open, release, query, life events.
// SPDX-License-Identifier: Apache-2.0
#include "device.hh"

#include <cstdio>
#include <cstring>

#include "anyhal/sdk/foreign.h"

namespace hal::fake {
namespace {

Instance& self_of(anyhal_self* self) { return *reinterpret_cast<Instance*>(self); }

Device* device_of(anyhal_device* device) { return reinterpret_cast<Device*>(device); }

anyhal_device_info describe(const Instance& instance, uint32_t number) {
  const DeviceScript& script = instance.script.devices[number];
  anyhal_device_info info = {};
  info.size = sizeof info;
  info.flags = script.flags;
  info.id = number + 1;
  std::memcpy(info.uuid, script.uuid, sizeof info.uuid);
  info.pci_domain = script.pci_domain;
  info.pci_function = script.pci_function;
  std::snprintf(info.name, sizeof info.name, "%s", script.name.c_str());
  std::snprintf(info.arch, sizeof info.arch, "%s", script.arch.c_str());
  std::snprintf(info.driver, sizeof info.driver, "%s", script.driver.c_str());
  const bool host_memory = !instance.script.async && !instance.script.cell;
  info.kinds = &instance.kinds[2 * number];
  info.kind_count = host_memory ? 1 : 2;
  info.queue_count_max = script.queue_count;
  info.queue_depth = script.queue_depth;
  info.preferred_alignment = 64;
  info.rank_max = script.rank_max;
  info.recovery = script.recovery;
  info.own_threads = script.own_threads;
  info.tensor_bytes_max = script.tensor_max;
  return info;
}

bool listed(const Object& object, const Device* device) {
  return object.alive && object.device == device && object.kind != ANYHAL_OBJECT_DEVICE;
}

void release_device(Instance& instance, Device& device, bool abandon) {
  uint64_t left = 0;
  for (const auto& object : instance.graves) {
    if (!listed(*object, &device)) continue;
    if (!abandon) ++left;
    object->alive = !abandon;
  }
  if (left != 0)
    violation(instance, "device released with " + std::to_string(left) + " live objects");
  device.alive = false;
  device.live_bytes[0] = device.live_bytes[1] = 0;
  device.queues.clear();
}

void release_object(Instance& instance, Object& object, bool abandon) {
  if (object.pending > 0 && !abandon)
    violation(instance, "an object was released while " + std::to_string(object.pending) +
                            " queued calls use it");
  object.alive = false;
  --instance.live[object.kind];
  if (object.kind == ANYHAL_OBJECT_MEMORY) {
    auto& block = static_cast<Block&>(object);
    block.device->live_bytes[block.kind_index % 2] -= block.foreign ? 0 : block.bytes;
    if (is_bad(instance, Bad::keeps_blocks)) block.data = nullptr;
    empty_block(block);
  } else if (object.kind == ANYHAL_OBJECT_PLAN) {
    auto& plan = static_cast<Plan&>(object);
    plan.op = {};
    plan.steps = {};
  } else if (object.kind == ANYHAL_OBJECT_QUEUE) {
    auto& queue = static_cast<Queue&>(object);
    if (!queue.items.empty() && queue.status == ANYHAL_STATUS_OK && !abandon)
      violation(instance, "a queue was released with work in it");
    std::erase(queue.device->queues, &queue);
  }
}

}  // namespace

void bury(Instance& instance) {
  size_t dead = 0;
  for (const auto& object : instance.graves) dead += !object->alive;
  if (dead < 2 * kTombstones) return;
  std::erase_if(instance.graves, [&](const auto& object) {
    const bool awaited =
        object->kind == ANYHAL_OBJECT_QUEUE && static_cast<const Queue&>(*object).waiters != 0;
    const bool gone = !object->alive && object->pending == 0 && !awaited && dead > kTombstones;
    dead -= gone;
    return gone;
  });
}

namespace {

uint64_t counter(const Instance& instance, const Device& device, uint64_t number) {
  if (number <= kSlotCount) return instance.calls[number];
  if (number > 100 && number <= 100 + ANYHAL_OBJECT_MODULE) return instance.live[number - 100];
  if (number > 200 && number <= 200 + kSlotCount)
    return instance.device_calls[device.number][number - 200];
  switch (number) {
    case 110:
      return instance.violations;
    case 111:
      return instance.executed;
    case 112:
      return device.live_bytes[0] + device.live_bytes[1];
    case 114:
      return instance.stream_waits;
    case 115:
      return instance.last_stream;
    case 113: {
      uint64_t waiting = 0;
      for (const Queue* queue : device.queues) waiting += queue->items.size();
      return waiting;
    }
    default:
      throw Fault{ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE,
                  "there is no counter " + std::to_string(number)};
  }
}

void answer(const void* data, uint64_t size, void* value, uint64_t* bytes) {
  const uint64_t room = *bytes;
  *bytes = size;
  if (room < size)
    throw Fault{ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
                "the answer takes " + std::to_string(size) + " bytes"};
  if (size != 0) std::memcpy(value, data, size);
}

std::string notes(const Instance& instance) {
  std::string text = instance.script.note;
  if (instance.violations != 0)
    text += (text.empty() ? "" : "; ") + std::to_string(instance.violations) +
            " broken rules, first: " + instance.violation_text;
  return text;
}

void drop(const Block& block) {
  if (block.data != nullptr && !block.foreign) std::memset(block.data, 0xff, block.bytes);
}

void query(Instance& instance, Device& device, uint32_t key, uint64_t argument, void* value,
           uint64_t* bytes) {
  const DeviceScript& script = instance.script.devices[device.number];
  switch (key) {
    case ANYHAL_QUERY_FREE_BYTES: {
      const uint64_t used = argument < 2 ? device.live_bytes[argument] : 0;
      const uint64_t left = script.heap - std::min(script.heap, used);
      return answer(&left, sizeof left, value, bytes);
    }
    case ANYHAL_QUERY_EDGE:
      return answer(&instance.script.edge, sizeof(uint32_t), value, bytes);
    case ANYHAL_QUERY_HEALTH: {
      const uint32_t health = ANYHAL_STATUS_OK;
      return answer(&health, sizeof health, value, bytes);
    }
    case ANYHAL_QUERY_COUNTER: {
      const uint64_t number = counter(instance, device, argument);
      return answer(&number, sizeof number, value, bytes);
    }
    case ANYHAL_QUERY_CAPABILITIES: {
      auto rows = capabilities(instance.script, script);
      if (instance.script.fickle)
        for (anyhal_capability& row : rows) row.dim_max = (1u << 20) + instance.executed;
      if (is_bad(instance, Bad::capability_changes) && ++instance.answers % 3 == 0) rows.pop_back();
      if (is_bad(instance, Bad::query_overruns) && *bytes != 0 && *bytes < sizeof rows[0])
        std::memset(value, 0, sizeof rows[0]);
      return answer(rows.data(), rows.size() * sizeof rows[0], value, bytes);
    }
    case ANYHAL_QUERY_NOTES: {
      const std::string text = notes(instance);
      return answer(text.c_str(), text.size() + 1, value, bytes);
    }
    default:
      throw Fault{ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE,
                  "there is no key " + std::to_string(key)};
  }
}

void open(Instance& instance, Device& device, uint64_t* out_address_block) {
  const DeviceScript& script = instance.script.devices[device.number];
  if (script.dead || (device.lost && script.recovery != ANYHAL_RECOVERY_REOPEN))
    throw Fault{ANYHAL_STATUS_DEVICE_LOST, ANYHAL_REASON_NONE,
                device.lost ? device.loss : "the device does not answer"};
  if (device.alive && !device.lost) violation(instance, "device opened twice");
  if (is_bad(instance, Bad::no_reopen) && device.opened)
    throw Fault{ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE, "it was opened before"};
  device.opened = true;
  device.lost = false;
  device.alive = true;
  *out_address_block = 0;
  if (instance.script.async || instance.script.cell || !instance.script.addresses) return;
  device.address_block = std::make_unique<Block>();
  device.address_block->kind = ANYHAL_OBJECT_MEMORY;
  device.address_block->device = &device;
  device.address_block->everything = true;
  *out_address_block = reinterpret_cast<uint64_t>(device.address_block.get());
}

}  // namespace

namespace slots {

anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error* error) {
  Instance& instance = self_of(self);
  return guarded(instance, nullptr, 1, error, [&](auto&) {
    *out_total = static_cast<uint32_t>(instance.devices.size());
    for (uint32_t i = 0; i < std::min(capacity, *out_total); ++i) {
      anyhal_device_info info = describe(instance, i);
      const uint32_t known = std::min<uint32_t>(infos[i].size, sizeof info);
      info.size = known;
      std::memcpy(&infos[i], &info, known);
      if (is_bad(instance, Bad::long_records) && infos[i].size >= sizeof info)
        std::memset(&infos[i] + 1, 0, i + 1 < capacity ? 0 : 8);
    }
  });
}

anyhal_status device_open(anyhal_self* self, uint64_t device_id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  Instance& instance = self_of(self);
  return guarded(instance, nullptr, 2, error, [&](auto&) {
    if (device_id == 0 || device_id > instance.devices.size())
      throw Fault{ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE,
                  "there is no device with id " + std::to_string(device_id)};
    Device& device = *instance.devices[device_id - 1];
    open(instance, device, out_address_block);
    *out_device = reinterpret_cast<anyhal_device*>(&device);
  });
}

anyhal_status release(anyhal_self* self, uint32_t object_kind, uint64_t handle, uint32_t flags,
                      anyhal_error* error) {
  Instance& instance = self_of(self);
  const bool abandon = (flags & ANYHAL_RELEASE_ABANDON) != 0;
  const auto end = [&](auto&) {
    auto* object = reinterpret_cast<Object*>(handle);
    require_alive(instance, object, static_cast<anyhal_object>(object_kind));
    if (object_kind == ANYHAL_OBJECT_DEVICE)
      return release_device(instance, *object->device, abandon);
    release_object(instance, *object, abandon);
  };
  if (!abandon) {
    auto* object = reinterpret_cast<Object*>(handle);
    return guarded(instance, object != nullptr ? object->device : nullptr, 7, error, end);
  }
  try {  // allowed on a lost device and in a forked child, so it is not admitted like other calls
    std::unique_lock lock(instance.mutex);
    ++instance.calls[7];
    end(lock);
    return ANYHAL_STATUS_OK;
  } catch (const Fault& fault) {
    return fail(fault, error);
  }
}

anyhal_status device_query(anyhal_device* handle, uint32_t key, uint64_t argument, void* value,
                           uint64_t* bytes, anyhal_error* error) {
  Device* device = device_of(handle);
  // Counters and notes answer on a lost device too: tests read them afterwards.
  const bool always = key == ANYHAL_QUERY_COUNTER || key == ANYHAL_QUERY_NOTES;
  return guarded(*device->instance, always ? nullptr : device, 13, error,
                 [&](auto&) { query(*device->instance, *device, key, argument, value, bytes); });
}

anyhal_status native_handle(anyhal_self* self, uint32_t object_kind, uint64_t handle,
                            uint64_t* out_handle, uint32_t* out_type, uint32_t* out_owned,
                            anyhal_error* error) {
  Instance& instance = self_of(self);
  return guarded(instance, nullptr, 23, error, [&](auto&) {
    require_alive(instance, reinterpret_cast<Object*>(handle),
                  static_cast<anyhal_object>(object_kind));
    *out_handle = handle;
    *out_type = ANYHAL_NATIVE_HOST;
    *out_owned = 0;
  });
}

anyhal_status notify(anyhal_self* self, uint32_t event, uint64_t, uint64_t* out_bytes,
                     anyhal_error* error) {
  Instance& instance = self_of(self);
  return guarded(instance, nullptr, 24, error, [&](auto&) {
    if (out_bytes != nullptr) *out_bytes = 0;
    // Without queues there is nothing that a fork could spoil: the child goes on.
    if (event == ANYHAL_EVENT_FORK_CHILD) instance.forked = instance.script.async;
    if (event == ANYHAL_EVENT_FORK_CHILD) bad_fork(instance);
    if (event == ANYHAL_EVENT_TRIM && is_bad(instance, Bad::trim_drops))
      for (const auto& object : instance.graves)
        if (object->alive && object->kind == ANYHAL_OBJECT_MEMORY)
          drop(static_cast<Block&>(*object));
  });
}

anyhal_status extension(anyhal_self* self, const char* name, uint32_t since, const void** out_table,
                        anyhal_error* error) {
  Instance& instance = self_of(self);
  return guarded(instance, nullptr, 25, error, [&](auto&) {
    *out_table = nullptr;
    if (instance.script.foreign != 0 && std::strcmp(name, ANYHAL_FOREIGN_NAME) == 0 &&
        since <= ANYHAL_FOREIGN_VERSION) {
      *out_table = foreign_table();
      return;
    }
    if (is_bad(instance, Bad::any_extension)) {
      *out_table = foreign_table();
      return;
    }
    throw Fault{ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE,
                std::string("there is no extension '") + name + "'"};
  });
}

}  // namespace slots
}  // namespace hal::fake
