// Programs: built once per device, options and source, and kept as binaries in the core's cache.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "objects.h"

namespace hal::opencl {
namespace {

uint64_t hash_of(const void* data, size_t bytes, uint64_t hash = 14695981039346656037ull) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 1099511628211ull;  // FNV-1a
  return hash;
}

uint64_t hash_of(const std::string& text) { return hash_of(text.data(), text.size()); }

// What stands before a binary in the cache. A driver may trust its own binaries blindly, so a
// damaged one must not reach it.
struct Head {
  uint64_t magic, bytes, hash;
};
constexpr uint64_t kMagic = 0x31306c636e65706full;  // "opencl01"

// All that a binary depends on.
std::string key_of(const Device& device, const std::string& source, const std::string& options) {
  const Found& f = *device.facts;
  return "opencl program\n" + f.platform_name + "\n" + f.name + "\n" + f.version + "\n" + f.driver +
         "\n" + options + "\n" + std::to_string(source.size()) + "\n" +
         std::to_string(hash_of(source));
}

std::string build_log(Device& device, cl_program program) {
  const Api& api = device.self->api;
  size_t bytes = 0;
  if (api.GetProgramBuildInfo(program, device.facts->device, kProgramBuildLog, 0, nullptr,
                              &bytes) != kSuccess)
    return "";
  std::string log(bytes, '\0');
  api.GetProgramBuildInfo(program, device.facts->device, kProgramBuildLog, bytes, log.data(),
                          nullptr);
  return log.c_str();
}

cl_int build(Device& device, cl_program program, const std::string& options) {
  return device.self->api.BuildProgram(program, 1, &device.facts->device, options.c_str(), nullptr,
                                       nullptr);
}

// The program from the cache, or null: absent, damaged, or no longer what the driver takes.
cl_program from_cache(Device& device, const std::string& key, const std::string& options) {
  const anyhal_services& services = *device.self->services;
  uint64_t bytes = 0;
  if (services.cache_get == nullptr ||
      services.cache_get(services.context, key.c_str(), nullptr, &bytes) != ANYHAL_STATUS_OK ||
      bytes <= sizeof(Head))
    return nullptr;
  std::string entry(bytes, '\0');
  if (services.cache_get(services.context, key.c_str(), entry.data(), &bytes) != ANYHAL_STATUS_OK ||
      bytes != entry.size())
    return nullptr;
  Head head;
  std::memcpy(&head, entry.data(), sizeof(head));
  const char* binary = entry.data() + sizeof(head);
  const size_t size = entry.size() - sizeof(head);
  if (head.magic != kMagic || head.bytes != size || head.hash != hash_of(binary, size))
    return nullptr;
  const auto* code = reinterpret_cast<const unsigned char*>(binary);
  cl_int taken = kSuccess, error = kSuccess;
  cl_program program = device.self->api.CreateProgramWithBinary(
      device.context, 1, &device.facts->device, &size, &code, &taken, &error);
  if (program == nullptr || error != kSuccess) return nullptr;
  if (taken == kSuccess && build(device, program, options) == kSuccess) return program;
  device.self->api.ReleaseProgram(program);
  return nullptr;
}

// A cache that cannot be written costs only time.
void to_cache(Device& device, const std::string& key, cl_program program) {
  const Api& api = device.self->api;
  const anyhal_services& services = *device.self->services;
  size_t size = 0;
  if (services.cache_put == nullptr) return;
  if (api.GetProgramInfo(program, kProgramBinarySizes, sizeof(size), &size, nullptr) != kSuccess ||
      size == 0)
    return;
  std::string entry(sizeof(Head) + size, '\0');
  auto* binary = reinterpret_cast<unsigned char*>(entry.data() + sizeof(Head));
  if (api.GetProgramInfo(program, kProgramBinaries, sizeof(binary), &binary, nullptr) != kSuccess)
    return;
  const Head head = {kMagic, size, hash_of(binary, size)};
  std::memcpy(entry.data(), &head, sizeof(head));
  services.cache_put(services.context, key.c_str(), entry.data(), entry.size());
}

cl_program from_source(Device& device, const std::string& source, const std::string& options) {
  const Api& api = device.self->api;
  const char* text = source.c_str();
  cl_int code = kSuccess;
  cl_program program = api.CreateProgramWithSource(device.context, 1, &text, nullptr, &code);
  check(device, code, "clCreateProgramWithSource");
  code = build(device, program, options);
  if (code == kSuccess) return program;
  const std::string log = build_log(device, program);
  api.ReleaseProgram(program);
  say(*device.self, 3, "building with " + options + ":\n" + log);
  if (status_of(code) != ANYHAL_STATUS_INTERNAL) check(device, code, "clBuildProgram");
  throw Failure(
      ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_DRIVER,
      "the driver's compiler answered %s (%d): %.100s; see the log, and update the driver",
      error_name(code), code, log.c_str());
}

}  // namespace

cl_program user_program(Device& device, const std::string& source) {
  const Api& api = device.self->api;
  const char* text = source.c_str();
  cl_int code = kSuccess;
  cl_program program = api.CreateProgramWithSource(device.context, 1, &text, nullptr, &code);
  check(device, code, "clCreateProgramWithSource");
  code = build(device, program, "");
  if (code == kSuccess) return program;
  const std::string log = build_log(device, program);
  api.ReleaseProgram(program);
  if (code != kBuildProgramFailure) check(device, code, "clBuildProgram");
  say(*device.self, 2, "building a user's source:\n" + log);
  throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the compiler refuses the source: %.150s; the whole text is in the log",
                log.c_str());
}

cl_program program_for(Device& device, const std::string& op_source, const std::string& asked) {
  const Found& f = *device.facts;
  const bool exact = (f.single & kFpCorrectlyRoundedDivideSqrt) != 0;
  std::string options = "-cl-std=CL1.2" + asked;
  if (f.doubles()) options += " -DDOUBLES";
  if (exact) options += " -DEXACT_DIVIDE -cl-fp32-correctly-rounded-divide-sqrt";
  const std::string source = kPreludeSource + op_source;
  std::lock_guard guard(device.programs_lock);
  cl_program& known = device.programs[options + "\n" + op_source];
  if (known != nullptr) return known;
  const std::string key = key_of(device, source, options);
  known = from_cache(device, key, options);
  if (known != nullptr) {
    ++device.cached_builds;
    return known;
  }
  known = from_source(device, source, options);
  ++device.builds;
  to_cache(device, key, known);
  return known;
}

}  // namespace hal::opencl
