// What a fork does to the core.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"

namespace hal {

// Registers the fork handler, once: in the child the executor starts anew, synchronous devices go
// on, devices with queues of their own are dead with a clear status.
HAL_API void watch_forks();

}  // namespace hal
