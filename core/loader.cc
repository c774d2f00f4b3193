// dlopen and bookkeeping: from a file name to an Instance, and the list of all.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "core/floating.hpp"
#include "core/instance.hpp"
#include "core/negotiate.hpp"
#include "core/services.hpp"

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
  std::vector<anyhal_device_info> infos(16);
  for (;;) {
    for (auto& info : infos) info = {}, info.size = sizeof(info);
    uint32_t total = 0;
    ErrorRecord error;
    check(table.device_list(reply.self, infos.data(), uint32_t(infos.size()), &total, error), error,
          "listing the devices of backend '" + name + "'", *this);
    if (total > 4096)
      throw Error(ANYHAL_STATUS_INTERNAL, "backend '" + name + "' says it has " +
                                              std::to_string(total) + " devices; it is not used");
    if (total <= infos.size()) {
      infos.resize(total);
      break;
    }
    infos.resize(total);
  }
  std::vector<ListedDevice> out;
  for (auto& info : infos) {
    ListedDevice d;
    d.info = info;
    d.info.name[63] = d.info.arch[31] = d.info.driver[63] = 0;
    if (info.kinds && info.kind_count <= 64)
      d.kinds.assign(info.kinds, info.kinds + info.kind_count);
    d.info.kinds = nullptr;
    if (d.kinds.empty())
      throw Error(ANYHAL_STATUS_INTERNAL, "backend '" + name + "' lists device '" + d.info.name +
                                              "' without a memory kind; it is not used");
    out.push_back(std::move(d));
  }
  warn_of_unread(*this);
  return out;
}

}  // namespace hal
