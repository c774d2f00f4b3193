// The answer on standard output: one JSON object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/probe/watcher.hpp"

namespace hal::probe {

void write_answer(const Outcome& outcome, const Record& record);
// No process was made: "not_run", or "changed" for a file that is not the one looked at.
void write_failure(const char* ended, const std::string& why);

}  // namespace hal::probe
