// Trust, loading and the built-in policy: routing/policy.py without decompositions and copies.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/devices.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <set>
#include <tuple>

#include "core/api/fork.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"
#include "core/open.hpp"
#include "core/process.hpp"

namespace hal {
namespace {

struct State {
  std::recursive_mutex mutex;  // loading, choosing; never held while an op runs
  std::string path;
  bool read = false;
  std::vector<ApiBackend*> backends;
  std::atomic<ApiDevice*> chosen{nullptr};
  std::atomic<ApiDevice*> devices{nullptr};  // the last one made
};
State& state() {
  static auto* s = new State;
  return *s;
}

constexpr const char* kAgain = "; run `anyhal devices --write-registry`";

[[noreturn]] void refuse(const Registered& row, anyhal_status status, int32_t reason,
                         const std::string& why) {
  throw Error(status, "backend '" + row.name + "' was not loaded from " + row.path + ": " + why,
              reason);
}

// What the registry says of a backend may allow it to be opened.
void require_allowed(const Registered& row) {
  if (row.path.ends_with(".py"))
    refuse(row, ANYHAL_STATUS_UNSUPPORTED, HAL_REASON_NEEDS_PYTHON,
           "it is a Python file, and only Python programs run those; name another device");
  const std::string abi = std::to_string(ANYHAL_ABI_MAJOR) + "." + std::to_string(ANYHAL_ABI_MINOR);
  if (row.state == kStates[std::size(kStates) - 1])
    refuse(row, ANYHAL_STATUS_UNSUPPORTED, HAL_REASON_STATE,
           std::string("it is quarantined: it failed a check on this machine; repair it") + kAgain);
  if (row.abi != abi)
    refuse(row, ANYHAL_STATUS_ABI_MISMATCH, HAL_REASON_NONE,
           "it is for contract " + row.abi + ", this core loads " + abi + " only; rebuild it");
}

// What to open: a private copy of the file, which is still the one that Python found and trusted.
std::string copy_of(const Registered& row) {
  try {
    open_first(row.first);
    return trusted_copy(row.path, row.sha256);
  } catch (const NotOpened& e) {
    if (e.why == NotOpened::kChanged)
      refuse(row, ANYHAL_STATUS_ABI_MISMATCH, HAL_REASON_HASH,
             e.text + "; install it again, or trust it" + kAgain);
    if (e.why == NotOpened::kUntrusted)
      refuse(row, ANYHAL_STATUS_ABI_MISMATCH, HAL_REASON_UNTRUSTED,
             e.text + "; take that right away (chown, chmod go-w)");
    if (e.why == NotOpened::kNoRoom || e.why == NotOpened::kNoMemory)
      refuse(row, ANYHAL_STATUS_OUT_OF_MEMORY, HAL_REASON_NONE, e.text);
    refuse(row, ANYHAL_STATUS_NOT_FOUND, HAL_REASON_NONE, e.text + "; install it" + kAgain);
  }
}

constexpr const char* kHexDigits = "0123456789abcdef";

std::string uuid_of(const anyhal_device_info& info) {
  char text[40];
  bool known = false;
  for (int i = 0; i < 16; ++i) {
    std::snprintf(text + 2 * i, 3, "%02x", info.uuid[i]);
    known |= info.uuid[i] != 0;
  }
  return known ? text : "";
}

std::string address_of(const anyhal_device_info& info) {
  if (!info.pci_domain && !info.pci_function) return "";
  char text[40];
  std::snprintf(text, sizeof(text), "%04x:%02x:%02x.%u", info.pci_domain,
                info.pci_function >> 8 & 0xff, info.pci_function >> 3 & 31, info.pci_function & 7);
  return text;
}

// In the order of their numbers: the rule of `_numbered` in runtime/device.py.
void number(std::vector<ListedDevice>& listed) {
  const auto bus = [](const ListedDevice& d) {
    return std::pair(d.info.pci_domain, d.info.pci_function);
  };
  std::set<std::pair<uint32_t, uint32_t>> keys;
  for (const ListedDevice& d : listed)
    if (bus(d).first || bus(d).second) keys.insert(bus(d));
  if (keys.size() != listed.size()) return;
  std::sort(listed.begin(), listed.end(),
            [&](const ListedDevice& a, const ListedDevice& b) { return bus(a) < bus(b); });
}

void add_devices(ApiBackend& b) {
  std::vector<ListedDevice> listed = b.instance->list_devices();
  number(listed);
  std::string weaker;  // a backend is what it is on its least vouched device
  for (uint32_t i = 0; i < listed.size(); ++i) {
    auto* d = new ApiDevice;
    d->backend = &b, d->index = i, d->listed = std::move(listed[i]);
    d->name = b.row.name + ":" + std::to_string(i);
    const anyhal_device_info& info = d->listed.info;
    const std::string on_it = state_on(b.row, info.arch, info.driver, std::time(nullptr));
    if (on_it != b.row.state) weaker = on_it;
    d->address = address_of(d->listed.info);
    d->identity = uuid_of(d->listed.info);
    if (d->identity.empty()) d->identity = d->address;
    d->handle =
        static_cast<hal_device*>(handles(Kind::kDevice).add([&](Slot& slot) { slot.object = d; }));
    d->next = state().devices.load();
    state().devices.store(d);
    b.devices.push_back(d);
  }
  if (!weaker.empty()) b.row.state = weaker;
}

// Loads a backend once; its failure is kept and costs only itself.
void load(ApiBackend& b) {
  if (std::exchange(b.tried, true)) return;
  b.loading = true;
  try {
    require_allowed(b.row);
    auto settings = b.row.settings;
    settings.emplace_back("folder", b.row.path.substr(0, b.row.path.rfind('/')));
    b.instance = load_instance(b.row.path, b.row.name, settings, copy_of(b.row));
    b.instance->asked.back() = 1;
    add_devices(b);
  } catch (const Error& why) {
    b.refusal = why;
  }
  b.loading = false;
}

bool usually_routed(const ApiBackend& b) {
  return b.row.allowed || std::strcmp(b.row.state.c_str(), kStates[3]) != 0;
}

bool is_called(const ApiDevice& d, const std::string& name) {
  const std::string plain = plain_identity(name);
  return !plain.empty() && (plain == d.identity || plain == d.address);
}

bool visible(const ApiDevice& d) {
  const char* names = environment("ANYHAL_VISIBLE_DEVICES");
  if (!names) return true;
  for (const std::string& name : split_names(names, ','))
    if (names_device(name, d.backend->row.name, d.index) || is_called(d, name)) return true;
  return false;
}

// Why it cannot be used whoever asks.
std::string unusable(const ApiDevice& d) {
  if (!visible(d)) return "ANYHAL_VISIBLE_DEVICES leaves it out";
  const Device* native = d.native();
  return native && native->lost ? "it was lost: " + native->lost_text : "";
}

constexpr int32_t kIntegratedRank = 55;  // of Policy in routing/policy.py

int32_t rank_of(const ApiDevice& d) {
  const bool integrated = d.listed.info.flags & ANYHAL_DEVICE_INTEGRATED;
  return integrated ? std::min(d.backend->row.rank, kIntegratedRank) : d.backend->row.rank;
}

// Sort key, best first; the steps of routing/policy.py.
auto preference(const ApiDevice& d) {
  const anyhal_device_info& info = d.listed.info;
  const auto rank = std::find(std::begin(kStates), std::end(kStates), d.backend->row.state);
  return std::tuple(info.flags & ANYHAL_DEVICE_DISPLAY_ONLY, -int64_t(rank_of(d)),
                    info.flags & ANYHAL_DEVICE_INTEGRATED, rank - std::begin(kStates),
                    -int64_t(d.listed.kinds[0].heap_bytes), d.index, d.name);
}

bool same_card(const ApiDevice& a, const ApiDevice& b) {
  return (!a.identity.empty() && a.identity == b.identity) ||
         (!a.address.empty() && a.address == b.address);
}

// Best first; routes to one card stand together.
void sort(std::vector<ApiDevice*>& devices) {
  std::sort(devices.begin(), devices.end(),
            [](const ApiDevice* a, const ApiDevice* b) { return preference(*a) < preference(*b); });
  std::vector<ApiDevice*> ordered;
  std::vector<bool> placed(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    if (placed[i]) continue;
    ordered.push_back(devices[i]), placed[i] = true;
    for (size_t k = ordered.size() - 1; k < ordered.size(); ++k)  // grows by what belongs to it
      for (size_t j = i + 1; j < devices.size(); ++j)
        if (!placed[j] && same_card(*ordered[k], *devices[j]))
          ordered.push_back(devices[j]), placed[j] = true;
  }
  devices = ordered;
}

std::string near_names(const std::string& name) {
  std::vector<std::string> known;
  for (const ApiBackend* b : state().backends) {
    known.push_back(b->row.name);
    for (const ApiDevice* d : b->devices) known.push_back(d->name);
  }
  const std::string near = nearest(name, known);
  return near.empty() ? "" : ", did you mean " + near + "?";
}

// The best usable device that one name gives, or null and why there is none.
ApiDevice* first_usable(const std::string& name, std::string& why, std::optional<Error>& refused) {
  std::vector<ApiDevice*> found;
  const std::string plain = plain_identity(name);
  const bool uuid = plain.size() == 32 && plain.find_first_not_of(kHexDigits) == std::string::npos;
  for (ApiBackend* b : state().backends) {
    if (uuid || !is_device_name(name)) load(*b);  // it may be an identity
    if (!names_backend(name, b->row.name)) {
      for (ApiDevice* d : b->devices)
        if (is_called(*d, name)) found.push_back(d);
      continue;
    }
    load(*b);
    if (b->refusal) {
      why = b->refusal->text, refused = refused ? refused : b->refusal;
      return nullptr;
    }
    for (ApiDevice* d : b->devices)
      if (names_device(name, b->row.name, d->index)) found.push_back(d);
    if (b->devices.empty()) why = "backend " + b->row.name + " finds no device";
  }
  sort(found);
  for (ApiDevice* d : found) {
    const std::string blocked = unusable(*d);
    if (blocked.empty()) return d;
    if (why.empty()) why = d->name + " cannot be used: " + blocked;
  }
  if (why.empty() && !is_device_name(name)) {
    const std::string near = near_names(name);
    invalid("cannot read '" + name +
            "' as a device: it is neither chip nor chip:index in lower case" +
            (near.empty() ? "; write a name that `anyhal devices` prints" : near));
  }
  if (why.empty()) why = name + " is not in the registry" + near_names(name);
  return nullptr;
}

// That something else was taken than what was asked for first is told once, as in Python.
void tell_passed_over(const char* names, const std::string& taken, const std::string& why) {
  static auto* told = new std::set<std::string>;  // under the state's lock
  const std::string text = taken + " was selected from '" + names + "': " + why;
  if (told->insert(text).second) warn(text);
}

}  // namespace

Device& ApiDevice::opened() {
  if (Device* d = native()) return *d;
  std::lock_guard guard(opening_);
  if (Device* d = native()) return *d;
  Device* d = open_device(backend->instance, listed.info.id, name);
  native_.store(d, std::memory_order_release);
  return *d;
}

void ApiDevice::before_fork() { spare_mutex.lock(); }

void ApiDevice::after_fork(bool child) {
  spare_mutex.unlock();
  if (!child) return;
  new (&opening_) std::mutex;
  for (ApiQueue* q : queues) new (&q->mutex) std::recursive_mutex;
  plans.after_fork();
}

void api_devices_before_fork() {
  for (ApiDevice* d = state().devices.load(); d; d = d->next) d->before_fork();
}

void api_devices_after_fork(bool child) {
  State& s = state();
  for (ApiDevice* d = s.devices.load(); d; d = d->next) d->after_fork(child);
  if (!child) return;
  new (&s.mutex) std::recursive_mutex;
  for (ApiBackend* b : s.backends) {
    if (!b->loading) continue;
    b->loading = false;
    new (&b->devices) std::vector<ApiDevice*>;
    b->refusal = Error(ANYHAL_STATUS_UNSUPPORTED,
                       "backend '" + b->row.name +
                           "' was being loaded by another thread when this process was forked; "
                           "fork before or after, or start a new process");
  }
}

void need_registry(const char* path) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  if (s.read) {
    if (path && s.path != path)
      invalid("cannot read the registry " + std::string(path) + ": this process uses " + s.path +
                  "; name the file before any other call",
              HAL_REASON_REGISTRY);
    return;
  }
  apply_environment();
  const std::string file = path ? path : registry_path();
  for (Registered& row : read_registry(file)) {
    s.backends.push_back(new ApiBackend);
    s.backends.back()->row = std::move(row);
  }
  s.path = file, s.read = true;
  watch_forks();
  watch_api_forks();
}

