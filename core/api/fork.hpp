// What a fork does to the C interface.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hal {

// Registers the fork handlers of handles, queues and loading, once and after the core's, whose
// locks are taken later.
void watch_api_forks();

// Of the buffers that wait for other threads' calls, and of imported memory (memory.cc).
void buffers_before_fork();
void buffers_after_fork();

}  // namespace hal
