// Runs the subject, ends it when its time or memory is up, and sees how it ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/probe/record.hpp"
#include "core/probe/subject.hpp"

namespace hal::probe {

struct Limits {
  uint64_t milliseconds, bytes;
};

struct Printed {
  uint64_t bytes = 0;
  uint32_t stage = kStart;  // when it began
  std::string beginning;
};

struct Outcome {
  const char* ended = "clean";  // "clean", "signal", "exited", "hung", "memory"
  int number = 0;               // of the signal, or the exit status
  int left = 0;                 // processes that were still running
  uint64_t peak_bytes = 0, microseconds = 0;
  Printed out, err;
};

// Throws NotOpened when no process can be made.
Outcome watch(const Limits& limits, const Sealed& library, const Request& request, Record& record);

}  // namespace hal::probe
