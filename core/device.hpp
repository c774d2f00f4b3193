// An opened device: its table, memory kinds, pools, queues and counters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyhal/sdk/foreign.h"
#include "core/instance.hpp"
#include "core/memory.hpp"

namespace hal {

struct Queue;
struct Module;

// What the core can count about a device. Relaxed: they are statistics.
struct Counters {
  std::atomic<uint64_t> plans_prepared{0}, driver_allocs{0}, driver_frees{0}, pool_allocs{0},
      host_waits{0}, copies{0}, graph_launches{0};
};

// What a device is to other libraries of the process; without a table it shares only host memory.
struct ForeignPlace {
  const anyhal_foreign* table = nullptr;
  int32_t type = 0, id = 0;  // as DLPack numbers devices
};

// Lives until the process ends.
struct HAL_API Device {
  Device(Instance* in, const ListedDevice& listed, std::string device_name);

  Instance* instance;
  const anyhal_table* table;
  anyhal_device* handle = nullptr;
  anyhal_device_info info;
  std::vector<anyhal_memory_kind> kinds;
  std::string name;
  uint64_t address_block = 0;
  bool synchronous = false;
  bool host_memory = false;  // the host reads and writes its blocks by address
  uint32_t compute_kind = 0;
  uint32_t staging_kind = 0;
  bool cells = false;
  std::atomic<bool> lost{false};
  std::string lost_text;
  Counters counters;
  Memory memory;
  Queue* queue = nullptr;  // the default one
  struct Buried {
    anyhal_plan* plan;
    Module* module;  // whose kernel it runs, released after it; or null
    std::vector<Use> uses;
  };
  // Every queue made so far; none is ever destroyed.
  std::vector<Queue*> queues();
  void add_queue(Queue* made);
  // Those in a call at this moment; no allocation where there is none.
  std::vector<Queue*> busy_queues();
  // Devices with queues of their own: what is known of hazards and progress changes under this.
  std::recursive_mutex order;
  std::mutex packing;  // of a constant: one thread makes the copy, others find it
  SpinLock buried_lock;
  std::vector<Buried> buried;
  std::once_flag foreign_asked;  // see foreign_of
  ForeignPlace foreign;

  // Marks the device lost; the first sentence is kept.
  void lose(const std::string& text);
  void lose(const anyhal_error& error);
  void require_alive() const;
  // Releases a plan once no queued call can still need it; collects what waits for that.
  void bury_plan(anyhal_plan* plan, Module* module = nullptr);
  void collect_plans();
  // One of the contract's texts or numbers; empty where the slot is absent or refuses.
  std::vector<uint8_t> query(uint32_t key, uint64_t argument = 0) const;
  // What is changed in moments is held over a fork; what is held while work runs is new in the
  // child, where the threads that held it do not exist.
  void before_fork();
  void after_fork(bool child);

 private:
  SpinLock queues_lock_;
  std::vector<Queue*> queues_;
};

HAL_API std::vector<Device*> all_devices();
// Holds the list and every device; the list is good until `devices_after_fork`.
void devices_before_fork();
void devices_after_fork(bool child);
HAL_API Device* open_device(Instance* instance, uint64_t id, const std::string& name);

}  // namespace hal
