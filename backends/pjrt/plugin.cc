// Opening a plugin without letting it or its environment end the process.
// SPDX-License-Identifier: Apache-2.0
#include "plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "anyhal/sdk/library.hpp"
#include "program.h"

namespace hal::pjrt {

std::atomic<bool> g_forked{false};
std::atomic<uint64_t> g_counts[kCounters] = {};

namespace {

using sdk::Failure;

std::atomic<bool> g_started{false};  // a client was made in this process, or tried to

// While a plugin starts: its log lines stay away from the host's stderr, and away from the plugin
// what it ends the process over: a flag of XLA_FLAGS that it does not know, and more threads than
// can be made.
class QuietEnvironment {
 public:
  QuietEnvironment() : lock_(mutex()) {
    hide("XLA_FLAGS", 0);
    hide("PJRT_NPROC", kThreadsMax);
    hide("NPROC", kThreadsMax);
    quiet_ = std::getenv("TF_CPP_MIN_LOG_LEVEL") == nullptr;
    if (quiet_) setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0);
  }
  ~QuietEnvironment() {
    if (quiet_) unsetenv("TF_CPP_MIN_LOG_LEVEL");
    for (const auto& [name, value] : hidden_) setenv(name, value.c_str(), 1);
  }

 private:
  static constexpr long kThreadsMax = 1024;
  static std::mutex& mutex() {
    static std::mutex* m = new std::mutex;
    return *m;
  }
  // Numbers up to `most` stay; with 0 everything is hidden.
  void hide(const char* name, long most) {
    const char* value = std::getenv(name);
    if (value == nullptr || (most != 0 && std::strtol(value, nullptr, 10) <= most)) return;
    hidden_.emplace_back(name, value);
    unsetenv(name);
  }
  std::lock_guard<std::mutex> lock_;
  std::vector<std::pair<const char*, std::string>> hidden_;
  bool quiet_;
};

void require_library(const std::string& path) {
  struct stat info = {};
  const bool there = stat(path.c_str(), &info) == 0;
  if (!there || !S_ISREG(info.st_mode))
    throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY,
                  "%.160s: %s; correct ANYHAL_PJRT_PLUGINS", path.c_str(),
                  there ? "it is no regular file" : "there is no such file");
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY,
                  "%.160s cannot be read: %.40s; give the right to read it", path.c_str(),
                  std::strerror(errno));
  const uint64_t end = sdk::library_end(file);
  close(file);
  if (end == 0 || end > static_cast<uint64_t>(info.st_size))
    throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY,
                  "%.160s: it is not a whole library; install the plugin again", path.c_str());
}

// 128 bits at memory speed; names a file, guards against nobody.
std::string hash_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info = {};
  if (file < 0) return "";
  if (fstat(file, &info) != 0) info.st_size = 0;
  const size_t bytes = static_cast<size_t>(info.st_size);
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return "";
  const std::string hash = hash_bytes(mapped, bytes);
  munmap(mapped, bytes);
  return hash;
}

}  // namespace

void forked() {
  if (g_started) g_forked = true;
}

Plugin::Plugin(std::string path) : path_(std::move(path)) {
  file_ = path_.substr(path_.find_last_of('/') + 1);
  if (path_.empty() || path_[0] != '/')
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "'%.160s' is not an absolute path; write it whole in ANYHAL_PJRT_PLUGINS",
                  path_.c_str());
  if (g_forked)
    throw Failure(ANYHAL_STATUS_DEVICE_LOST, 0,
                  "%.160s: this process was forked after a plugin had started; start it with "
                  "exec",
                  path_.c_str());
  require_library(path_);
  QuietEnvironment quiet;
  void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY,
                  "%.200s; install the plugin again", dlerror());
  auto entry = reinterpret_cast<api::GetPjrtApi>(dlsym(library, "GetPjrtApi"));
  table_ = entry != nullptr ? entry() : nullptr;
  if (table_ == nullptr || table_->header.struct_size < offsetof(api::Table, slots))
    throw Failure(ANYHAL_STATUS_ABI_MISMATCH, ANYHAL_REASON_DRIVER,
                  "%.160s has no GetPjrtApi that answers; it is no PJRT plugin", file_.c_str());
  if (major() != 0)
    throw Failure(ANYHAL_STATUS_ABI_MISMATCH, ANYHAL_REASON_DRIVER,
                  "%.120s speaks PJRT %d.%d, and 0 is the only major version known here; use a "
                  "plugin of it",
                  file_.c_str(), major(), minor());
  require_slots();
  if (has(api::kPluginInitialize)) {
    api::Args<api::PluginInitialize> args;
    must("initialising the plugin", api::kPluginInitialize, args);
  }
}

