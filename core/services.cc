// What the core offers to a backend: log, error texts, memory, threads, artefacts, settings, notes.
// SPDX-License-Identifier: Apache-2.0
#include "core/services.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>

#include "core/executor.hpp"
#include "core/file_limit.hpp"
#include "core/text.hpp"

namespace hal {
namespace {

// `context` is the Instance.
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

}  // namespace

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

namespace {

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
  struct stat info = {};  // opening a pipe would wait for its writer
  if (!bytes || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return ANYHAL_STATUS_NOT_FOUND;
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

// Costs time in each process, so it is said, once.
anyhal_status not_kept(void* context, const std::string& why) {
  if (!of(context).told_not_kept.exchange(true))
    service_log(context, 2,
                ("what is compiled cannot be kept (" + why +
                 ") and is compiled again in each process; make room there, or set ANYHAL_CACHE to "
                 "a folder that only you can write")
                    .c_str());
  return ANYHAL_STATUS_NOT_FOUND;
}

anyhal_status service_cache_put(void* context, const char* key, const void* data, uint64_t bytes) {
  const std::string path = artefact_path(context, key);
  if (path.empty()) {
    const bool wanted = key && service_setting(context, "cache_dir");
    return wanted ? not_kept(context, "no folder is safe") : ANYHAL_STATUS_NOT_FOUND;
  }
  for (size_t at = 1; (at = path.find('/', at)) != std::string::npos; ++at)
    ::mkdir(path.substr(0, at).c_str(), 0777);  // most exist; what fails shows at the file
  const FileLimitSignal guard;
  static std::atomic<uint64_t> number{0};
  const std::string part =
      path + ".part" + std::to_string(::getpid()) + "." + std::to_string(++number);
  std::remove(part.c_str());  // of a process that had this number and was ended
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "wb");
  if (!file) return not_kept(context, part + ": " + std::strerror(errno));
  const size_t head = std::strlen(key) + 1;
  bool done = std::fwrite(key, 1, head, file) == head && std::fwrite(data, 1, bytes, file) == bytes;
  int why = errno;
  if (std::fclose(file) != 0 && done) done = false, why = errno;
  if (done && std::rename(part.c_str(), path.c_str()) != 0) done = false, why = errno;
  if (done) return ANYHAL_STATUS_OK;
  std::remove(part.c_str());
  return not_kept(context, path + ": " + std::strerror(why));
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

}  // namespace

void warn(const std::string& text) {
  if (g_log_level.load(std::memory_order_relaxed) <= 2)
    std::fprintf(stderr, "anyhal: warning: %s\n", text.c_str());
}

void set_log_level(int level) { g_log_level.store(level); }

void give_services(Instance& in) {
  anyhal_services& s = in.services;
  s.size = sizeof(s), s.context = &in;
  s.log = service_log;
  s.error_text = service_error;
  s.host_alloc = service_alloc;
  s.host_free = service_free;
  s.parallel_for = service_parallel;
  s.thread_count = service_threads;
  s.cache_get = service_cache_get;
  s.cache_put = service_cache_put;
  s.setting = service_setting;
  s.span = service_span;
  s.ledger_note = service_note;
}

}  // namespace hal
