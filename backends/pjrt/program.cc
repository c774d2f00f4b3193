// Compiling, running and keeping programs.
// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <sched.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "plugin.h"

namespace hal::pjrt {
namespace {

// xla.CompileOptionsProto: field 3 (build options) with num_replicas (4) and num_partitions (5) of
// 1. Without them plugins end the process.
constexpr char kOptions[] = {0x1a, 0x04, 0x20, 0x01, 0x28, 0x01};
constexpr char kFormat[] = "mlir";
constexpr size_t kHashLength = 32;

uint64_t mix(uint64_t h, uint64_t word) {
  h = (h ^ word) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 29;
}

Executable wrapped(const Plugin& plugin, api::LoadedExecutable* loaded) {
  count(kLivePrograms);
  Owned made{plugin, {loaded}};
  api::Args<api::LoadedExecutableGetExecutable> args;
  args->loaded = loaded;
  plugin.must("reading what was compiled", api::kLoadedExecutableGetExecutable, args);
  made.program.executable = args->executable;
  api::Args<api::ExecutableNumOutputs> outputs;
  outputs->executable = args->executable;
  plugin.must("counting results", api::kExecutableNumOutputs, outputs);
  made.program.output_count = outputs->output_count;
  return made.take();
}

Executable load(const Plugin& plugin, const std::string& bytes) {
  if (!plugin.has(api::kExecutableDeserializeAndLoad)) return {};
  api::Args<api::ExecutableDeserializeAndLoad> args;
  args->client = plugin.client();
  args->bytes = bytes.data();
  args->byte_count = bytes.size();
  if (api::Error* error = plugin.call(api::kExecutableDeserializeAndLoad, args)) {
    plugin.take(error);  // made for another processor, or damaged: compile again
    return {};
  }
  return wrapped(plugin, args->executable);
}

// Stands before a kept program: a plugin may take a damaged one, or another's, for a good one.
std::string seal(const std::string& key, const std::string& blob) {
  const std::string both = key + blob;
  return hash_bytes(both.data(), both.size());
}

void store(const Plugin& plugin, const Executable& made, const std::string& key,
           const anyhal_services* services) {
  if (!plugin.has(api::kExecutableSerialize)) return;
  api::Args<api::ExecutableSerialize> args;
  args->executable = made.executable;
  if (api::Error* error = plugin.call(api::kExecutableSerialize, args)) {
    plugin.take(error);
    return;
  }
  const std::string blob(args->bytes, args->byte_count);
  const std::string entry = seal(key, blob) + blob;
  services->cache_put(services->context, key.c_str(), entry.data(), entry.size());
  if (args->destroy != nullptr) args->destroy(args->serialized);
}

// The entry's program, or nothing where it is absent or damaged.
std::string stored(const std::string& key, const anyhal_services* services) {
  uint64_t bytes = 0;
  if (services->cache_get(services->context, key.c_str(), nullptr, &bytes) != ANYHAL_STATUS_OK)
    return {};
  std::string data(bytes, '\0');
  if (services->cache_get(services->context, key.c_str(), data.data(), &bytes) !=
          ANYHAL_STATUS_OK ||
      bytes != data.size() || bytes <= kHashLength)
    return {};
  const std::string hash = data.substr(0, kHashLength);
  data.erase(0, kHashLength);
  return seal(key, data) == hash ? data : std::string();
}

// What a compiled program depends on beside plugin and text: the processor, and how many of it.
std::string machine() {
  std::ifstream file("/proc/cpuinfo");
  std::string features;
  for (std::string line; std::getline(file, line) && !line.empty();)
    for (const char* kind : {"vendor_id", "model", "flags", "Features", "CPU "})
      if (line.rfind(kind, 0) == 0) features += line + "\n";
  cpu_set_t set;
  CPU_ZERO(&set);
  const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  return hash_bytes(features.data(), features.size()) + " " + std::to_string(count);
}

}  // namespace

std::string hash_bytes(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  uint64_t lanes[4] = {1, 2, 3, 4};
  size_t left = bytes;
  for (; left >= 32; left -= 32, at += 32) {
    uint64_t words[4];
    std::memcpy(words, at, sizeof words);
    for (int i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  uint64_t tail[4] = {};
  std::memcpy(tail, at, left);
  uint64_t one = bytes, two = ~static_cast<uint64_t>(bytes);
  for (int i = 0; i < 4; ++i) {
    one = mix(mix(one, lanes[i]), tail[i]);
    two = mix(mix(two, tail[3 - i]), lanes[3 - i]);
  }
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(one),
                static_cast<unsigned long long>(two));
  return text;
}

api::Error* Executable::run(const Plugin& plugin, api::Buffer* const* arguments,
                            size_t argument_count, api::Buffer** outputs, api::Event** complete,
                            const std::vector<int64_t>& kept) const {
  api::Args<api::ExecuteOptions> options;
  options->non_donatable = kept.empty() ? nullptr : kept.data();
  options->non_donatable_count = kept.size();
  api::Args<api::LoadedExecutableExecute> args;
  args->executable = loaded;
  args->options = &options.record;
  args->arguments = &arguments;
  args->device_count = 1;
  args->argument_count = argument_count;
  args->outputs = &outputs;
  args->complete = complete;
  return plugin.call(api::kLoadedExecutableExecute, args);
}

void Executable::destroy(const Plugin& plugin) const {
  if (executable != nullptr) {
    api::Args<api::ExecutableArgs> one;
    one->executable = executable;
    if (api::Error* error = plugin.call(api::kExecutableDestroy, one)) plugin.take(error);
  }
  api::Args<api::LoadedExecutableArgs> two;
  two->executable = loaded;
  if (api::Error* error = plugin.call(api::kLoadedExecutableDestroy, two)) plugin.take(error);
  count(kLivePrograms, uint64_t(-1));
}

uint64_t Executable::temp_bytes(const Plugin& plugin) const {
  if (!plugin.has(api::kExecutableGetCompiledMemoryStats)) return 0;
  api::Args<api::ExecutableGetCompiledMemoryStats> args;
  args->executable = executable;
  if (api::Error* error = plugin.call(api::kExecutableGetCompiledMemoryStats, args)) {
    plugin.take(error);
    return 0;
  }
  return args->temp_bytes > 0 ? static_cast<uint64_t>(args->temp_bytes) : 0;
}

Executable compile(const Plugin& plugin, const std::string& text) {
  std::string code = text;  // the interface takes it as writable
  api::Args<api::Program> program;
  program->code = code.data();
  program->code_size = code.size();
  program->format = kFormat;
  program->format_size = sizeof kFormat - 1;
  api::Args<api::ClientCompile> args;
  args->client = plugin.client();
  args->program = &program.record;
  args->options = kOptions;
  args->options_size = sizeof kOptions;
  plugin.must("compiling", api::kClientCompile, args);
  return wrapped(plugin, args->executable);
}

Executable compile_cached(Plugin& plugin, const std::string& text,
                          const anyhal_services* services) {
  static const std::string here = machine();
  // The file's hash stands first: a blob of another plugin may load and compute zeros.
  const std::string key = "pjrt 2 " + plugin.hash() + " " + hash_bytes(text.data(), text.size()) +
                          " " + std::to_string(text.size()) + " " + here;
  const bool kept = !plugin.hash().empty();
  const std::string bytes = kept ? stored(key, services) : "";
  if (!bytes.empty()) {
    const Executable found = load(plugin, bytes);
    if (found.loaded != nullptr) {
      count(kLoaded);
      return found;
    }
  }
  Owned made{plugin, compile(plugin, text)};
  count(kCompiled);
  if (kept) store(plugin, made.program, key, services);
  return made.take();
}

}  // namespace hal::pjrt
