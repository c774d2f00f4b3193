// The process that opens the library, and may come to grief.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/probe/record.hpp"
#include "core/trust.hpp"

namespace hal::probe {

struct Request {
  std::string path, name;
  std::vector<std::pair<std::string, std::string>> settings;
  int loads = -1;  // where the dynamic loader writes what it looks for
  std::string loads_path;
};

// Opens, shakes hands, lists devices, and ends the process as a program ends, so that destructors
// and exit handlers run. `record` says how far it came.
[[noreturn]] void run_subject(const Request& request, const Sealed& library, Record& record);

}  // namespace hal::probe