bool Plugin::has(api::Slot slot) const {
  const size_t end = offsetof(api::Table, slots) + (slot + 1) * sizeof(api::AnySlot);
  return end <= table_->header.struct_size && table_->slots[slot] != nullptr;
}

void Plugin::require_slots() const {
  for (const api::Slot slot : {api::kErrorDestroy,
                               api::kErrorMessage,
                               api::kErrorGetCode,
                               api::kEventDestroy,
                               api::kEventIsReady,
                               api::kEventAwait,
                               api::kClientCreate,
                               api::kClientPlatformName,
                               api::kClientAddressableDevices,
                               api::kClientCompile,
                               api::kClientBufferFromHostBuffer,
                               api::kExecutableDestroy,
                               api::kExecutableNumOutputs,
                               api::kLoadedExecutableDestroy,
                               api::kLoadedExecutableGetExecutable,
                               api::kLoadedExecutableExecute,
                               api::kBufferDestroy,
                               api::kBufferIsDeleted,
                               api::kBufferToHostBuffer,
                               api::kBufferReadyEvent})
    if (!has(slot))
      throw Failure(ANYHAL_STATUS_ABI_MISMATCH, ANYHAL_REASON_DRIVER,
                    "%.100s (PJRT %d.%d) lacks function %u of the interface, which is needed; use "
                    "a newer plugin",
                    file_.c_str(), major(), minor(), static_cast<unsigned>(slot));
}

void Plugin::start() {
  if (started()) return;
  QuietEnvironment quiet;
  api::NamedValue count = {};
  count.header.struct_size = sizeof count;
  count.name = "cpu_device_count";
  count.name_size = std::strlen(count.name);
  count.kind = api::kValueInt64;
  count.integer = 1;
  count.value_size = 1;
  api::Client* made = nullptr;
  g_started = true;
  {
    api::Args<api::ClientCreate> args;
    args->options = &count;
    args->option_count = 1;
    if (api::Error* error = call(api::kClientCreate, args)) {
      // A plugin for another kind of device refuses what it does not know, by name.
      const Failed why = take(error);
      if (why.text.find(count.name) == std::string::npos)
        throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_DRIVER,
                      "%.60s made no client: %.120s; repair its installation", file_.c_str(),
                      why.text.c_str());
      api::Args<api::ClientCreate> again;
      must("making a client", api::kClientCreate, again);
      made = again->client;
    } else {
      made = args->client;
    }
  }
  api::Args<api::ClientText> name;
  name->client = made;
  must("reading the platform's name", api::kClientPlatformName, name);
  platform_.assign(name->text, name->text_size);
  api::Args<api::ClientText> version;
  version->client = made;
  if (has(api::kClientPlatformVersion)) {
    if (api::Error* error = call(api::kClientPlatformVersion, version))
      take(error);  // for people only
    else
      version_.assign(version->text, version->text_size);
  }
  api::Args<api::ClientAddressableDevices> devices;
  devices->client = made;
  must("listing devices", api::kClientAddressableDevices, devices);
  if (devices->device_count == 0)
    throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_DRIVER,
                  "%.100s has no device that this process may use", file_.c_str());
  device_ = devices->devices[0];
  if (has(api::kDeviceGetDescription) && has(api::kDeviceDescriptionKind)) {
    api::Args<api::DeviceGetDescription> described;
    described->device = device_;
    must("describing the device", api::kDeviceGetDescription, described);
    api::Args<api::DeviceDescriptionKind> kind;
    kind->description = described->description;
    must("describing the device", api::kDeviceDescriptionKind, kind);
    kind_.assign(kind->kind, kind->kind_size);
  }
  client_ = made;
  probe_reinterpretation();
}

