// The edge of a backend: C++ exceptions become statuses, and messages are made without allocating.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_GUARD_HPP_
#define ANYHAL_SDK_GUARD_HPP_

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

#include "anyhal/backend.h"

namespace hal::sdk {

// Fills an error record as far as its writer knows it, and returns `status`.
inline anyhal_status fail_v(anyhal_error* error, anyhal_status status, int32_t reason,
                            const char* format, va_list arguments) {
  if (error == nullptr || !ANYHAL_HAS(error, anyhal_error, text)) return status;
  error->reason = reason;
  error->vendor_code = 0;
  std::vsnprintf(error->text, sizeof(error->text), format, arguments);
  return status;
}

__attribute__((format(printf, 4, 5))) inline anyhal_status fail(anyhal_error* error,
                                                                anyhal_status status,
                                                                int32_t reason, const char* format,
                                                                ...) {
  va_list arguments;
  va_start(arguments, format);
  fail_v(error, status, reason, format, arguments);
  va_end(arguments);
  return status;
}

// A failure with its text, thrown inside a backend and converted by guard().
class Failure : public std::exception {
 public:
  __attribute__((format(printf, 4, 5))) Failure(anyhal_status status, int32_t reason,
                                                const char* format, ...)
      : status_(status), reason_(reason) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof(text_), format, arguments);
    va_end(arguments);
  }
  const char* what() const noexcept override { return text_; }
  anyhal_status status() const { return status_; }
  int32_t reason() const { return reason_; }

 private:
  anyhal_status status_;
  int32_t reason_;
  char text_[sizeof(anyhal_error::text)];
};

// Runs fn, which returns a status or throws; nothing leaves but a status. `where` names the slot.
template <class Fn>
anyhal_status guard(const char* where, anyhal_error* error, Fn&& fn) noexcept {
  try {
    return fn();
  } catch (const Failure& failure) {
    return fail(error, failure.status(), failure.reason(), "%s", failure.what());
  } catch (const std::bad_alloc&) {
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "%s: the host is out of memory; free arrays and try again", where);
  } catch (const std::exception& other) {
    return fail(error, ANYHAL_STATUS_INTERNAL, 0, "%s: %s; please report this defect", where,
                other.what());
  } catch (...) {
    return fail(error, ANYHAL_STATUS_INTERNAL, 0,
                "%s: an unknown exception was thrown; please report this defect", where);
  }
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_GUARD_HPP_
