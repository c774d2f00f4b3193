// The fork handlers of the C interface.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/fork.hpp"

#include <pthread.h>

#include "core/api/devices.hpp"

namespace hal {
namespace {

constexpr Kind kKinds[] = {Kind::kDevice, Kind::kBuffer, Kind::kQueue,
                           Kind::kGraph,  Kind::kModule, Kind::kKernel};

void before() {
  api_devices_before_fork();
  buffers_before_fork();
  for (const Kind kind : kKinds) handles(kind).fork_lock().lock();
}

void after(bool child) {
  for (const Kind kind : kKinds) handles(kind).fork_lock().unlock();
  buffers_after_fork();
  api_devices_after_fork(child);
}

}  // namespace

void watch_api_forks() {
  static const int once = pthread_atfork(before, [] { after(false); }, [] { after(true); });
  (void)once;
}

}  // namespace hal
