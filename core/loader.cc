// dlopen and bookkeeping: from a file name to an Instance, and the list of all.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/answers.hpp"
#include "core/floating.hpp"
#include "core/instance.hpp"
#include "core/negotiate.hpp"
#include "core/services.hpp"
#include "core/strided.hpp"

namespace hal {
namespace {

struct Tracked {
  std::mutex mutex;
  std::vector<Instance*> instances;
};
Tracked& tracked() {
  static Tracked* t = new Tracked;
  return *t;
}

// One device of the list, with copies of its memory kinds, after they were looked at.
ListedDevice listed(const Instance& in, const char* record) {
  ListedDevice d;
  d.info = known_part<anyhal_device_info>(record, in.sizes.device_info);
  std::memcpy(&d.info.size, record, sizeof(d.info.size));  // as it stands there
  check_device(in, d.info);
  const auto* kinds = reinterpret_cast<const char*>(std::exchange(d.info.kinds, nullptr));
  for (uint32_t k = 0; k < d.info.kind_count; ++k, kinds += in.sizes.memory_kind) {
    d.kinds.push_back(known_part<anyhal_memory_kind>(kinds, in.sizes.memory_kind));
    std::memcpy(&d.kinds.back().size, kinds, sizeof(d.kinds.back().size));
    check_kind(in, d.info, d.kinds.back());
  }
  return d;
}

}  // namespace

std::vector<Instance*> all_instances() {
  std::lock_guard lock(tracked().mutex);
  return tracked().instances;
}

void instances_before_fork() {
  tracked().mutex.lock();
  for (Instance* in : tracked().instances) in->mutex.lock();
}

void instances_after_fork() {
  for (Instance* in : tracked().instances) in->mutex.unlock();
  tracked().mutex.unlock();
}

Instance* load_instance(const std::string& path, const std::string& name,
                        std::vector<std::pair<std::string, std::string>> settings,
                        const std::string& copy, anyhal_backend_main_fn given) {
  auto owned = std::make_unique<Instance>();
  Instance& in = *owned;
  in.name = name, in.path = path, in.settings = std::move(settings);
  // Constructors of a library can change how the host computes (flush to zero); put it back.
  FloatingGuard floating;
  if (!given) in.library = dlopen((copy.empty() ? path : copy).c_str(), RTLD_NOW | RTLD_LOCAL);
  in.changed_floating |= floating.restore();
  if (!in.library && !given) {
    const char* said = dlerror();
    std::string why = said ? said : "unknown";
    if (const size_t at = why.find(copy); !copy.empty() && at != std::string::npos)
      why.replace(at, copy.size(), path);  // the copy's name says nothing to anybody
    refuse("open", ANYHAL_STATUS_NOT_FOUND, in, "the system's loader says: " + why);
  }
  const auto entry =
      given ? given
            : reinterpret_cast<anyhal_backend_main_fn>(dlsym(in.library, ANYHAL_ENTRY_SYMBOL));
  if (!entry)
    refuse("entry", ANYHAL_STATUS_ABI_MISMATCH, in,
           "it exports no " ANYHAL_ENTRY_SYMBOL "; it is not a backend of this contract");

  negotiate(in, entry);
  in.build_id = in.reply.build_id ? in.reply.build_id : "";
  std::lock_guard lock(tracked().mutex);
  tracked().instances.push_back(owned.get());
  return owned.release();
}

std::vector<ListedDevice> Instance::list_devices() {
  const std::string what = "listing the devices of backend '" + name + "'";
  const uint32_t stride = sizes.device_info;
  // Behind the last record that is offered lies a guard, which must stay as it is.
  const std::vector<char> guard(stride, 0x5c);
  std::vector<uint64_t> room;
  uint32_t total = 0;
  FloatingGuard floating;
  for (uint32_t capacity = 16;; capacity = total) {
    room.assign(size_t(capacity + 1) * stride / sizeof(uint64_t) + 1, 0);
    auto* infos = reinterpret_cast<char*>(room.data());
    char* const end = infos + size_t(capacity) * stride;
    const uint32_t known = std::min<uint32_t>(stride, sizeof(anyhal_device_info));
    for (char* at = infos; at < end; at += stride) std::memcpy(at, &known, sizeof(known));
    std::memcpy(end, guard.data(), stride);
    ErrorRecord error;
    const anyhal_status status = table.device_list(
        reply.self, reinterpret_cast<anyhal_device_info*>(infos), capacity, &total, error);
    changed_floating |= floating.restore();
    check(status, error, what, *this);
    if (std::memcmp(end, guard.data(), stride) != 0)
      throw Error(ANYHAL_STATUS_INTERNAL,
                  what +
                      ": the backend wrote past the records' end, which their `size` gives; "
                      "report this to its vendor");
    if (total > 4096)
      throw Error(ANYHAL_STATUS_INTERNAL, "backend '" + name + "' says it has " +
                                              std::to_string(total) + " devices; it is not used");
    if (total <= capacity) break;
  }
  std::vector<ListedDevice> out;
  for (uint32_t i = 0; i < total; ++i) {
    ListedDevice d = listed(*this, reinterpret_cast<const char*>(room.data()) + i * stride);
    for (const ListedDevice& other : out)
      if (other.info.id == d.info.id)
        throw Error(ANYHAL_STATUS_INTERNAL, "backend '" + name + "' lists two devices with id " +
                                                std::to_string(d.info.id) + "; it is not used");
    out.push_back(std::move(d));
  }
  warn_of_unread(*this);
  return out;
}

}  // namespace hal
