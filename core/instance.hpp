// A loaded backend: library, negotiated table, services, devices it lists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace hal {

struct Device;

struct ListedDevice {
  anyhal_device_info info{};
  std::vector<anyhal_memory_kind> kinds;
};

// Bytes of the backend's own form of the table and of the records that come in arrays.
struct RecordSizes {
  uint32_t table, device_info, memory_kind, tensor_desc, graph_value, graph_entry;
};

// Lives until the process ends: libraries are never closed.
struct HAL_API Instance {
  std::string name, path, build_id;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<anyhal_setting> given;  // the settings as hello hands them over
  std::vector<char> asked;            // for each setting, by the backend; under `mutex`
  void* library = nullptr;
  anyhal_services services{};
  anyhal_reply reply{};
  anyhal_table table{};  // our copy: absent optional slots answer UNSUPPORTED
  RecordSizes sizes{};
  bool has_queue_wait = false, has_device_query = false, has_constant_pack = false,
       has_queue_native = false, has_graph_prepare = false;
  bool changed_floating = false;            // how this thread computes; it was put back each time
  std::atomic<bool> told_not_kept = false;  // that an artefact could not be written
  std::mutex mutex;
  std::vector<std::pair<std::string, int64_t>> notes;  // ledger_note

  bool synchronous() const { return reply.flags & ANYHAL_REPLY_SYNCHRONOUS; }
  // Says in the log which settings the backend has not asked for by the end.
  std::vector<ListedDevice> list_devices();
};

// Opens, finds the entry, negotiates and checks. Throws Error with `stage` set: open, entry,
// negotiate, fingerprint or init. `copy`, where given, is what is opened in place of `path`, which
// messages name. `entry`, where given, needs no library: `path` is the file that it stands for.
HAL_API Instance* load_instance(const std::string& path, const std::string& name,
                                std::vector<std::pair<std::string, std::string>> settings,
                                const std::string& copy = {},
                                anyhal_backend_main_fn entry = nullptr);
// The least grave level that `log` prints: 0 debug, 1 info, 2 warning, 3 error, 4 nothing.
HAL_API void set_log_level(int level);
// One line of the core's own on stderr.
HAL_API void warn(const std::string& text);
// Every instance of the process, in the order of loading.
HAL_API std::vector<Instance*> all_instances();
void instances_before_fork();
void instances_after_fork();

}  // namespace hal