// Cells are passed as bytes and read as whatever the program says. Plugins compare sizes only; one
// that compares types too cannot be driven this way, and says so here instead of in every call.
void Plugin::probe_reinterpretation() const {
  const float one = 1.0F;
  const char* const text =
      "module {\n func.func public @main(%0: tensor<1xf32>) -> tensor<1xf32> {\n"
      "  %1 = \"stablehlo.add\"(%0, %0) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>\n"
      "  \"func.return\"(%1) : (tensor<1xf32>) -> ()\n }\n}\n";
  const Owned program{*this, compile(*this, text)};
  api::Buffer* in = buffer_of(&one, sizeof one);
  api::Buffer* out = nullptr;
  api::Error* error = program->run(*this, &in, 1, &out, nullptr, {});
  destroy(in);
  if (error != nullptr) {
    const Failed why = take(error);
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER,
                  "%.60s does not read a buffer of bytes as numbers: %.100s; it cannot be used",
                  file_.c_str(), why.text.c_str());
  }
  count(kLiveBuffers);
  Failed why = await(out);
  bool right = why.code == 0;
  try {
    if (right && host_memory()) right = *static_cast<const float*>(pointer(out)) == 2;
  } catch (const Failure& failed) {
    right = false, why.text = failed.what();
  }
  destroy(out);
  if (!right)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER,
                  "%.60s did not compute 1 + 1 = 2; it is not used%s%.100s", file_.c_str(),
                  why.text.empty() ? "" : ": ", why.text.c_str());
}

const std::string& Plugin::hash() {
  static std::mutex* mutex = new std::mutex;
  std::lock_guard lock(*mutex);
  if (hash_.empty()) hash_ = hash_file(path_);
  return hash_;
}

Failed Plugin::take(api::Error* error) const {
  api::Args<api::ErrorGetCode> code;
  code->error = error;
  if (api::Error* another = call(api::kErrorGetCode, code)) {
    end_error(another);
    code->code = 0;
  }
  if (code->code == 0) code->code = api::kUnknown;
  api::Args<api::ErrorMessage> text;
  text->error = error;
  call_silent(api::kErrorMessage, &text);
  Failed out{code->code, std::string(text->message != nullptr ? text->message : "no reason given",
                                     text->message != nullptr ? text->message_size : 15)};
  for (char& c : out.text)
    if (c == '\n' || c == '\r') c = ' ';
  end_error(error);
  return out;
}

// Of the two slots that return nothing.
void Plugin::call_silent(api::Slot slot, void* record) const {
  void (*function)(void*);
  std::memcpy(&function, &table_->slots[slot], sizeof function);
  function(record);
}

void Plugin::end_error(api::Error* error) const {
  api::Args<api::ErrorDestroy> end;
  end->error = error;
  call_silent(api::kErrorDestroy, &end);
}

void Plugin::raise(const char* what, api::Error* error) const {
  const Failed why = take(error);
  const anyhal_status status = judge(why);
  require_here();
  throw Failure(status, ANYHAL_REASON_DRIVER, "%s on %.40s: %.150s; %s", what, file_.c_str(),
                why.text.c_str(),
                status == ANYHAL_STATUS_OUT_OF_MEMORY ? "free arrays" : "report this");
}

// What one call says about itself is no reason to give up the device; all else may be.
anyhal_status Plugin::judge(const Failed& why) const {
  switch (why.code) {
    case api::kResourceExhausted:
      return ANYHAL_STATUS_OUT_OF_MEMORY;
    case api::kUnimplemented:
      return ANYHAL_STATUS_UNSUPPORTED;
    case api::kInvalidArgument:
    case api::kNotFound:
      return ANYHAL_STATUS_INTERNAL;
    default:
      break;
  }
  if (client_ == nullptr || (!lost() && answers())) return ANYHAL_STATUS_INTERNAL;
  std::lock_guard lock(losing_);
  if (lost_text_.empty()) lost_text_ = why.text;
  lost_.store(true, std::memory_order_release);
  return ANYHAL_STATUS_DEVICE_LOST;
}

