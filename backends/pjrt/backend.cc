// The bridge to PJRT plugins: entry, devices, ends of objects. One instance, a device per plugin.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "anyhal/sdk/host.hpp"
#include "objects.h"
#include "rows.h"

namespace hal::pjrt {
namespace {

using sdk::fail;
using sdk::Failure;

// Plugins keep about five threads each on two cores, and take no more than 32 runs at once.
constexpr uint32_t kOwnThreads = 5;
constexpr uint32_t kDepth = 24;

std::vector<std::string> paths_in(const char* list) {
  std::vector<std::string> out;
  for (std::string rest = list != nullptr ? list : ""; !rest.empty();) {
    const size_t end = rest.find(':');
    if (end != 0) out.push_back(rest.substr(0, end));
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return out;
}

// A plugin that fails costs only itself.
void pass_over(anyhal_self& self, const std::string& why) {
  if (self.failed.empty()) self.failed = why;
  self.services->log(self.services->context, 2, ("pjrt: " + why).c_str());
}

void open_plugins(anyhal_self& self) {
  const anyhal_services& services = *self.services;
  self.build_id = "pjrt 0.1, " __VERSION__;
  const bool told = ANYHAL_HAS(&services, anyhal_services, setting) && services.setting != nullptr;
  const auto setting = [&](const char* name) {
    return told ? services.setting(services.context, name) : nullptr;
  };
  const auto on = [&](const char* name) {
    const char* value = setting(name);
    return value == nullptr || std::strcmp(value, "off") != 0;
  };
  self.graphs = on("graphs");
  self.custom_calls = on("custom_calls");
  const std::vector<std::string> paths = paths_in(setting("plugins"));
  for (auto path = paths.begin(); path != paths.end(); ++path) {
    if (const auto before = std::count(paths.begin(), path, *path); before != 0) {
      const std::string said = "pjrt: " + *path + " is named twice; one is used";
      if (before == 1) services.log(services.context, 2, said.c_str());
      continue;
    }
    try {
      self.plugins.push_back(std::make_unique<Plugin>(*path));
      self.build_id += ", " + self.plugins.back()->file();
    } catch (const Failure& why) {
      pass_over(self, why.what());
    }
  }
}

std::vector<anyhal_memory_kind> memory_kinds() {
  anyhal_memory_kind cells = {};
  cells.size = sizeof cells;
  cells.flags = ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_CELL | ANYHAL_MEMORY_LAZY;
  cells.offset_alignment = 1;
  cells.base_alignment = 64;
  cells.granularity = 1;
  cells.block_bytes_max = uint64_t{1} << 47;
  cells.heap_bytes = sdk::host_bytes_total();
  anyhal_memory_kind staging = cells;
  staging.flags =
      ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS;
  staging.block_bytes_max = 0;
  return {cells, staging};
}

anyhal_device_info describe(anyhal_self& self, Plugin& plugin, uint64_t id) {
  anyhal_device_info info = {};
  info.flags = plugin.host_memory() ? ANYHAL_DEVICE_UNIFIED : 0;
  info.id = id;
  std::snprintf(info.name, sizeof info.name, "%s (%s)", plugin.file().c_str(),
                plugin.kind().c_str());
  std::snprintf(info.arch, sizeof info.arch, "%s", plugin.platform().c_str());
  std::snprintf(info.driver, sizeof info.driver, "PJRT %d.%d, %s", plugin.major(), plugin.minor(),
                plugin.hash().substr(0, 16).c_str());
  // The file is the device's identity: another build is another device.
  for (size_t i = 0; i < sizeof info.uuid && !plugin.hash().empty(); ++i)
    info.uuid[i] = static_cast<uint8_t>(
        std::strtoul(plugin.hash().substr(2 * i % 32, 2).c_str(), nullptr, 16));
  info.kinds = self.kinds.data();
  info.kind_count = static_cast<uint32_t>(self.kinds.size());
  info.queue_depth = kDepth;
  info.preferred_alignment = 64;
  info.rank_max = sdk::kRankMax;
  info.recovery = ANYHAL_RECOVERY_PROCESS;
  info.own_threads = kOwnThreads;
  info.tensor_bytes_max = uint64_t{1} << 47;
  return info;
}

anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(static_cast<anyhal_device*>(nullptr));
    std::lock_guard lock(self->mutex);
    uint32_t total = 0;
    for (size_t i = 0; i < self->plugins.size(); ++i) {
      Plugin* plugin = self->plugins[i].get();
      if (plugin == nullptr) continue;
      try {
        plugin->start();
      } catch (const Failure& why) {
        pass_over(*self, why.what());
        self->plugins[i].release();  // never closed
        continue;
      }
      if (total < capacity) {
        auto* at = reinterpret_cast<anyhal_device_info*>(reinterpret_cast<char*>(infos) +
                                                         uint64_t{total} * infos->size);
        sdk::write_record(at, describe(*self, *plugin, i));
      }
      ++total;
    }
    *out_total = total;
    if (total == 0 && !self->failed.empty())
      throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY,
                    "no plugin could be used: %.240s", self->failed.c_str());
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status device_open(anyhal_self* self, uint64_t device_id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(static_cast<anyhal_device*>(nullptr));
    std::lock_guard lock(self->mutex);
    if (device_id >= self->plugins.size() || self->plugins[device_id] == nullptr)
      throw Failure(ANYHAL_STATUS_NOT_FOUND, 0, "there is no device %llu; list devices first",
                    static_cast<unsigned long long>(device_id));
    self->plugins[device_id]->start();
    self->plugins[device_id]->require_here();
    *out_device = new anyhal_device{self, self->plugins[device_id].get()};
    *out_address_block = 0;
    return ANYHAL_STATUS_OK;
  });
}

