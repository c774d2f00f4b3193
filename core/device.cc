// Opening a device and choosing the memory kinds that the core uses on it.
// SPDX-License-Identifier: Apache-2.0
#include "core/device.hpp"

#include <algorithm>
#include <mutex>
#include <new>

#include "core/kernel.hpp"
#include "core/queue.hpp"

namespace hal {
namespace {

struct Tracked {
  std::mutex mutex;
  std::vector<Device*> devices;
};
Tracked& tracked() {
  static Tracked* t = new Tracked;
  return *t;
}

// Behind the room for an answer; what is there afterwards must be this.
constexpr int kGuardBytes = 64;
constexpr uint8_t kGuardByte = 0xa5;

// Compute: the first device-local kind, else the first. Staging: the first linear host-visible one.
void choose_kinds(Device& d) {
  const auto has = [&](uint32_t i, uint32_t flags) { return (d.kinds[i].flags & flags) == flags; };
  for (uint32_t i = d.kinds.size(); i-- > 0;)
    if (has(i, ANYHAL_MEMORY_DEVICE_LOCAL)) d.compute_kind = i;
  d.staging_kind = d.compute_kind;
  for (uint32_t i = d.kinds.size(); i-- > 0;)
    if (has(i, ANYHAL_MEMORY_HOST_VISIBLE) && !has(i, ANYHAL_MEMORY_CELL)) d.staging_kind = i;
  d.cells = has(d.compute_kind, ANYHAL_MEMORY_CELL);
  d.host_memory =
      !d.cells && has(d.compute_kind, ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT |
                                          ANYHAL_MEMORY_STABLE_ADDRESS);
  if (!has(d.staging_kind, ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_STABLE_ADDRESS))
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "device " + d.name +
                    " offers no linear host-visible memory with a stable address for transfers; "
                    "its backend must list one",
                ANYHAL_REASON_MEMORY_KIND);
}

}  // namespace

Device::Device(Instance* in, const ListedDevice& listed, std::string device_name)
    : instance(in),
      table(&in->table),
      info(listed.info),
      kinds(listed.kinds),
      name(std::move(device_name)),
      synchronous(in->synchronous()),
      memory(this) {
  choose_kinds(*this);
  if (!host_memory && !in->reply.table->queue_copy)
    throw Error(ANYHAL_STATUS_ABI_MISMATCH,
                "device " + name +
                    " has memory that the host cannot address but no queue_copy "
                    "slot; its backend must fill it");
  ErrorRecord error;
  check(table->device_open(in->reply.self, info.id, nullptr, 0, &handle, &address_block, error),
        error, "opening " + name, *in);
  if (!host_memory) address_block = 0;
  queue = new Queue(this);
}

void Device::lose(const anyhal_error& error) { lose(said(error, *instance)); }

std::vector<Queue*> Device::queues() {
  std::lock_guard guard(queues_lock_);
  return queues_;
}

std::vector<Queue*> Device::busy_queues() {
  std::lock_guard guard(queues_lock_);
  std::vector<Queue*> busy;
  for (Queue* q : queues_)
    if (q->lock.is_locked()) busy.push_back(q);
  return busy;
}

void Device::add_queue(Queue* made) {
  std::lock_guard guard(queues_lock_);
  queues_.push_back(made);
}

void Device::lose(const std::string& text) {
  if (lost.exchange(true)) return;
  lost_text = text;
  for (Queue* q : queues()) q->update_plain();  // the general path answers for it
}

void Device::bury_plan(anyhal_plan* plan, Module* module) {
  std::unique_lock ordered(order, std::defer_lock);
  if (!synchronous) ordered.lock();
  Buried one{plan, module, {}};
  if (!synchronous && !lost)
    for (Queue* q : queues())
      if (q->completed.load() < q->submitted) one.uses.push_back({q, q->submitted});
  {
    std::lock_guard guard(buried_lock);
    buried.push_back(std::move(one));
  }
  if (ordered) ordered.unlock();
  collect_plans();
}

