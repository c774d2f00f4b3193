// What a fork does to the core, and what the host can still give.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"

namespace hal {

// Registers the fork handlers, once: in the child the executor starts anew, synchronous devices go
// on, whatever other threads were computing, and devices with queues of their own are dead with a
// clear status.
HAL_API void watch_forks();

// Bytes that could be written to without swapping or being killed, within the limit of our control
// group; the largest number where the system does not say.
HAL_API uint64_t host_available();

}  // namespace hal
