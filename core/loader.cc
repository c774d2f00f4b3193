// dlopen, handshake, slot checks: everything between a file name and a usable Instance.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "anyhal/ops.h"
#include "core/answers.hpp"
#include "core/executor.hpp"
#include "core/file_limit.hpp"
#include "core/floating.hpp"
#include "core/instance.hpp"
#include "core/text.hpp"

namespace hal {
namespace {

[[noreturn]] void refuse(const char* stage, anyhal_status status, const Instance& in,
                         const std::string& why) {
  throw Error(status, "backend '" + in.name + "' was not loaded from " + in.path + ": " + why, 0,
              stage);
}

std::string version_text(uint32_t v) {
  return std::to_string(v >> 16) + "." + std::to_string(v & 0xffff);
}

// ---- services; `context` is the Instance

Instance& of(void* context) { return *static_cast<Instance*>(context); }

std::atomic<int> g_log_level{2};

void service_log(void* context, int32_t level, const char* text) {
  static const char* const kLevels[] = {"debug", "info", "warning", "error"};
  if (level < g_log_level.load(std::memory_order_relaxed) || !text) return;
  std::fprintf(stderr, "anyhal: %s: %s: %s\n", of(context).name.c_str(),
               kLevels[level < 0   ? 0
                       : level > 3 ? 3
                                   : level],
               text);
}

anyhal_status service_error(void*, anyhal_error* error, anyhal_status status, int32_t reason,
                            const char* text) {
  if (!error) return status;
  error->reason = reason;
  copy_text(error->text, text ? text : "");
  return status;
}

void* service_alloc(void*, uint64_t bytes, uint64_t alignment) {
  void* p = nullptr;
  return posix_memalign(&p, alignment < sizeof(void*) ? sizeof(void*) : alignment,
                        bytes ? bytes : 1) == 0
             ? p
             : nullptr;
}
void service_free(void*, void* pointer) { std::free(pointer); }

void service_parallel(void*, uint32_t count, ParallelFn fn, void* argument) {
  parallel_for(count, fn, argument);
}
uint32_t service_threads(void*) { return executor_thread_count(); }

const char* service_setting(void* context, const char* name) {
  Instance& in = of(context);
  for (size_t i = 0; i < in.settings.size(); ++i)
    if (in.settings[i].first == name) {
      std::lock_guard lock(in.mutex);
      in.asked[i] = 1;
      return in.settings[i].second.c_str();
    }
  return nullptr;
}

// A name that nobody asked for is most likely misspelt. Not refused: a backend may read what hello
// hands over without asking.
void warn_of_unread(Instance& in) {
  std::lock_guard lock(in.mutex);
  for (size_t i = 0; i < in.settings.size(); ++i) {
    const std::string& key = in.settings[i].first;
    if (std::exchange(in.asked[i], 1) || key == "cache_dir" || key == "selftest") continue;
    service_log(&in, 2,
                ("the setting '" + key +
                 "' was given and the backend did not ask for it; "
                 "check its spelling")
                    .c_str());
  }
}

constexpr uint64_t kMostArtefactBytes = 256u << 20;

// Artefacts: one file per key in the folder that the setting "cache_dir" names.
std::string artefact_path(void* context, const char* key) {
  const char* dir = service_setting(context, "cache_dir");
  if (!dir || !*dir || !key) return {};
  char name[32];
  std::snprintf(
      name, sizeof(name), "%016zx.bin",
      std::hash<std::string>{}(of(context).name + '\n' + of(context).build_id + '\n' + key));
  return std::string(dir) + "/" + name;
}

anyhal_status service_cache_get(void* context, const char* key, void* data, uint64_t* bytes) {
  const std::string path = artefact_path(context, key);
  std::error_code unknown;  // opening a pipe would wait for its writer
  if (!bytes || !std::filesystem::is_regular_file(path, unknown)) return ANYHAL_STATUS_NOT_FOUND;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return ANYHAL_STATUS_NOT_FOUND;
  // The file begins with the whole key, so that a hash collision is a miss and never wrong bytes.
  const uint64_t head = std::strlen(key) + 1, total = uint64_t(file.tellg());
  std::string seen(head, '\0');
  file.seekg(0);
  // A damaged entry may claim any size, and a backend makes room for it.
  if (total < head || total > kMostArtefactBytes ||
      !file.read(seen.data(), std::streamsize(head)) || std::memcmp(seen.data(), key, head) != 0)
    return ANYHAL_STATUS_NOT_FOUND;
  const uint64_t capacity = data ? *bytes : 0;
  *bytes = total - head;
  if (!data || capacity < *bytes) return ANYHAL_STATUS_OK;
  return file.read(static_cast<char*>(data), std::streamsize(*bytes)) ? ANYHAL_STATUS_OK
                                                                      : ANYHAL_STATUS_NOT_FOUND;
}

anyhal_status service_cache_put(void* context, const char* key, const void* data, uint64_t bytes) {
  const std::string path = artefact_path(context, key);
  if (path.empty()) return ANYHAL_STATUS_NOT_FOUND;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const FileLimitSignal guard;
  static std::atomic<uint64_t> number{0};
  const std::string part =
      path + ".part" + std::to_string(::getpid()) + "." + std::to_string(++number);
  std::remove(part.c_str());  // of a process that had this number and was ended
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "wb");
  if (!file) return ANYHAL_STATUS_NOT_FOUND;
  const size_t head = std::strlen(key) + 1;
  const bool written =
      std::fwrite(key, 1, head, file) == head && std::fwrite(data, 1, bytes, file) == bytes;
  if (std::fclose(file) != 0 || !written) {
    std::remove(part.c_str());
    return ANYHAL_STATUS_NOT_FOUND;
  }
  return std::rename(part.c_str(), path.c_str()) == 0 ? ANYHAL_STATUS_OK : ANYHAL_STATUS_NOT_FOUND;
}

void service_span(void*, uint64_t, uint64_t, uint64_t, uint32_t) {
  // No queue is created PROFILED yet, so no backend has a span to report.
}

void service_note(void* context, const char* label, int64_t bytes) {
  Instance& in = of(context);
  std::lock_guard lock(in.mutex);
  for (auto& [name, value] : in.notes)
    if (name == label) {
      value = bytes;
      return;
    }
  in.notes.emplace_back(label, bytes);
}

// ---- table

template <class... A>
void stub(anyhal_status (*&slot)(A...)) {
  if (!slot) slot = [](A...) -> anyhal_status { return ANYHAL_STATUS_UNSUPPORTED; };
}

void take_table(Instance& in) {
  const anyhal_table* theirs = in.reply.table;
  if (!theirs) refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in, "its reply has no table");
  if (theirs->size < offsetof(anyhal_table, queue_create))
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table of " + std::to_string(theirs->size) +
               " bytes ends before the required slots " + "(" +
               std::to_string(offsetof(anyhal_table, queue_create)) +
               " bytes); rebuild it with this backend.h");
  // Tables grow by slots: no header will ever have this many, so the word is garbage.
  constexpr uint32_t kTableMax = 1u << 16;
  if (theirs->size > kTableMax)
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table says a size of " + std::to_string(theirs->size) +
               " bytes, which no table has; rebuild it with this backend.h");
  if (theirs->flags)
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table sets flags that this core does not know; upgrade anyhal");
  std::memcpy(&in.table, theirs, std::min<size_t>(theirs->size, sizeof(in.table)));
  anyhal_table& t = in.table;
  const auto require = [&](bool present, const char* slot) {
    if (!present)
      refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
             std::string("its table lacks the required slot ") + slot + "; fill it and rebuild");
  };
  require(t.device_list, "device_list");
  require(t.device_open, "device_open");
  require(t.memory_alloc, "memory_alloc");
  require(t.op_query, "op_query");
  require(t.op_prepare, "op_prepare");
  require(t.op_enqueue, "op_enqueue");
  require(t.release, "release");
  if (!in.synchronous()) {
    require(t.queue_create, "queue_create (it is not SYNCHRONOUS)");
    require(t.queue_signal, "queue_signal (it is not SYNCHRONOUS)");
    require(t.host_wait, "host_wait (it is not SYNCHRONOUS)");
  }
  in.has_queue_wait = t.queue_wait;
  in.has_device_query = t.device_query;
  in.has_constant_pack = t.constant_pack;
  in.has_queue_native = t.queue_native;
  in.has_graph_prepare = t.graph_prepare;
  stub(t.queue_create), stub(t.queue_signal), stub(t.queue_wait), stub(t.host_wait);
  stub(t.queue_copy), stub(t.device_query), stub(t.memory_map), stub(t.memory_import);
  stub(t.constant_pack), stub(t.queue_fill), stub(t.queue_notify), stub(t.graph_prepare);
  stub(t.module_load), stub(t.kernel_prepare), stub(t.queue_native), stub(t.native_handle);
  stub(t.notify), stub(t.extension);
}

