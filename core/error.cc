// Names of statuses and reasons, and the one place where a slot's failure becomes an Error.
// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <cstring>
#include <iterator>

namespace hal {

const char* status_name(int32_t status) {
  static const char* const kNames[] = {
      "ok",        "invalid_argument", "unsupported", "out_of_memory",    "device_lost", "timeout",
      "not_found", "abi_mismatch",     "cancelled",   "execution_failed", "internal"};
  return status >= 0 && status < static_cast<int32_t>(std::size(kNames)) ? kNames[status]
                                                                         : "unknown_status";
}

const char* reason_name(int32_t reason) {
  static const char* const kNames[] = {
      "none",         "op",          "dtype",           "layout",
      "rank",         "shape_limit", "alignment",       "attribute",
      "architecture", "driver",      "missing_library", "missing_artefact",
      "workspace",    "numerics",    "memory_kind",     "capture",
      "policy"};
  return reason >= 0 && reason < static_cast<int32_t>(std::size(kNames)) ? kNames[reason]
                                                                         : "unknown_reason";
}

void raise(anyhal_status status, const anyhal_error& error, const std::string& what) {
  std::string text = what + ": ";
  // The record may come from a stranger: never trust its terminator.
  std::string said(error.text, strnlen(error.text, sizeof(error.text)));
  text += said.empty() ? std::string("the backend answered ") + status_name(status) : said;
  throw Error(status, std::move(text), error.reason);
}

}  // namespace hal
