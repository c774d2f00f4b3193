// In pieces: Python runs a signal's handler only where its main thread asks for it.
// SPDX-License-Identifier: Apache-2.0
#include "core/bindings/wait.hpp"

#include <nanobind/nanobind.h>

#include <mutex>
#include <vector>

namespace nb = nanobind;

namespace hal {
namespace {

constexpr uint64_t kPieceNs = 50'000'000;

}  // namespace

void wait_interruptibly(Queue& queue, uint64_t value) {
  for (;;) {
    try {
      return queue.wait(value, kPieceNs);
    } catch (const Error& e) {
      if (e.status != ANYHAL_STATUS_TIMEOUT) throw;
    }
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals()) throw nb::python_error();
  }
}

void wait_idle_interruptibly(Buffer& buffer, bool for_write) {
  if (!buffer.device || buffer.device->synchronous) return;
  std::vector<Use> uses;
  {
    std::lock_guard guard(buffer.uses);
    if (for_write) uses = buffer.read;
    if (buffer.written.queue) uses.push_back(buffer.written);
  }
  for (const Use& use : uses) wait_interruptibly(*use.queue, use.value);
  wait_idle(buffer, for_write);
}

}  // namespace hal