ApiDevice& find_device(const char* names) {
  need_registry();
  std::lock_guard guard(state().mutex);
  if (!names) {
    // Best rank first: what ranks below a device that may be chosen is not even loaded.
    std::vector<ApiBackend*> backends;
    for (ApiBackend* b : state().backends)
      if (usually_routed(*b)) backends.push_back(b);
    std::stable_sort(
        backends.begin(), backends.end(),
        [](const ApiBackend* a, const ApiBackend* b) { return a->row.rank > b->row.rank; });
    std::vector<ApiDevice*> all;
    std::string passed;
    int32_t enough = INT32_MIN;
    for (ApiBackend* b : backends) {
      if (b->row.rank < enough) break;
      load(*b);
      for (ApiDevice* d : b->devices) {
        if (const std::string why = not_eligible(*d); !why.empty()) {
          passed += "; " + d->name + ": " + why;
          continue;
        }
        all.push_back(d);
        enough = std::max(enough, rank_of(*d));
      }
    }
    if (all.empty()) {
      std::string text = "no device may be chosen without being named" + passed;
      for (const std::string& one : refusals()) text += "; " + one;
      throw Error(ANYHAL_STATUS_NOT_FOUND, text + "; the registry is " + state().path);
    }
    sort(all);
    return *all[0];
  }
  const std::vector<std::string> parts = split_names(names, '|');
  if (std::any_of(parts.begin(), parts.end(), [](const auto& p) { return p.empty(); }))
    invalid(std::string("cannot select a device from '") + names +
            "': a name is missing; write chip or chip:index, several separated by '|'");
  std::string passed;
  std::optional<Error> refused;
  for (const std::string& part : parts) {
    std::string why;
    if (ApiDevice* d = first_usable(part, why, refused)) {
      if (!passed.empty()) tell_passed_over(names, d->name, passed);
      return *d;
    }
    passed += (passed.empty() ? "" : "; ") + why;
  }
  throw Error(refused ? refused->status : ANYHAL_STATUS_NOT_FOUND,
              std::string("cannot select a device from '") + names + "': " + passed +
                  "; the registry is " + state().path,
              refused ? refused->reason : int32_t(HAL_REASON_NONE));
}

