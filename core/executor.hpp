// The one thread pool of the process: parallel_for over host threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/error.hpp"

namespace hal {

using ParallelFn = void (*)(void* argument, uint32_t index);

// Threads that parallel_for may use, the caller included: the setting, else affinity capped by the
// cgroup's quota.
HAL_API uint32_t executor_thread_count();
// Changes the count; 0 = automatic. Idle workers end; later calls start what they need.
HAL_API void executor_set_thread_count(uint32_t count);
// Runs fn(argument, i) once per i in [0, count); returns when all are done. A call from inside a
// running call, or while another thread's call holds the pool, runs inline.
HAL_API void parallel_for(uint32_t count, ParallelFn fn, void* argument);
// Whether this thread runs an index of a parallel_for that was shared out.
HAL_API bool executor_inside();
// In a fork's child: the workers are gone; start anew when needed.
void executor_after_fork();

}  // namespace hal
