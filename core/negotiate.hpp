// The handshake with a library that was opened.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/instance.hpp"

namespace hal {

// Throws the Error of a backend that is not loaded: its name, its file, why; `code` as in Error.
[[noreturn]] void refuse(const char* stage, anyhal_status status, const Instance& in,
                         const std::string& why, const char* code = "");

// "1.2"
std::string version_text(uint32_t version);

// Calls the entry and checks everything it answered; afterwards the instance has its reply and a
// table without holes. Throws Error with stage negotiate, fingerprint or init.
void negotiate(Instance& in, anyhal_backend_main_fn entry);

}  // namespace hal