void check_reply(const Instance& in) {
  const anyhal_reply& r = in.reply;
  if (r.size != sizeof(anyhal_reply))
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its reply says a size of " + std::to_string(r.size) + " bytes, the frozen record has " +
               std::to_string(sizeof(anyhal_reply)) + "; rebuild it with this backend.h");
  if (r.chosen != ANYHAL_ABI_VERSION)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "it chose contract " + version_text(r.chosen) + " (it offers " +
               version_text(r.abi_min) + " to " + version_text(r.abi_max) + "), this core loads " +
               version_text(ANYHAL_ABI_VERSION) + " only; upgrade the " +
               (r.abi_max < ANYHAL_ABI_VERSION ? "backend" : "core"));
  if (r.chosen < r.abi_min || r.chosen > r.abi_max)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "it chose contract " + version_text(r.chosen) + " outside its own range " +
               version_text(r.abi_min) + " to " + version_text(r.abi_max) +
               "; report this to the backend's vendor");
  const uint32_t known =
      ANYHAL_REPLY_SYNCHRONOUS | ANYHAL_REPLY_HIDDEN_MEMORY | ANYHAL_REPLY_FAULT_ABORTS;
  if ((r.flags & ~known) || r.reserved)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its reply sets flags or reserved words that this core does not know; upgrade anyhal");
  if (r.registry_version == 0)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in, "its reply names no registry version");
}