ApiDevice& default_device() {
  if (ApiDevice* d = state().chosen.load(std::memory_order_acquire)) return *d;
  ApiDevice& d = find_device(nullptr);
  ApiDevice* none = nullptr;
  state().chosen.compare_exchange_strong(none, &d);
  return none ? *none : d;
}

void set_default_device(ApiDevice& device) { state().chosen.store(&device); }

std::vector<ApiDevice*> ranked_devices() {
  need_registry();
  std::lock_guard guard(state().mutex);
  std::vector<ApiDevice*> eligible, others;
  for (ApiBackend* b : state().backends) {
    load(*b);
    for (ApiDevice* d : b->devices) (not_eligible(*d).empty() ? eligible : others).push_back(d);
  }
  sort(eligible), sort(others);
  eligible.insert(eligible.end(), others.begin(), others.end());
  return eligible;
}

std::string not_eligible(const ApiDevice& d) {
  const std::string why = unusable(d);
  if (!why.empty()) return why;
  if (d.listed.info.flags & ANYHAL_DEVICE_DISPLAY_ONLY) return "it only drives a display; name it";
  if (d.listed.info.flags & ANYHAL_DEVICE_SIMULATED) return "it is simulated; name it";
  return usually_routed(*d.backend) ? "" : "it is " + d.backend->row.state + "; name it";
}

