// Waits of Python's threads: without the interpreter's lock, and ended by the user's interrupt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/queue.hpp"

namespace hal {

// Queue::wait and wait_idle for a thread that gave the interpreter's lock away and holds no lock of
// the core. Throws nb::python_error when a signal's handler raised; the work goes on.
void wait_interruptibly(Queue& queue, uint64_t value);
void wait_idle_interruptibly(Buffer& buffer, bool for_write);

}  // namespace hal
