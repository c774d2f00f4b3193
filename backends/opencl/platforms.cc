// Finds every device of every platform and says what each can do, or why it cannot be used.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "objects.h"

namespace hal::opencl {
namespace {

std::string text_of(const Api& api, cl_device_id device, cl_uint what) {
  size_t bytes = 0;
  if (api.GetDeviceInfo(device, what, 0, nullptr, &bytes) != kSuccess || bytes == 0) return "";
  std::string text(bytes, '\0');
  if (api.GetDeviceInfo(device, what, bytes, text.data(), nullptr) != kSuccess) return "";
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::string platform_text(const Api& api, cl_platform_id platform, cl_uint what) {
  size_t bytes = 0;
  if (api.GetPlatformInfo(platform, what, 0, nullptr, &bytes) != kSuccess || bytes == 0) return "";
  std::string text(bytes, '\0');
  if (api.GetPlatformInfo(platform, what, bytes, text.data(), nullptr) != kSuccess) return "";
  text.resize(std::strlen(text.c_str()));
  return text;
}

// A number of the device; zero where it does not know the question.
template <class T>
T number_of(const Api& api, cl_device_id device, cl_uint what) {
  T value = {};
  if (api.GetDeviceInfo(device, what, sizeof(value), &value, nullptr) != kSuccess) return {};
  return value;
}

bool older_than_1_2(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "OpenCL %d.%d", &major, &minor) != 2) return true;
  return major < 1 || (major == 1 && minor < 2);
}

// Why this backend cannot use it.
std::string refusal_of(const Api& api, const Found& f) {
  if (older_than_1_2(f.version))
    return "it is \"" + f.version + "\" and OpenCL 1.2 is needed; install a newer driver";
  if (number_of<cl_bool>(api, f.device, kDeviceAvailable) == 0)
    return "the driver says that it is not available; see its documentation";
  if (number_of<cl_bool>(api, f.device, kDeviceCompilerAvailable) == 0)
    return "its driver has no compiler for OpenCL C; install one that has";
  if (number_of<cl_bool>(api, f.device, kDeviceEndianLittle) == 0)
    return "it is big-endian, which no backend here serves; use another device";
  if ((f.single & kFpInfNan) == 0)
    return "its f32 has no infinity and NaN, so no op could be right; use another device";
  return "";
}

void copy_text(char* to, size_t room, const std::string& text) {
  std::snprintf(to, room, "%s", text.c_str());
}

void describe_kinds(Found& f) {
  anyhal_memory_kind& local = f.kinds[kDeviceKind];
  local.size = sizeof(local);
  local.flags = ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_LAZY;
  local.offset_alignment = 1;  // kernels take the block and an offset
  local.base_alignment = f.base_alignment;
  local.granularity = 64;
  local.block_bytes_max = f.block_bytes;
  local.heap_bytes = f.global_bytes;
  anyhal_memory_kind& staging = f.kinds[kStagingKind];
  staging = local;
  staging.flags =
      ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS;
  staging.heap = f.unified ? 0 : 1;
}

void describe(const Api& api, Found& f, uint64_t id) {
  anyhal_device_info& info = f.info;
  info.size = sizeof(info);
  info.flags = f.unified ? uint32_t{ANYHAL_DEVICE_UNIFIED} : 0u;
  info.id = id;
  if (f.extensions.find("cl_khr_device_uuid") != std::string::npos)
    api.GetDeviceInfo(f.device, kDeviceUuidKhr, sizeof(info.uuid), info.uuid, nullptr);
  if (f.extensions.find("cl_khr_pci_bus_info") != std::string::npos) {
    cl_uint bus[4] = {};
    if (api.GetDeviceInfo(f.device, kDevicePciBusInfoKhr, sizeof(bus), bus, nullptr) == kSuccess) {
      info.pci_domain = bus[0];
      info.pci_function = bus[1] << 8 | bus[2] << 3 | bus[3];
    }
  }
  copy_text(info.name, sizeof(info.name), f.name);
  copy_text(info.arch, sizeof(info.arch), f.platform_name);
  copy_text(info.driver, sizeof(info.driver), f.version + ", driver " + f.driver);
  info.kinds = f.kinds;
  info.kind_count = 2;
  info.queue_count_max = kQueues;
  info.preferred_alignment = std::max(64u, f.base_alignment);
  info.rank_max = sdk::kRankMax;
  info.recovery = ANYHAL_RECOVERY_PROCESS;
  info.own_threads = (f.type & kDeviceTypeCpu) != 0 ? f.units : 0;
  info.tensor_bytes_max = f.block_bytes;
}

void read_facts(const Api& api, Found& f) {
  f.name = text_of(api, f.device, kDeviceName);
  f.vendor = text_of(api, f.device, kDeviceVendor);
  f.version = text_of(api, f.device, kDeviceVersion);
  f.driver = text_of(api, f.device, kDriverVersion);
  f.extensions = text_of(api, f.device, kDeviceExtensions);
  f.type = number_of<cl_bitfield>(api, f.device, kDeviceType);
  f.single = number_of<cl_bitfield>(api, f.device, kDeviceSingleFpConfig);
  f.twice = number_of<cl_bitfield>(api, f.device, kDeviceDoubleFpConfig);
  f.global_bytes = number_of<cl_ulong>(api, f.device, kDeviceGlobalMemSize);
  f.block_bytes = number_of<cl_ulong>(api, f.device, kDeviceMaxMemAllocSize) / 64 * 64;
  f.local_bytes = number_of<cl_ulong>(api, f.device, kDeviceLocalMemSize);
  f.base_alignment = std::max(1u, number_of<cl_uint>(api, f.device, kDeviceMemBaseAddrAlign) / 8);
  f.units = number_of<cl_uint>(api, f.device, kDeviceMaxComputeUnits);
  f.group_size = number_of<size_t>(api, f.device, kDeviceMaxWorkGroupSize);
  f.unified = number_of<cl_bool>(api, f.device, kDeviceHostUnifiedMemory) != 0;
  f.refusal = refusal_of(api, f);
}

// Appends the platform's devices; a platform without any adds a sentence instead.
void list_platform(anyhal_self& self, cl_platform_id platform, std::string& empty) {
  const Api& api = self.api;
  const std::string name = platform_text(api, platform, kPlatformName);
  cl_uint count = 0;
  cl_int code = api.GetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &count);
  std::vector<cl_device_id> ids(code == kSuccess ? count : 0);
  if (!ids.empty()) code = api.GetDeviceIDs(platform, kDeviceTypeAll, count, ids.data(), nullptr);
  if (code != kSuccess || ids.empty()) {
    empty += (empty.empty() ? "" : ", ") + name + " (" +
             (code == kSuccess ? "none" : error_name(code)) + ")";
    return;
  }
  for (cl_device_id id : ids) {
    auto f = std::make_unique<Found>();
    f->platform = platform;
    f->device = id;
    f->platform_name = name;
    read_facts(api, *f);
    self.found.push_back(std::move(f));
  }
}

}  // namespace

void find_devices(anyhal_self& self, const char* library) {
  self.problem = load_api(library, self.api);
  if (!self.problem.empty()) return;
  cl_uint count = 0;
  const cl_int code = self.api.GetPlatformIDs(0, nullptr, &count);
  if ((code != kSuccess && code != kPlatformNotFoundKhr) || count == 0) {
    self.problem =
        "the OpenCL loader knows no platform; install a driver, as with apt install "
        "pocl-opencl-icd";
    return;
  }
  std::vector<cl_platform_id> platforms(count);
  self.api.GetPlatformIDs(count, platforms.data(), nullptr);
  std::string empty;
  for (cl_platform_id platform : platforms) list_platform(self, platform, empty);
  if (self.found.empty())
    self.problem = "no OpenCL platform has a device: " + empty + "; check the drivers";
  // The loader's order may change with what is installed; names do not.
  std::stable_sort(self.found.begin(), self.found.end(), [](const auto& a, const auto& b) {
    return std::tie(a->platform_name, a->name) < std::tie(b->platform_name, b->name);
  });
  uint64_t id = 0;
  for (auto& f : self.found) {
    describe_kinds(*f);
    describe(self.api, *f, id++);
  }
}

}  // namespace hal::opencl
