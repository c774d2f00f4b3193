// Errors inside the core: thrown here, converted once at each edge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "anyhal/backend.h"

#define HAL_API __attribute__((visibility("default")))

namespace hal {

struct HAL_API Error : std::exception {
  Error(anyhal_status s, std::string t, int32_t r = ANYHAL_REASON_NONE, std::string where = {},
        const char* why = "")
      : status(s), reason(r), text(std::move(t)), stage(std::move(where)), code(why) {}
  const char* what() const noexcept override { return text.c_str(); }

  anyhal_status status;
  int32_t reason;
  std::string text;
  std::string stage;  // loader stage, empty elsewhere
  const char* code;   // of CODES in runtime/stages.py; "": what its stage usually means
};

HAL_API const char* status_name(int32_t status);
HAL_API const char* reason_name(int32_t reason);

// An error record ready to be handed to a slot: only its size word is written.
struct ErrorRecord {
  ErrorRecord() {
    record.size = sizeof(record);
    record.text[0] = 0;
    record.reason = 0;
  }
  operator anyhal_error*() { return &record; }
  anyhal_error record;
};

struct Instance;

// What a backend wrote into the record, as far as it is its to say: why, and what to do. What
// failed and where is the core's to say, which alone knows the device's name and the function that
// was called; a backend that begins with it all the same ("add on mychip: ...") has that dropped.
HAL_API std::string said(const anyhal_error& error, const Instance& in);

// Throws what a slot reported: "what: why; what to do". The one place that puts `what` before it.
[[noreturn]] HAL_API void raise(anyhal_status status, const anyhal_error& error,
                                const std::string& what, const Instance& in);

inline void check(anyhal_status status, const ErrorRecord& error, const std::string& what,
                  const Instance& in) {
  if (status != ANYHAL_STATUS_OK) raise(status, error.record, what, in);
}

}  // namespace hal