void Plugin::require_here() const {
  if (!lost()) return;
  std::lock_guard lock(losing_);
  throw Failure(ANYHAL_STATUS_DEVICE_LOST, ANYHAL_REASON_DRIVER, "%.200s", lost_text_.c_str());
}

// Whether the device still takes a byte.
bool Plugin::answers() const {
  const char byte = 0;
  const int64_t dims[1] = {1};
  api::Args<api::ClientBufferFromHostBuffer> args = from_host(&byte, dims);
  if (api::Error* error = call(api::kClientBufferFromHostBuffer, args))
    return take(error).code == api::kResourceExhausted;
  count(kLiveBuffers);
  if (args->done_with_host_buffer != nullptr) destroy(args->done_with_host_buffer);
  api::Args<api::BufferReadyEvent> arrival;
  arrival->buffer = args->buffer;
  Failed why{0, ""};
  if (api::Error* error = call(api::kBufferReadyEvent, arrival)) {
    why = take(error);
  } else {
    constexpr int kLimitMs = 5000;  // what hangs is lost as well
    int waited = 0;
    while (!ready(arrival->event) && waited++ < kLimitMs) usleep(1000);
    if (waited < kLimitMs)
      why = end(arrival->event);
    else
      why.code = api::kUnknown, destroy(arrival->event);
  }
  destroy(args->buffer);
  return why.code == 0 || why.code == api::kResourceExhausted;
}

api::Args<api::ClientBufferFromHostBuffer> Plugin::from_host(const void* data,
                                                             const int64_t* dims) const {
  api::Args<api::ClientBufferFromHostBuffer> args;
  args->client = client_;
  args->data = data;
  args->type = api::kU8;
  args->dims = dims;
  args->dim_count = 1;
  args->device = device_;
  return args;
}

api::Buffer* Plugin::buffer_of(const void* data, uint64_t bytes) const {
  const int64_t dims[1] = {static_cast<int64_t>(bytes)};
  api::Args<api::ClientBufferFromHostBuffer> args = from_host(data, dims);
  must("making a buffer", api::kClientBufferFromHostBuffer, args);
  if (args->done_with_host_buffer != nullptr) destroy(args->done_with_host_buffer);
  count(kLiveBuffers);
  return args->buffer;
}

void Plugin::destroy(api::Buffer* buffer) const {
  api::Args<api::BufferArgs> args;
  args->buffer = buffer;
  if (api::Error* error = call(api::kBufferDestroy, args)) take(error);
  count(kLiveBuffers, uint64_t(-1));
}

void Plugin::destroy(api::Event* event) const {
  api::Args<api::EventArgs> args;
  args->event = event;
  if (api::Error* error = call(api::kEventDestroy, args)) take(error);
}

bool Plugin::ready(api::Event* event) const {
  api::Args<api::EventIsReady> args;
  args->event = event;
  if (api::Error* error = call(api::kEventIsReady, args)) {
    take(error);
    return true;  // ending it waits, and says what is wrong with it
  }
  return args->is_ready;
}

// By waiting: asking an event for its error before it is ready ends the process.
Failed Plugin::end(api::Event* event) const {
  api::Args<api::EventArgs> args;
  args->event = event;
  Failed why{0, ""};
  if (api::Error* error = call(api::kEventAwait, args)) why = take(error);
  destroy(event);
  return why;
}

Failed Plugin::await(api::Buffer* buffer) const {
  api::Args<api::BufferReadyEvent> made;
  made->buffer = buffer;
  if (api::Error* error = call(api::kBufferReadyEvent, made)) return take(error);
  return end(made->event);
}

const void* Plugin::pointer(api::Buffer* buffer) const {
  api::Args<api::BufferOpaquePointer> args;
  args->buffer = buffer;
  must("asking for an address", api::kBufferOpaquePointer, args);
  return args->pointer;
}

}  // namespace hal::pjrt
