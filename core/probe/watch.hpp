// The state of this process that a library must leave alone: looked at, and compared.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/floating.hpp"
#include "core/probe/record.hpp"

namespace hal::probe {

struct Watch {
  static Watch look();
  // Notes in `record` what is not as in `before`, each thing once: after the first stage. Raises
  // the signals whose handler is another one, to see whether they still arrive.
  void compare(const Watch& before, Stage stage, Record& record) const;

  FloatingControl floating;
  std::string locale, directory;
  std::map<int, std::pair<void*, int>> signals;  // handler and flags
  std::vector<int> blocked;
  std::map<std::string, std::string> environment;
  mode_t mask = 0;
  std::map<int, std::pair<rlim_t, rlim_t>> limits;
  cpu_set_t affinity;
  std::vector<unsigned> user;          // ids: real, effective, saved, of the user and of the group
  std::vector<int> priority;           // nice value and scheduling policy
  std::map<std::string, int> process;  // by what it is called in a sentence
  int timers = 0;                      // armed, or made
  std::map<int, std::pair<dev_t, ino_t>> files;
  int inherited = 0;  // of `files`, those that a child program would get
  int threads = 0;    // beside this one
};

// Handlers for the signals that programs handle, as this process would have if it were one. A
// library may put its own in front of them, as compilers do, and pass on what it gets.
void listen();

void note(Record& record, What what, Stage stage, const std::string& detail);

}  // namespace hal::probe
