// Names of statuses and reasons, and the one place where a slot's failure becomes an Error.
// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <cctype>
#include <cstring>
#include <iterator>

#include "core/instance.hpp"
#include "core/text.hpp"

namespace hal {
namespace {

// Past a leading "<in>[:<digits>]: ", or `at` where there is none.
size_t past_place(const std::string& text, size_t at, const std::string& in) {
  if (in.empty() || text.compare(at, in.size(), in) != 0) return at;
  size_t end = at + in.size();
  if (end < text.size() && text[end] == ':' && end + 1 < text.size() &&
      std::isdigit(static_cast<unsigned char>(text[end + 1])))
    for (++end; end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]));) ++end;
  return text.compare(end, 2, ": ") == 0 ? end + 2 : at;
}

// "mychip" of ".../libanyhal_mychip.so": what a backend calls itself, whatever its instance's name.
std::string library_name(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  constexpr char kPrefix[] = "libanyhal_";
  if (name.rfind(kPrefix, 0) != 0) return {};
  name.erase(0, sizeof(kPrefix) - 1);
  return name.substr(0, name.find('.'));
}

}  // namespace

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

std::string said(const anyhal_error& error, const Instance& in) {
  // The record may come from a stranger: trust neither its terminator nor that it is one line.
  // A backend may have cut it anywhere.
  const size_t size = strnlen(error.text, sizeof(error.text));
  std::string text(error.text, whole_characters(error.text, size, size));
  for (char& c : text)
    if (std::iscntrl(static_cast<unsigned char>(c))) c = ' ';
  // The longest thing before " on " that can name an op or a slot.
  constexpr size_t kNameMax = 64;
  const size_t on = text.find(" on ");
  const bool named = on < kNameMax && text.find(": ") > on;
  for (const std::string& self : {in.name, library_name(in.path)}) {
    if (const size_t end = past_place(text, 0, self)) return text.substr(end);
    if (!named) continue;
    const size_t place = on + std::strlen(" on ");
    if (const size_t end = past_place(text, place, self); end != place) return text.substr(end);
  }
  return text;
}

void raise(anyhal_status status, const anyhal_error& error, const std::string& what,
           const Instance& in) {
  std::string why = said(error, in);
  if (status < ANYHAL_STATUS_OK || status > ANYHAL_STATUS_INTERNAL) {
    why = "the backend answered status " + std::to_string(status) +
          ", which does not exist; report this to its vendor";
    status = ANYHAL_STATUS_INTERNAL;
  } else if (why.empty()) {
    why = std::string("the backend answered ") + status_name(status);
  }
  throw Error(status, what + ": " + why, error.reason);
}

}  // namespace hal
