// The edge to C: exceptions become a status and a filled hal_error, in this one place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <string>

#include "anyhal/hal.h"
#include "core/error.hpp"

namespace hal {

[[noreturn]] inline void invalid(const std::string& text, int32_t reason = HAL_REASON_NONE) {
  throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, text, reason);
}

// Fills the caller's record, which may be null; returns the status.
hal_status answer(hal_error* error, int32_t status, int32_t reason, const char* text);

template <class Body>
hal_status at_edge(hal_error* error, const Body& body) noexcept {
  try {
    body();
    return HAL_STATUS_OK;
  } catch (const Error& e) {
    return answer(error, e.status, e.reason, e.what());
  } catch (const std::bad_alloc&) {
    return answer(error, HAL_STATUS_OUT_OF_MEMORY, HAL_REASON_NONE,
                  "the host has no memory left for the call's own records; free something");
  } catch (const std::exception& e) {
    return answer(error, HAL_STATUS_INTERNAL, HAL_REASON_NONE, e.what());
  } catch (...) {
    return answer(error, HAL_STATUS_INTERNAL, HAL_REASON_NONE, "an exception of an unknown type");
  }
}

}  // namespace hal
