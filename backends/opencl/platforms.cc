// Finds every device of every platform and says what each can do, or why it cannot be used.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include "objects.h"

namespace hal::opencl {
namespace {

// Asks one device or platform, and keeps the first refusal of what it must know.
class Asked {
 public:
  using Question = std::function<cl_int(cl_uint, size_t, void*, size_t*)>;
  explicit Asked(Question question) : question_(std::move(question)) {}

  std::string text(cl_uint what) {
    size_t bytes = 0;
    cl_int code = question_(what, 0, nullptr, &bytes);
    std::string text(code == kSuccess ? bytes : 0, '\0');
    if (!text.empty()) code = question_(what, bytes, text.data(), nullptr);
    note(code);
    if (code != kSuccess) return "";
    text.resize(std::strlen(text.c_str()));
    return text;
  }
  template <class T>
  T number(cl_uint what) {
    T value = {};
    const cl_int code = question_(what, sizeof(value), &value, nullptr);
    note(code);
    return code == kSuccess ? value : T{};
  }
  // Zero where it does not know the question.
  template <class T>
  T number_if_known(cl_uint what) {
    T value = {};
    const cl_int code = question_(what, sizeof(value), &value, nullptr);
    if (code != kInvalidValue) note(code);
    return code == kSuccess ? value : T{};
  }
  cl_int refusal() const { return refusal_; }

 private:
  void note(cl_int code) {
    if (refusal_ == kSuccess) refusal_ = code;
  }
  Question question_;
  cl_int refusal_ = kSuccess;
};

bool older_than_1_2(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "OpenCL %d.%d", &major, &minor) != 2) return true;
  return major < 1 || (major == 1 && minor < 2);
}

// Why this backend cannot use it.
std::string refusal_of(Asked& asked, const Found& f) {
  const bool available = asked.number<cl_bool>(kDeviceAvailable) != 0;
  const bool compiles = asked.number<cl_bool>(kDeviceCompilerAvailable) != 0;
  const bool little = asked.number<cl_bool>(kDeviceEndianLittle) != 0;
  if (asked.refusal() != kSuccess)
    return answer_of("clGetDeviceInfo", asked.refusal()) +
           ", so what it can do is not known; see "
           "its driver's documentation";
  if (older_than_1_2(f.version))
    return "it is \"" + f.version + "\" and OpenCL 1.2 is needed; install a newer driver";
  if (!available) return "the driver says that it is not available; see its documentation";
  if (!compiles) return "its driver has no compiler for OpenCL C; install one that has";
  if (!little) return "it is big-endian, which no backend here serves; use another device";
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
  if (f.unified && (f.type & kDeviceTypeCpu) == 0) info.flags |= ANYHAL_DEVICE_INTEGRATED;
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
  Asked asked([&api, device = f.device](cl_uint what, size_t bytes, void* value, size_t* total) {
    return api.GetDeviceInfo(device, what, bytes, value, total);
  });
  f.name = asked.text(kDeviceName);
  f.vendor = asked.text(kDeviceVendor);
  f.version = asked.text(kDeviceVersion);
  f.driver = asked.text(kDriverVersion);
  f.extensions = asked.text(kDeviceExtensions);
  f.type = asked.number<cl_bitfield>(kDeviceType);
  f.single = asked.number<cl_bitfield>(kDeviceSingleFpConfig);
  f.twice = asked.number_if_known<cl_bitfield>(kDeviceDoubleFpConfig);
  f.global_bytes = asked.number<cl_ulong>(kDeviceGlobalMemSize);
  f.block_bytes = asked.number<cl_ulong>(kDeviceMaxMemAllocSize) / 64 * 64;
  f.local_bytes = asked.number<cl_ulong>(kDeviceLocalMemSize);
  f.base_alignment = std::max(1u, asked.number<cl_uint>(kDeviceMemBaseAddrAlign) / 8);
  f.units = asked.number<cl_uint>(kDeviceMaxComputeUnits);
  f.group_size = asked.number<size_t>(kDeviceMaxWorkGroupSize);
  f.unified = asked.number_if_known<cl_bool>(kDeviceHostUnifiedMemory) != 0;
  f.refusal = refusal_of(asked, f);
}

// Appends the platform's devices, or to `self.missing` why it gives none.
void list_platform(anyhal_self& self, cl_platform_id platform) {
  const Api& api = self.api;
  Asked asked([&](cl_uint what, size_t bytes, void* value, size_t* total) {
    return api.GetPlatformInfo(platform, what, bytes, value, total);
  });
  const std::string name = asked.text(kPlatformName);
  cl_uint count = 0;
  cl_int code = api.GetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &count);
  std::vector<cl_device_id> ids(code == kSuccess ? count : 0);
  if (!ids.empty()) code = api.GetDeviceIDs(platform, kDeviceTypeAll, count, ids.data(), nullptr);
  if (code != kSuccess || ids.empty()) {
    const bool none = code == kSuccess || code == kDeviceNotFound;
    self.broken = self.broken || !none;
    self.missing.push_back("platform " + (name.empty() ? "without a name" : name) + " (" +
                           (none ? "no device" : answer_of("clGetDeviceIDs", code)) + ")");
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

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// Lists what every platform has.
void list_platforms(anyhal_self& self) {
  if (const std::vector<std::string> deadly = deadly_drivers(); !deadly.empty()) {
    self.broken = true;
    self.problem = joined(deadly) + "; repair or remove it";
    return;
  }
  cl_uint count = 0;
  cl_int code = self.api.GetPlatformIDs(0, nullptr, &count);
  std::vector<cl_platform_id> platforms(code == kSuccess ? count : 0);
  if (!platforms.empty()) code = self.api.GetPlatformIDs(count, platforms.data(), nullptr);
  const std::vector<std::string> unusable = broken_drivers();
  self.broken = !unusable.empty() || (code != kSuccess && code != kPlatformNotFoundKhr);
  if (code != kSuccess || platforms.empty()) {
    self.problem = "the OpenCL loader knows no platform";
    if (self.broken && unusable.empty()) self.problem = answer_of("clGetPlatformIDs", code);
  } else {
    for (cl_platform_id platform : platforms) list_platform(self, platform);
    if (self.found.empty()) self.problem = "no OpenCL platform has a device";
  }
  self.missing.insert(self.missing.end(), unusable.begin(), unusable.end());
  if (!self.missing.empty() && self.found.empty()) self.problem += ": " + joined(self.missing);
  if (!self.problem.empty())
    self.problem += self.broken ? "; repair or remove the driver"
                                : "; install a driver, as with apt install pocl-opencl-icd";
}

}  // namespace

void find_devices(anyhal_self& self, const char* library) {
  self.problem = load_api(library, self.api, self.broken);
  if (!self.problem.empty()) return;
  list_platforms(self);
  for (const std::string& what : self.missing) say(self, 1, "not used: " + what);
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
