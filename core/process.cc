// The fork handlers; what the host has left.
// SPDX-License-Identifier: Apache-2.0
#include "core/process.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdio>

#include "core/device.hpp"
#include "core/dispatch.hpp"
#include "core/executor.hpp"
#include "core/queue.hpp"
#include "core/spec.hpp"

namespace hal {
namespace {

// The first number that `format` reads from a line of the file; the largest where there is none.
uint64_t number_in(const char* path, const char* format) {
  unsigned long long value = UINT64_MAX;
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return value;
  char line[128];
  while (std::fgets(line, sizeof(line), file) != nullptr)
    if (std::sscanf(line, format, &value) == 1) break;
  std::fclose(file);
  return value;
}

// What other threads change in moments is held, so that the child gets it whole. The order is that
// of calls: a device's locks before those that are taken under them.
void before() {
  devices_before_fork();
  instances_before_fork();
  plans_before_fork();
  specs_before_fork();
  receipts_before_fork();
}

void after(bool child) {
  receipts_after_fork();
  specs_after_fork();
  plans_after_fork();
  instances_after_fork();
  devices_after_fork(child);
}

void in_parent() { after(false); }

void in_child() {
  after(true);
  executor_after_fork();
  for (Device* d : all_devices())
    if (!d->synchronous)
      d->lose(
          "this process was forked after the device had been opened; open it in the child only");
  for (Instance* in : all_instances()) {
    uint64_t bytes = 0;
    ErrorRecord error;
    in->table.notify(in->reply.self, ANYHAL_EVENT_FORK_CHILD, 0, &bytes, error);
  }
}

}  // namespace

void watch_forks() {
  static const int once = pthread_atfork(before, in_parent, in_child);
  (void)once;
}

uint64_t host_available() {
  uint64_t available = number_in("/proc/meminfo", "MemAvailable: %llu");
  if (available < UINT64_MAX / 1024) available *= 1024;
  // Within a control group the page cache counts as used, and the kernel drops it when asked to.
  const char* const stat = "/sys/fs/cgroup/memory.stat";
  const uint64_t limit = number_in("/sys/fs/cgroup/memory.max", "%llu");
  const uint64_t used = number_in("/sys/fs/cgroup/memory.current", "%llu");
  if (limit == UINT64_MAX || used == UINT64_MAX) return available;
  uint64_t cached = 0;
  for (const char* line : {"active_file %llu", "inactive_file %llu"})
    if (const uint64_t bytes = number_in(stat, line); bytes != UINT64_MAX) cached += bytes;
  const uint64_t held = used - std::min(used, cached);
  return std::min(available, limit - std::min(limit, held));
}

}  // namespace hal
