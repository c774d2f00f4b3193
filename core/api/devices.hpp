// Registered backends, their devices, and the built-in policy that chooses among them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/api/handles.hpp"
#include "core/api/plan_table.hpp"
#include "core/api/registry.hpp"
#include "core/device.hpp"
#include "core/instance.hpp"

namespace hal {

struct ApiBackend;
struct ApiQueue;

// A device that a backend lists; opened by the first queue or question about an op.
struct ApiDevice {
  ApiBackend* backend = nullptr;
  uint32_t index = 0;
  std::string name;
  std::string identity, address;  // as routing/facts.py has them
  ListedDevice listed;
  hal_device* handle = nullptr;

  Device& opened();
  // The device once it was opened, else null.
  Device* native() const { return native_.load(std::memory_order_acquire); }

  PlanTable plans;
  std::mutex spare_mutex;
  std::vector<ApiQueue*> queues;        // every one made so far
  std::vector<ApiQueue*> spare_queues;  // released ones, with room for all
  ApiDevice* next = nullptr;            // made before this one
  void before_fork();
  void after_fork(bool child);

 private:
  std::atomic<Device*> native_{nullptr};
  std::mutex opening_;
};

struct ApiBackend {
  Registered row;
  bool tried = false, loading = false;
  Instance* instance = nullptr;
  std::vector<ApiDevice*> devices;
  std::optional<Error> refusal;
};

// Every device is held over a fork; in the child what other threads were opening is refused.
void api_devices_before_fork();
void api_devices_after_fork(bool child);
// Reads the registry once; `path` may be null. Later calls check that no other file is meant.
void need_registry(const char* path = nullptr);
// The device that a list of names gives; null: the default, which is chosen now if need be.
ApiDevice& find_device(const char* names);
ApiDevice& default_device();
void set_default_device(ApiDevice& device);
// All devices, best first; opens what may be opened.
std::vector<ApiDevice*> ranked_devices();
// Why a device may not be chosen without being named; "" when it may.
std::string not_eligible(const ApiDevice& device);
// One sentence for each backend that was refused so far.
std::vector<std::string> refusals();
// The record behind an opened device.
ApiDevice& api_of(const void* device);

}  // namespace hal
