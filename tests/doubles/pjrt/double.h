// A PJRT plugin that stands before a real one: it passes calls on, counts them and what lives,
// fails where its script says so, and refuses what would end the process. No figure from it is
// speed. SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_TESTS_DOUBLES_PJRT_DOUBLE_H_
#define ANYHAL_TESTS_DOUBLES_PJRT_DOUBLE_H_

#include <sys/types.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "api.h"

#define DOUBLE_EXPORT extern "C" __attribute__((visibility("default")))

namespace pjrt_double {

namespace api = hal::pjrt::api;
using Clock = std::chrono::steady_clock;

constexpr size_t kSlots = 160;  // more than any plugin has
// Slots that the bridge does not use.
constexpr size_t kEventError = 7, kEventOnReady = 9, kClientDestroy = 11, kCreateView = 93;

// name@3+:2, as world.cc explains.
struct Failure {
  std::string name;
  uint64_t call;
  bool onward;
  int code;
};

// What the caller holds as an event.
struct Event {
  api::Event* real;
  int code;  // what it ends with, 0: what the real one does
  Clock::time_point ready;
};

struct World {
  std::mutex mutex;
  pid_t pid = 0;
  const api::Table* real = nullptr;
  // The script.
  std::vector<Failure> failures, faults, gone;
  int gone_code = 0;  // set: the device has gone
  std::chrono::microseconds delay{0};
  std::string report_path;
  size_t record_slack = 0;  // records are this much longer than the caller's header says
  bool records_exact = false;
  // The accounts.
  std::map<std::string, uint64_t> calls;
  uint64_t executions = 0;
  std::set<const void*> clients, buffers, events, errors, executables, loaded, serialized;
  std::set<const void*> made;                  // errors of the double's own
  std::map<const void*, size_t> output_count;  // of a loaded executable
  std::map<const void*, int> poisoned;         // buffers whose computation failed, with its code
  std::vector<std::string> violations;
};

World& world();  // its mutex is held by whoever reads or writes it
std::string name_of(size_t slot);
api::Error* made_error(int code, const std::string& text);
// A broken rule: noted, and answered in the place of the process's end.
api::Error* violation(const std::string& text);
// The failure that the script has for this call, or null.
api::Error* scripted(size_t slot);
// The code that the execution under way ends with, or 0.
int scripted_fault();
api::Error* check_size(size_t slot, const void* record);
// Passes the call on, seen to by its rules.
api::Error* handle(size_t slot, void* record);
std::string report();
const api::Table* table();

inline api::Error* pass(size_t slot, void* record) { return world().real->slots[slot](record); }

}  // namespace pjrt_double

#endif  // ANYHAL_TESTS_DOUBLES_PJRT_DOUBLE_H_