struct Tracked {
  std::mutex mutex;
  std::vector<Instance*> instances;
};
Tracked& tracked() {
  static Tracked* t = new Tracked;
  return *t;
}

}  // namespace

void set_log_level(int level) { g_log_level.store(level); }

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
                        const std::string& copy) {
  auto owned = std::make_unique<Instance>();
  Instance& in = *owned;
  in.name = name, in.path = path, in.settings = std::move(settings);
  // Constructors of a library can change how the host computes (flush to zero); put it back.
  FloatingGuard floating;
  in.library = dlopen((copy.empty() ? path : copy).c_str(), RTLD_NOW | RTLD_LOCAL);
  in.changed_floating |= floating.restore();
  if (!in.library) {
    const char* said = dlerror();
    std::string why = said ? said : "unknown";
    if (const size_t at = why.find(copy); !copy.empty() && at != std::string::npos)
      why.replace(at, copy.size(), path);  // the copy's name says nothing to anybody
    refuse("open", ANYHAL_STATUS_NOT_FOUND, in, "the system's loader says: " + why);
  }
  auto entry = reinterpret_cast<anyhal_backend_main_fn>(dlsym(in.library, ANYHAL_ENTRY_SYMBOL));
  if (!entry)
    refuse("entry", ANYHAL_STATUS_ABI_MISMATCH, in,
           "it exports no " ANYHAL_ENTRY_SYMBOL "; it is not a backend of this contract");

  in.services = {sizeof(anyhal_services),
                 0,
                 &in,
                 service_log,
                 service_error,
                 service_alloc,
                 service_free,
                 service_parallel,
                 service_threads,
                 service_cache_get,
                 service_cache_put,
                 service_setting,
                 service_span,
                 service_note};
  in.asked.resize(in.settings.size());
  for (const auto& [key, value] : in.settings) in.given.push_back({key.c_str(), value.c_str()});
  const anyhal_hello hello = {sizeof(anyhal_hello),
                              0,
                              ANYHAL_ABI_VERSION,
                              ANYHAL_ABI_VERSION,
                              &in.services,
                              in.name.c_str(),
                              in.given.data(),
                              uint32_t(in.given.size()),
                              0};
  in.reply.size = sizeof(anyhal_reply);
  ErrorRecord error;
  const anyhal_status status = entry(&hello, &in.reply, error);
  in.changed_floating |= floating.restore();
  if (status != ANYHAL_STATUS_OK) {
    const std::string why = said(error.record, in);
    refuse(status == ANYHAL_STATUS_ABI_MISMATCH ? "negotiate" : "init", status, in,
           why.empty() ? std::string("it answered ") + status_name(status) : why);
  }
  check_reply(in);
  take_table(in);
  in.build_id = in.reply.build_id ? in.reply.build_id : "";
  std::lock_guard lock(tracked().mutex);
  tracked().instances.push_back(owned.get());
  return owned.release();
}

std::vector<ListedDevice> Instance::list_devices() {
  const std::string what = "listing the devices of backend '" + name + "'";
  // The last record is a guard: it is not offered, and must stay as it is.
  constexpr size_t kGuards = 1;
  std::vector<anyhal_device_info> infos(16 + kGuards);
  uint32_t total = 0;
  FloatingGuard floating;
  for (;;) {
    for (auto& info : infos) info = {}, info.size = sizeof(info);
    const uint32_t capacity = uint32_t(infos.size() - kGuards);
    ErrorRecord error;
    const anyhal_status status =
        table.device_list(reply.self, infos.data(), capacity, &total, error);
    changed_floating |= floating.restore();
    check(status, error, what, *this);
    anyhal_device_info untouched = {};
    untouched.size = sizeof(untouched);
    if (std::memcmp(&infos.back(), &untouched, sizeof(untouched)) != 0)
      throw Error(ANYHAL_STATUS_INTERNAL,
                  what +
                      ": the backend wrote past the records' end, which their `size` gives; "
                      "report this to its vendor");
    if (total > 4096)
      throw Error(ANYHAL_STATUS_INTERNAL, "backend '" + name + "' says it has " +
                                              std::to_string(total) + " devices; it is not used");
    if (total <= capacity) break;
    infos.resize(total + kGuards);
  }
  infos.resize(total);
  std::vector<ListedDevice> out;
  for (auto& info : infos) {
    ListedDevice d;
    d.info = info;
    check_device(*this, d);
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