void Device::collect_plans() {
  std::unique_lock ordered(order, std::defer_lock);
  if (!synchronous) ordered.lock();
  std::vector<Buried> ready;
  {
    std::lock_guard guard(buried_lock);
    std::erase_if(buried, [&](const Buried& b) {
      for (const Use& use : b.uses)
        if (!lost && !use.queue->settled(use.value)) return false;
      ready.push_back({b.plan, b.module, {}});
      return true;
    });
  }
  for (const Buried& b : ready) {
    ErrorRecord error;
    table->release(instance->reply.self, ANYHAL_OBJECT_PLAN, reinterpret_cast<uint64_t>(b.plan),
                   lost ? uint32_t(ANYHAL_RELEASE_ABANDON) : 0u, error);
  }
  if (ordered) ordered.unlock();  // a module's owner may take locks of its own
  for (const Buried& b : ready) release(b.module);
}

void Device::require_alive() const {
  if (!lost) return;
  static const char* const kRecovery[] = {"it cannot be recovered", "a new process is needed",
                                          "it may be reopened by a new process"};
  throw Error(ANYHAL_STATUS_DEVICE_LOST, "device " + name + " was lost: " + lost_text +
                                             "; other devices go on, " +
                                             kRecovery[info.recovery < 3 ? info.recovery : 0]);
}

std::vector<uint8_t> Device::query(uint32_t key, uint64_t argument) const {
  if (!instance->has_device_query) return {};
  std::vector<uint8_t> value(256);
  for (int attempt = 0; attempt < 2; ++attempt) {
    uint64_t bytes = value.size();
    ErrorRecord error;
    value.resize(bytes + kGuardBytes, kGuardByte);
    const anyhal_status status =
        table->device_query(handle, key, argument, value.data(), &bytes, error);
    const bool past = std::count(value.end() - kGuardBytes, value.end(), kGuardByte) != kGuardBytes;
    value.resize(value.size() - kGuardBytes);
    if (past)
      throw Error(ANYHAL_STATUS_INTERNAL,
                  "asking " + name + " for fact " + std::to_string(key) +
                      ": the backend wrote more than the room it was given; report this to its "
                      "vendor");
    if (status == ANYHAL_STATUS_OK && bytes <= value.size()) {
      value.resize(bytes);
      return value;
    }
    if (bytes <= value.size() || bytes > (64u << 20)) return {};
    value.resize(bytes);
  }
  return {};
}

std::vector<Device*> all_devices() {
  std::lock_guard lock(tracked().mutex);
  return tracked().devices;
}

void Device::before_fork() {
  memory.fork_lock().lock();
  buried_lock.lock();
  queues_lock_.lock();
}

void Device::after_fork(bool child) {
  queues_lock_.unlock();
  buried_lock.unlock();
  memory.fork_lock().unlock();
  if (!child) return;
  new (&order) std::recursive_mutex;
  new (&packing) std::mutex;
  // A synchronous call that was under way wrote the parent's memory; here it was never accepted.
  for (Queue* q : queues_) {
    q->lock.unlock();
    q->update_plain();
  }
}

void devices_before_fork() {
  tracked().mutex.lock();
  for (Device* d : tracked().devices) d->before_fork();
}

void devices_after_fork(bool child) {
  for (Device* d : tracked().devices) d->after_fork(child);
  tracked().mutex.unlock();
}

Device* open_device(Instance* instance, uint64_t id, const std::string& name) {
  for (const ListedDevice& listed : instance->list_devices())
    if (listed.info.id == id) {
      auto* device = new Device(instance, listed, name);
      std::lock_guard lock(tracked().mutex);
      tracked().devices.push_back(device);
      return device;
    }
  throw Error(ANYHAL_STATUS_NOT_FOUND,
              "backend '" + instance->name + "' lists no device with id " + std::to_string(id));
}

}  // namespace hal