std::vector<std::string> refusals() {
  std::lock_guard guard(state().mutex);
  std::vector<std::string> out;
  for (const ApiBackend* b : state().backends)
    if (b->refusal) out.push_back(b->refusal->text);
  return out;
}

ApiDevice& api_of(const void* device) {
  return *slot_of(device, Kind::kDevice, "device").as<ApiDevice>();
}

}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_registry_read(const char* path, hal_error* error) {
  return at_edge(error, [&] { need_registry(path); });
}

hal_status hal_device_find(const char* names, hal_device** out_device, hal_error* error) {
  return at_edge(error, [&] {
    need(out_device, "out_device");
    *out_device = find_device(names).handle;
  });
}

hal_status hal_select_backend(const char* names, hal_device** out_device, hal_error* error) {
  return at_edge(error, [&] {
    ApiDevice& d = find_device(names);
    set_default_device(d);
    if (out_device) *out_device = d.handle;
  });
}

hal_status hal_device_list(hal_device** devices, uint32_t capacity, uint32_t* out_count,
                           hal_error* error) {
  return at_edge(error, [&] {
    need(out_count, "out_count");
    if (capacity) need(devices, "devices");
    const std::vector<ApiDevice*> all = ranked_devices();
    for (uint32_t i = 0; i < std::min<size_t>(capacity, all.size()); ++i)
      devices[i] = all[i]->handle;
    *out_count = uint32_t(all.size());
  });
}

hal_status hal_device_describe(hal_device* device, hal_device_info* out_info, hal_error* error) {
  return at_edge(error, [&] {
    need(out_info, "out_info");
    const ApiDevice& d = api_of(device);
    if (out_info->size < sizeof(*out_info))
      invalid("describing " + d.name + ": out_info->size is " + std::to_string(out_info->size) +
              "; set it to sizeof(hal_device_info)");
    const anyhal_device_info& info = d.listed.info;
    const anyhal_memory_kind& kind = d.listed.kinds[0];
    hal_device_info out = {};
    out.size = sizeof(out), out.rank = d.backend->row.rank, out.memory_bytes = kind.heap_bytes;
    copy_text(out.name, d.name), copy_text(out.backend, d.backend->row.name);
    copy_text(out.state, d.backend->row.state);
    copy_text(out.arch, info.arch), copy_text(out.model, info.name);
    out.synchronous = d.backend->instance->synchronous();
    const uint32_t host =
        ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS;
    const Device* native = d.native();
    out.host_memory = native ? native->host_memory
                             : (kind.flags & host) == host && !(kind.flags & ANYHAL_MEMORY_CELL);
    *out_info = out;
  });
}

}  // extern "C"
