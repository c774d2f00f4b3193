// The fork handler.
// SPDX-License-Identifier: Apache-2.0
#include "core/process.hpp"

#include <pthread.h>

#include "core/device.hpp"
#include "core/executor.hpp"
#include "core/queue.hpp"

namespace hal {
namespace {

void in_child() {
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
  static const int once = pthread_atfork(nullptr, nullptr, in_child);
  (void)once;
}

}  // namespace hal
