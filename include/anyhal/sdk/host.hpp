// Facts about the host, for backends whose device is a processor of it (Linux).
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_HOST_HPP_
#define ANYHAL_SDK_HOST_HPP_

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "anyhal/backend.h"

namespace hal::sdk {

// Name, arch and driver of a device that is the processor itself.
inline void describe_host_processor(anyhal_device_info& info) {
  utsname host = {};
  uname(&host);
  std::snprintf(info.arch, sizeof(info.arch), "%.31s", host.machine);
  std::snprintf(info.driver, sizeof(info.driver), "%.20s %.40s", host.sysname, host.release);
  std::snprintf(info.name, sizeof(info.name), "%.31s processor", host.machine);
  std::FILE* file = std::fopen("/proc/cpuinfo", "re");
  if (file == nullptr) return;
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    const char* colon = std::strchr(line, ':');
    if (colon == nullptr || std::strncmp(line, "model name", 10) != 0) continue;
    std::snprintf(info.name, sizeof(info.name), "%.63s", colon + 2);
    info.name[std::strcspn(info.name, "\n")] = '\0';
    break;
  }
  std::fclose(file);
}

inline uint64_t host_bytes_total() {
  struct sysinfo info = {};
  return sysinfo(&info) == 0 ? uint64_t{info.totalram} * info.mem_unit : 0;
}

inline uint64_t host_bytes_free() {
  return static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Plain host memory as the only kind of a device.
inline anyhal_memory_kind host_memory_kind() {
  anyhal_memory_kind kind = {};
  kind.size = sizeof(kind);
  kind.flags = ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT |
               ANYHAL_MEMORY_STABLE_ADDRESS;
  kind.offset_alignment = 1;
  kind.base_alignment = 64;
  kind.granularity = 1;
  kind.heap_bytes = host_bytes_total();
  return kind;
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_HOST_HPP_
