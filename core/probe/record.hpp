// What the probed process leaves behind. It lies in memory shared with the watcher, so that it is
// there whatever became of the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace hal::probe {

enum Stage : uint32_t { kStart, kOpen, kInit, kDevices, kExit, kStages };
inline constexpr const char* kStageNames[kStages] = {"start", "open", "init", "devices", "exit"};

// What of a process a library can change for everybody in it.
enum What : uint32_t {
  kFloatingPoint,
  kLocale,
  kSignal,         // a signal of the program no longer reaches it
  kSignalInFront,  // it does, after a handler of the library's
  kFaultSignal,    // what a fault of the processor does
  kSignalMask,
  kEnvironment,  // a variable was changed or taken away
  kVariable,     // one was added
  kDirectory,
  kUmask,
  kLimit,
  kRaisedLimit,
  kAffinity,
  kUser,
  kPriority,
  kProcess,  // what prctl changes
  kTimer,
  kClosed,
  kOpened,
  kThreads,
  kWhats
};
inline constexpr const char* kWhatNames[kWhats] = {
    "floating_point", "locale",   "signal",    "signal_in_front", "fault_signal", "signal_mask",
    "environment",    "variable", "directory", "umask",           "limit",        "raised_limit",
    "affinity",       "user",     "priority",  "process",         "timer",        "closed_files",
    "files",          "threads"};

struct Change {
  std::atomic<uint32_t> stage{kStart};  // the first after which it was seen; kStart: never
  char detail[240] = {};
};

struct Record {
  std::atomic<uint32_t> stage{kStart};
  std::atomic<int32_t> pid{0};
  std::atomic<uint32_t> forks{0};        // calls of fork
  std::atomic<uint32_t> copies{0};       // children that went on running our code
  std::atomic<uint32_t> copied{kStart};  // the stage of the first
  std::atomic<int32_t> devices{-1};
  int32_t core_status = 0;  // of a refusal by the core
  char core_stage[24] = {};
  char core_text[1024] = {};
  Change changes[kWhats];
};

}  // namespace hal::probe
