// Programs: StableHLO text, compiled once per text and plugin, kept on disk by the plugin's hash.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_PROGRAM_H_
#define ANYHAL_BACKENDS_PJRT_PROGRAM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "anyhal/backend.h"
#include "api.h"

namespace hal::pjrt {

class Plugin;

// 128 bits of any bytes as 32 hexadecimal digits.
std::string hash_bytes(const void* data, size_t bytes);

// A compiled program. Copies name the same one; whoever made it destroys it.
struct Executable {
  api::LoadedExecutable* loaded = nullptr;
  api::Executable* executable = nullptr;
  size_t output_count = 0;

  // Enqueues one run. Results go to `outputs`; `complete` may be null. Arguments named in `kept`
  // stay whole although the program may overwrite them.
  api::Error* run(const Plugin& plugin, api::Buffer* const* arguments, size_t argument_count,
                  api::Buffer** outputs, api::Event** complete,
                  const std::vector<int64_t>& kept) const;
  void destroy(const Plugin& plugin) const;
  // Bytes of temporaries of one run; 0 where the plugin does not say.
  uint64_t temp_bytes(const Plugin& plugin) const;
};

// One that ends with its scope, unless it is taken out.
struct Owned {
  const Plugin& plugin;
  Executable program;
  ~Owned() {
    if (program.loaded != nullptr) program.destroy(plugin);
  }
  const Executable* operator->() const { return &program; }
  Executable take() { return std::exchange(program, {}); }
};

// Compiles, or throws sdk::Failure: INTERNAL for a text that the plugin does not accept.
Executable compile(const Plugin& plugin, const std::string& text);
// The same through the artefact cache of the core.
Executable compile_cached(Plugin& plugin, const std::string& text, const anyhal_services* services);

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_PROGRAM_H_
