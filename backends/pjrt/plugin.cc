// Opening a plugin without letting it or its environment end the process.
// SPDX-License-Identifier: Apache-2.0
#include "plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "program.h"

namespace hal::pjrt {

std::atomic<bool> g_forked{false};
std::atomic<uint64_t> g_counts[kCounters] = {};

namespace {

using sdk::Failure;

// While a plugin starts: its log lines stay away from the host's stderr, and XLA_FLAGS away from
// the plugin, which ends the process over a flag that it does not know.
class QuietEnvironment {
 public:
  QuietEnvironment() : lock_(mutex()) {
    flags_ = take("XLA_FLAGS");
    quiet_ = std::getenv("TF_CPP_MIN_LOG_LEVEL") == nullptr;
    if (quiet_) setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0);
  }
  ~QuietEnvironment() {
    if (quiet_) unsetenv("TF_CPP_MIN_LOG_LEVEL");
    if (!flags_.empty()) setenv("XLA_FLAGS", flags_.c_str(), 1);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex* m = new std::mutex;
    return *m;
  }
  static std::string take(const char* name) {
    const char* value = std::getenv(name);
    std::string kept = value != nullptr ? value : "";
    if (!kept.empty()) unsetenv(name);
    return kept;
  }
  std::lock_guard<std::mutex> lock_;
  std::string flags_;
  bool quiet_;
};

// dlopen maps what the file says, and touching pages past its end kills the process.
void require_library(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY,
                  "%.160s: there is no such file; correct ANYHAL_PJRT_PLUGINS", path.c_str());
  Elf64_Ehdr head = {};
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool read_all = file >= 0 && read(file, &head, sizeof head) == sizeof head;
  uint64_t needed = 0;
  for (int i = 0; read_all && i < head.e_phnum; ++i) {
    Elf64_Phdr part = {};
    if (pread(file, &part, sizeof part,
              static_cast<off_t>(head.e_phoff + uint64_t(i) * sizeof part)) != sizeof part)
      break;
    if (part.p_type == PT_LOAD) needed = std::max<uint64_t>(needed, part.p_offset + part.p_filesz);
  }
  if (file >= 0) close(file);
  if (!read_all || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || needed == 0 ||
      needed > static_cast<uint64_t>(info.st_size))
    throw Failure(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY,
                  "%.160s: it is not a whole library; install the plugin again", path.c_str());
}

// 128 bits at memory speed; names a file, guards against nobody.
std::string hash_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info = {};
  if (file < 0 || fstat(file, &info) != 0) return "unreadable";
  const size_t bytes = static_cast<size_t>(info.st_size);
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return "unreadable";
  const std::string hash = hash_bytes(mapped, bytes);
  munmap(mapped, bytes);
  return hash;
}

}  // namespace

anyhal_status status_of(int code) {
  switch (code) {
    case api::kResourceExhausted:
      return ANYHAL_STATUS_OUT_OF_MEMORY;
    case api::kUnimplemented:
      return ANYHAL_STATUS_UNSUPPORTED;
    default:
      return ANYHAL_STATUS_INTERNAL;
  }
}

Plugin::Plugin(std::string path) : path_(std::move(path)) {
  file_ = path_.substr(path_.find_last_of('/') + 1);
  if (path_.empty() || path_[0] != '/')
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "'%.160s' is not an absolute path; write it whole in ANYHAL_PJRT_PLUGINS",
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
                               api::kEventError,
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
  if (has(api::kClientPlatformVersion) && call(api::kClientPlatformVersion, version) == nullptr)
    version_.assign(version->text, version->text_size);
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
  const Executable program = compile(*this, text);
  api::Buffer* in = buffer_of(&one, sizeof one);
  api::Buffer* out = nullptr;
  api::Error* error = program.run(*this, &in, 1, &out, nullptr, {});
  destroy(in);
  if (error != nullptr) {
    const Failed why = take(error);
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER,
                  "%.60s does not read a buffer of bytes as numbers: %.100s; it cannot be used",
                  file_.c_str(), why.text.c_str());
  }
  count(kLiveBuffers);
  const bool right =
      await(out) && (!host_memory() || *static_cast<const float*>(pointer(out)) == 2);
  destroy(out);
  program.destroy(*this);
  if (!right)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER,
                  "%.100s computed 1 + 1 wrongly; it is not used", file_.c_str());
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
  if (call(api::kErrorGetCode, code) != nullptr || code->code == 0) code->code = 13;
  api::Args<api::ErrorMessage> text;
  text->error = error;
  using Silent = void (*)(void*);  // the two slots that return nothing
  const auto silent = [&](api::Slot slot, void* record) {
    Silent function;
    std::memcpy(&function, &table_->slots[slot], sizeof function);
    function(record);
  };
  silent(api::kErrorMessage, &text);
  Failed out{code->code, std::string(text->message != nullptr ? text->message : "no reason given",
                                     text->message != nullptr ? text->message_size : 15)};
  for (char& c : out.text)
    if (c == '\n' || c == '\r') c = ' ';
  api::Args<api::ErrorDestroy> end;
  end->error = error;
  silent(api::kErrorDestroy, &end);
  return out;
}

void Plugin::raise(const char* what, api::Error* error) const {
  const Failed why = take(error);
  throw Failure(status_of(why.code), ANYHAL_REASON_DRIVER, "%s on %.40s: %.150s; report this", what,
                file_.c_str(), why.text.c_str());
}

api::Buffer* Plugin::buffer_of(const void* data, uint64_t bytes) const {
  const int64_t dims[1] = {static_cast<int64_t>(bytes)};
  api::Args<api::ClientBufferFromHostBuffer> args;
  args->client = client_;
  args->data = data;
  args->type = api::kU8;
  args->dims = dims;
  args->dim_count = 1;
  args->semantics = api::kImmutableOnlyDuringCall;
  args->device = device_;
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
    return true;  // the outcome says what is wrong with it
  }
  return args->is_ready;
}

Failed Plugin::outcome(api::Event* event) const {
  api::Args<api::EventArgs> args;
  args->event = event;
  if (api::Error* error = call(api::kEventError, args)) return take(error);
  return {0, ""};
}

bool Plugin::await(api::Buffer* buffer) const {
  api::Args<api::BufferReadyEvent> made;
  made->buffer = buffer;
  must("asking for readiness", api::kBufferReadyEvent, made);
  api::Args<api::EventArgs> args;
  args->event = made->event;
  api::Error* error = call(api::kEventAwait, args);
  if (error != nullptr) take(error);
  destroy(made->event);
  return error == nullptr;
}

const void* Plugin::pointer(api::Buffer* buffer) const {
  api::Args<api::BufferOpaquePointer> args;
  args->buffer = buffer;
  must("asking for an address", api::kBufferOpaquePointer, args);
  return args->pointer;
}

}  // namespace hal::pjrt