void end_block(Block* block, bool abandon) {
  if (block->buffer != nullptr && !abandon) block->plugin->destroy(block->buffer);
  std::free(block->host);
  delete block;
}

void end_queue(anyhal_queue* queue, bool abandon) {
  for (size_t i = 0; i < queue->flights.size() && !abandon; ++i)
    drop_all(*queue->plugin, queue->flights.at(i));
  delete queue;
}

anyhal_status release(anyhal_self*, uint32_t object_kind, uint64_t object, uint32_t flags,
                      anyhal_error* error) {
  const bool abandon = (flags & ANYHAL_RELEASE_ABANDON) != 0 || g_forked;
  switch (object_kind) {
    case ANYHAL_OBJECT_DEVICE:
      delete reinterpret_cast<anyhal_device*>(object);
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_MEMORY:
      end_block(reinterpret_cast<Block*>(object), abandon);
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_QUEUE:
      end_queue(reinterpret_cast<anyhal_queue*>(object), abandon);
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_PLAN: {
      Plan* plan = reinterpret_cast<Plan*>(object);
      if (abandon) plan->plugin = nullptr;
      delete plan;
      return ANYHAL_STATUS_OK;
    }
    default:
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "it makes no objects of kind %u; check the kind", object_kind);
  }
}

anyhal_status device_query(anyhal_device* device, uint32_t key, uint64_t argument, void* value,
                           uint64_t* bytes, anyhal_error* error) {
  switch (key) {
    case ANYHAL_QUERY_FREE_BYTES:
      if (!device->plugin->host_memory()) break;
      return sdk::answer(value, bytes, sdk::host_bytes_free(), error);
    case ANYHAL_QUERY_EDGE:
      return sdk::answer(value, bytes, uint32_t{0}, error);
    case ANYHAL_QUERY_HEALTH:
      return sdk::answer(value, bytes,
                         uint32_t{g_forked || device->plugin->lost() ? ANYHAL_STATUS_DEVICE_LOST
                                                                     : ANYHAL_STATUS_OK},
                         error);
    case ANYHAL_QUERY_COUNTER:
      if (argument >= kCounters) break;
      return sdk::answer(value, bytes, g_counts[argument].load(), error);
    case ANYHAL_QUERY_CAPABILITIES:
      return capabilities(value, bytes, error);
    case ANYHAL_QUERY_NOTES:
      return sdk::answer(value, bytes, kNotes, error);
  }
  return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "key %u is unknown here; use one of backend.h",
              key);
}

anyhal_status notify(anyhal_self*, uint32_t event, uint64_t, uint64_t* out_bytes, anyhal_error*) {
  if (event == ANYHAL_EVENT_FORK_CHILD) forked();
  if (out_bytes != nullptr) *out_bytes = 0;
  return ANYHAL_STATUS_OK;
}

const anyhal_table kTable = [] {
  anyhal_table table = {};  // slots that stay NULL are unsupported
  table.size = sizeof(table);
  table.device_list = device_list;
  table.device_open = device_open;
  table.memory_alloc = slots::memory_alloc;
  table.op_query = slots::op_query;
  table.op_prepare = slots::op_prepare;
  table.op_enqueue = slots::op_enqueue;
  table.release = release;
  table.queue_create = slots::queue_create;
  table.queue_signal = slots::queue_signal;
  table.queue_wait = slots::queue_wait;
  table.host_wait = slots::host_wait;
  table.queue_copy = slots::queue_copy;
  table.device_query = device_query;
  table.graph_prepare = slots::graph_prepare;
  table.notify = notify;
  return table;
}();

}  // namespace
}  // namespace hal::pjrt

extern "C" ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello,
                                                           anyhal_reply* reply,
                                                           anyhal_error* error) {
  const anyhal_status status = hal::sdk::agree(*hello, *reply, error);
  if (status != ANYHAL_STATUS_OK) return status;
  return hal::sdk::guard(error, [&] {
    auto self = std::make_unique<anyhal_self>();
    self->services = hello->services;
    self->kinds = hal::pjrt::memory_kinds();
    hal::pjrt::open_plugins(*self);
    reply->flags = ANYHAL_REPLY_HIDDEN_MEMORY | ANYHAL_REPLY_FAULT_ABORTS;
    reply->table = &hal::pjrt::kTable;
    reply->build_id = self->build_id.c_str();
    reply->self = self.release();
    return ANYHAL_STATUS_OK;
  });
}
