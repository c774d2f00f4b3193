// Reading names and the environment.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/names.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/api/edge.hpp"
#include "core/api/registry.hpp"
#include "core/executor.hpp"
#include "core/instance.hpp"
#include "core/memory.hpp"

namespace hal {
namespace {

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return text;
}

// Insertions, deletions and replacements that lead from one to the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t best = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = std::exchange(row[j], best);
    }
  }
  return row[b.size()];
}

[[noreturn]] void unreadable(const char* name, const std::string& value, const char* cure) {
  invalid(std::string("cannot read the environment variable ") + name + "='" + value + "'; " + cure,
          HAL_REASON_ENVIRONMENT);
}

}  // namespace

std::vector<std::string> split_names(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    const bool last = end == std::string::npos;
    std::string part = text.substr(begin, last ? end : end - begin);
    if (begin) part.erase(0, part.find_first_not_of(' '));
    if (!last) part.erase(part.find_last_not_of(' ') + 1);
    parts.push_back(part);
    if (last) return parts;
    begin = end + 1;
  }
}

bool is_device_name(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string chip = name.substr(0, colon);
  const std::string index = colon == std::string::npos ? "0" : name.substr(colon + 1);
  return !chip.empty() && chip[0] >= 'a' && chip[0] <= 'z' &&
         chip.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos &&
         !index.empty() && index.size() < 7 &&
         index.find_first_not_of("0123456789") == std::string::npos &&
         (index.size() == 1 || index[0] != '0');
}

std::string plain_identity(const std::string& text) {
  const auto hex = [](const std::string& s) {
    return s.find_first_not_of("0123456789abcdef") == std::string::npos;
  };
  std::string plain = lower(text);
  if (plain.rfind("gpu-", 0) == 0) plain.erase(0, 4);
  if (plain.size() == 36 && plain[8] == '-' && plain[13] == '-' && plain[18] == '-' &&
      plain[23] == '-')
    for (size_t at : {23, 18, 13, 8}) plain.erase(at, 1);
  if (plain.size() == 32 && hex(plain)) return plain;
  plain = lower(text);
  const size_t domain = plain.find(':');
  if (domain == std::string::npos || domain < 4 || domain > 8 || plain.size() != domain + 8)
    return text;
  const std::string rest = plain.substr(domain);  // ":3b:00.0"
  if (!hex(plain.substr(0, domain)) || rest[3] != ':' || rest[6] != '.' || rest[7] < '0' ||
      rest[7] > '7' || !hex(rest.substr(1, 2)) || !hex(rest.substr(4, 2)))
    return text;
  char number[9];
  std::snprintf(number, sizeof(number), "%04lx",
                std::strtoul(plain.substr(0, domain).c_str(), nullptr, 16));
  return number + rest;
}

bool names_backend(const std::string& name, const std::string& backend) {
  return is_device_name(name) && name.substr(0, name.find(':')) == backend;
}

bool names_device(const std::string& name, const std::string& backend, uint32_t index) {
  return name == backend || name == backend + ":" + std::to_string(index);
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(1, name.size() / 2);
  const std::string plain = lower(name);
  for (const std::string& one : known)
    if (plain.size() < 64 && distance(plain, one) <= least) {
      const size_t d = distance(plain, one);
      if (best.empty() || d < least) best = one, least = d;
    }
  return best;
}

void apply_environment() {
  if (const char* text = environment("ANYHAL_THREADS")) {
    uint32_t count = 0;
    const auto [end, code] = std::from_chars(text, text + std::strlen(text), count);
    if (code != std::errc() || *end || count < 1 || count > 65536)
      unreadable("ANYHAL_THREADS", text, "write a count from 1 to 65536");
    executor_set_thread_count(count);
  }
  if (const char* text = environment("ANYHAL_LOG")) {
    static const char* const kLevels[] = {"debug", "info", "warning", "error", "off"};
    const auto level = std::find(std::begin(kLevels), std::end(kLevels), lower(text));
    if (level == std::end(kLevels))
      unreadable("ANYHAL_LOG", text, "write debug, info, warning, error or off");
    set_log_level(int(level - std::begin(kLevels)));
  }
  if (const char* text = environment("ANYHAL_DEBUG_POOL")) {
    static const char* const kWords[] = {"0", "false", "no", "off", "1", "true", "yes", "on"};
    const auto word = std::find(std::begin(kWords), std::end(kWords), lower(text));
    if (word == std::end(kWords)) unreadable("ANYHAL_DEBUG_POOL", text, "write 1 or 0");
    set_debug_pool(word - std::begin(kWords) >= 4);
  }
}

void need(const void* pointer, const char* argument) {
  if (!pointer) invalid(std::string("the argument ") + argument + " is NULL; pass an address");
}

}  // namespace hal
