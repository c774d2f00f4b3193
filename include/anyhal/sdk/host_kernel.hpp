// Kernels of users on a device that computes in host memory: a C function, by library or address.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_HOST_KERNEL_HPP_
#define ANYHAL_SDK_HOST_KERNEL_HPP_

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "anyhal/sdk/guard.hpp"

namespace hal::sdk {

// The function. `arrays` holds the address of each array's first element, `values` the values as a
// C struct would; part of 0 to parts - 1 on several threads at once. 0: done; else it failed.
using HostKernelFn = int32_t (*)(void* const* arrays, const void* values, uint32_t part,
                                 uint32_t parts);

// The architecture words of ANYHAL_PAYLOAD_VENDOR: the bytes are a library's absolute path, or the
// eight of a function's address.
constexpr const char* kHostLibrary = "host library";
constexpr const char* kHostFunction = "host function";

struct HostModule {
  void* library = nullptr;  // stays open for good: its threads and exit functions may outlive it
  HostKernelFn function = nullptr;
};

inline HostModule load_host_module(const anyhal_payload& payload) {
  const std::string kind = payload.architecture != nullptr ? payload.architecture : "";
  const std::string bytes(static_cast<const char*>(payload.bytes), payload.byte_count);
  HostModule module;
  if (payload.format == ANYHAL_PAYLOAD_VENDOR && kind == kHostFunction) {
    if (bytes.size() == sizeof(module.function))
      std::memcpy(&module.function, bytes.data(), sizeof(module.function));
    if (module.function == nullptr)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "the function's address is NULL; pass the eight bytes of a function's address");
    return module;
  }
  if (payload.format != ANYHAL_PAYLOAD_VENDOR || kind != kHostLibrary)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ARCHITECTURE,
                  "the code is of format %u, '%.40s', and this device runs a C function of a %s or "
                  "a %s; pass one of these",
                  payload.format, kind.c_str(), kHostLibrary, kHostFunction);
  if (bytes.empty() || bytes[0] != '/' || bytes.find('\0') != std::string::npos)
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "a library is opened by its absolute path only, and '%.80s' is none",
                  bytes.c_str());
  if (access(bytes.c_str(), R_OK) != 0)
    throw Failure(ANYHAL_STATUS_NOT_FOUND, 0, "the library %.150s cannot be read; correct the path",
                  bytes.c_str());
  module.library = dlopen(bytes.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module.library == nullptr)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ARCHITECTURE,
                  "the system's loader refuses it: %.180s", dlerror());
  return module;
}

// One kernel as it is called.
class HostKernel {
 public:
  static constexpr size_t kBytesMax = 1024;

  HostKernel(const HostModule& module, const char* entry, const anyhal_signature& signature)
      : function_(module.function), name_(entry) {
    if (module.library != nullptr)
      function_ = reinterpret_cast<HostKernelFn>(dlsym(module.library, entry));
    if (function_ == nullptr)
      throw Failure(ANYHAL_STATUS_NOT_FOUND, 0,
                    "the library has no function '%.80s'; export it, as extern \"C\" in C++",
                    entry);
    if (signature.parameter_count > signature.operand_count)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "every value is an operand, so there are at most as many; correct the "
                    "signature");
    arrays_ = signature.operand_count - signature.parameter_count;
    values_.assign(signature.parameters, signature.parameters + signature.parameter_count);
    size_t bytes = arrays_ * sizeof(void*);
    for (const anyhal_parameter& v : values_) {
      if (v.bytes == 0 || v.bytes > sizeof(anyhal_ref) || v.offset < arrays_ * sizeof(void*))
        bytes = kBytesMax;
      bytes += sizeof(anyhal_ref);
      if (v.offset > kBytesMax - sizeof(anyhal_ref)) bytes = kBytesMax + 1;
    }
    if (bytes > kBytesMax)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "a value has 1 to 16 bytes behind the addresses, and all %zu; correct the "
                    "signature",
                    kBytesMax);
    const uint32_t* grid = signature.grid;
    uint64_t parts = uint64_t{grid[0]} * grid[1];
    if (parts <= UINT32_MAX) parts *= grid[2];  // else it may not fit into 64 bits
    if (parts == 0 || parts > UINT32_MAX)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "the grid of %u x %u x %u has not 1 to 2^32 - 1 parts; give fewer, and no 0",
                    grid[0], grid[1], grid[2]);
    parts_ = static_cast<uint32_t>(parts);
  }

  const char* name() const { return name_.c_str(); }

  // `operands`: addresses of arrays, then of the values' bytes.
  anyhal_status run(const anyhal_services& services, char* const* operands,
                    anyhal_error* error) const {
    alignas(16) unsigned char buffer[kBytesMax];
    Run run = {this, buffer, {0}};
    std::memcpy(buffer, operands, arrays_ * sizeof(void*));
    for (size_t i = 0; i < values_.size(); ++i)
      std::memcpy(buffer + values_[i].offset, operands[arrays_ + i], values_[i].bytes);
    if (parts_ == 1)
      Run::part(&run, 0);
    else
      services.parallel_for(services.context, parts_, Run::part, &run);
    const int32_t answer = run.answer.load();
    if (answer == 0) return ANYHAL_STATUS_OK;
    return fail(error, ANYHAL_STATUS_EXECUTION_FAILED, 0,
                "the function answered %d, so what it was to write does not count; see there",
                answer);
  }

 private:
  struct Run {
    const HostKernel* kernel;
    unsigned char* buffer;
    std::atomic<int32_t> answer;  // the first that is not 0

    static void part(void* self, uint32_t index) {
      Run& run = *static_cast<Run*>(self);
      const HostKernel& k = *run.kernel;
      const int32_t got = k.function_(reinterpret_cast<void* const*>(run.buffer),
                                      run.buffer + k.arrays_ * sizeof(void*), index, k.parts_);
      int32_t none = 0;
      if (got != 0) run.answer.compare_exchange_strong(none, got);
    }
  };

  HostKernelFn function_;
  std::string name_;
  std::vector<anyhal_parameter> values_;
  uint32_t arrays_ = 0, parts_ = 1;
};

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_HOST_KERNEL_HPP_
