// Reads the registry file; the writer is src/anyhal/runtime/registry.py, which describes the form.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/registry.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "anyhal/hal.h"
#include "core/trust.hpp"

namespace hal {
namespace {

constexpr size_t kBytesMax = 1 << 20;
constexpr const char* kAdvice = "; write it again with `anyhal devices --write-registry`";

struct Line {
  std::string where;
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "cannot read the registry " + where + ": " + why + kAdvice, HAL_REASON_REGISTRY);
  }
};

// \t, \n and \\ stand for what would break the form.
std::string unescape(std::string_view text, const Line& line) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const char next = ++i < text.size() ? text[i] : '\0';
    if (next != 't' && next != 'n' && next != '\\') line.refuse("a backslash stands alone");
    out += next == 't' ? '\t' : next == 'n' ? '\n' : '\\';
  }
  return out;
}

std::vector<std::string> split(std::string_view text, const Line& line) {
  std::vector<std::string> fields;
  for (;;) {
    const size_t tab = text.find('\t');
    fields.push_back(unescape(text.substr(0, tab), line));
    if (tab == std::string_view::npos) return fields;
    text.remove_prefix(tab + 1);
  }
}

template <class Int>
Int number(const std::string& text, const Line& line) {
  Int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size())
    line.refuse("'" + text + "' is not a whole number of " + std::to_string(8 * sizeof(Int)) +
                " bits");
  return value;
}

bool is_state(const std::string& text) {
  return std::find(std::begin(kStates), std::end(kStates), text) != std::end(kStates);
}

bool is_name(const std::string& s) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !s.empty() && s.size() < 48 && letter(s[0]) &&
         std::all_of(
             s.begin(), s.end(),
             [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

bool is_hash(const std::string& s) {
  return s.size() == 64 && s.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// RFC 3629: no stray or missing continuation, no overlong form, no surrogate, at most U+10FFFF.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return uint8_t(at < text.size() ? text[at] : 0); };
    const uint8_t first = byte(i++);
    if (first < 0x80) continue;
    if (first < 0xc2 || first > 0xf4) return false;
    const int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < least || byte(i) > most) return false;
    for (int k = 1; k < more; ++k)
      if ((byte(i + size_t(k)) & 0xc0) != 0x80) return false;
    i += size_t(more);
  }
  return true;
}

// Later writers may add fields at the end of a line, from form 2 on.
void need_fields(const std::vector<std::string>& f, size_t count, bool open, const Line& line) {
  if (f.size() == count + 1 || (open && f.size() > count)) return;
  line.refuse("a " + f[0] + " has " + std::to_string(count) + " fields, not " +
              std::to_string(f.size() - 1));
}

// name, abi, state, allowed, rank, sha256, path
Registered read_backend(const std::vector<std::string>& f, const Line& line) {
  Registered b;
  b.name = f[1], b.abi = f[2], b.state = f[3], b.sha256 = f[6], b.path = f[7];
  if (!is_name(b.name)) line.refuse("'" + b.name + "' is not a backend's name");
  if (!is_state(b.state)) line.refuse("'" + b.state + "' is not a state");
  if (f[4] != "yes" && f[4] != "no") line.refuse("'" + f[4] + "' is neither yes nor no");
  b.allowed = f[4] == "yes";
  b.rank = number<int32_t>(f[5], line);
  if (!is_hash(b.sha256)) line.refuse("'" + b.sha256 + "' is not a sha256 in lower-case hex");
  if (b.path.empty() || b.path[0] != '/') line.refuse("'" + b.path + "' is not an absolute path");
  return b;
}

// One line about a backend; `open`: what a later writer added is skipped.
void read_fact(const std::vector<std::string>& f, bool open, std::vector<Registered>& found,
               const Line& line) {
  if (f[0] == "backend") {
    need_fields(f, 7, open, line);
    found.push_back(read_backend(f, line));
    for (size_t i = 0; i + 1 < found.size(); ++i)
      if (found[i].name == found.back().name)
        line.refuse("the backend " + found.back().name + " is listed twice");
    return;
  }
  if (open && f[0] == "x-first" && f.size() > 1 && !found.empty()) {
    if (f[1][0] != '/') line.refuse("'" + f[1] + "' is not an absolute path");
    found.back().first.push_back(f[1]);
    return;
  }
  if (open && f[0] == "certified" && !found.empty()) {
    need_fields(f, 5, open, line);
    if (!is_state(f[2])) line.refuse("'" + f[2] + "' is not a state");
    found.back().certified.push_back({number<int64_t>(f[1], line), f[2], f[3], f[4], f[5]});
    return;
  }
  const bool setting = f[0] == "setting", cell = open && f[0] == "quarantine";
  if (!setting && !cell) {
    if (open && f[0].starts_with("x-")) return;
    line.refuse("'" + f[0] + "' is not known");
  }
  if (found.empty()) line.refuse("a " + f[0] + " stands before any backend");
  if (setting) {
    if (f.size() < 3 || (!open && f.size() > 3) || f[1].empty())
      line.refuse("a setting has a name and a value");
    for (const auto& [name, value] : found.back().settings)
      if (name == f[1]) line.refuse("the setting " + name + " is given twice");
    found.back().settings.emplace_back(f[1], f[2]);
    return;
  }
  need_fields(f, 4, open, line);
  found.back().quarantined.push_back({f[1], f[2], f[3], f[4]});
}

// "Linux 6.18.44-x" is "Linux ", {6, 18, 44}, "-x"; without numbers where it has other words.
struct Version {
  std::string_view name, rest;
  std::vector<int64_t> numbers;
};

Version version_of(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto first = std::find_if(text.begin(), text.end(), digit);
  Version v;
  v.name = text.substr(0, static_cast<size_t>(first - text.begin()));
  std::string_view left = text.substr(v.name.size());
  while (!left.empty() && digit(left[0]) && v.numbers.size() < 16) {
    size_t count = 0;
    int64_t value = 0;
    for (; count < left.size() && count < 9 && digit(left[count]); ++count)
      value = 10 * value + (left[count] - '0');
    v.numbers.push_back(value);
    left.remove_prefix(count);
    if (left.size() < 2 || left[0] != '.' || !digit(left[1])) break;
    left.remove_prefix(1);
  }
  v.rest = left;
  if (left.find_first_of(" \t") != std::string_view::npos) v.numbers.clear();
  return v;
}

// Twin of `covers` in runtime/certified.py: one of the two, or between them under the same name.
bool covers(const Certified& c, const std::string& driver) {
  if (driver == c.least || driver == c.most) return true;
  const Version least = version_of(c.least), most = version_of(c.most), here = version_of(driver);
  const auto alike = [&](const Version& v) {
    return !v.numbers.empty() && v.name == here.name && v.rest == here.rest;
  };
  return alike(least) && alike(most) && !here.numbers.empty() && least.numbers <= here.numbers &&
         here.numbers <= most.numbers;
}

}  // namespace

std::string state_on(const Registered& row, const std::string& arch, const std::string& driver,
                     int64_t now) {
  if (row.certified.empty() || row.state != kStates[0]) return row.state;
  for (const Certified& c : row.certified) {
    if (now < c.until && arch == c.arch && covers(c, driver)) return row.state;
  }
  return row.certified[0].otherwise;
}

std::vector<Registered> parse_registry(const std::string& text, const std::string& where) {
  std::vector<Registered> found;
  std::string form;
  bool ended = false;
  size_t count = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    const std::string_view row = rest.substr(0, end);
    const Line line{where + " line " + std::to_string(++count)};
    if (end == std::string_view::npos) line.refuse("the line has no end: the file was cut off");
    rest.remove_prefix(end + 1);
    if (row.find('\0') != std::string_view::npos) line.refuse("it holds a zero byte");
    if (!is_utf8(row)) line.refuse("it is not UTF-8");
    if (row.empty() || row[0] == '#') continue;
    const std::vector<std::string> f = split(row, line);
    if (form.empty()) {
      if (f.size() != 2 || f[0] != "anyhal-registry") line.refuse("it is not a registry file");
      form = f[1];
      if (form != "1" && form != "2" && form != "3")
        line.refuse("its form is " + form + ", this library reads forms 1 to 3");
    } else if (ended) {
      line.refuse("something follows the end");
    } else if (f[0] == "end") {
      if (f.size() != 2 || number<int32_t>(f[1], line) != int32_t(found.size()))
        line.refuse("the end does not count " + std::to_string(found.size()) + " backends");
      ended = true;
    } else {
      read_fact(f, form != "1", found, line);
    }
  }
  if (!ended) Line{where}.refuse("it has no end line: the file was cut off or is empty");
  return found;
}

namespace {

Descriptor open_registry(const std::string& path) {
  try {
    return open_trusted(path, true);
  } catch (const NotOpened& e) {
    if (e.why == NotOpened::kUntrusted)
      throw Error(ANYHAL_STATUS_ABI_MISMATCH,
                  "the registry " + path + " cannot be trusted: " + e.text +
                      "; take that right away (chmod go-w) or move the file",
                  HAL_REASON_UNTRUSTED);
    throw Error(ANYHAL_STATUS_NOT_FOUND,
                "there is no registry file " + path + ": " + e.text +
                    "; run `anyhal devices --write-registry`, or name the file in ANYHAL_REGISTRY",
                HAL_REASON_REGISTRY);
  }
}

}  // namespace

std::vector<Registered> read_registry(const std::string& path) {
  const Descriptor file = open_registry(path);
  std::string text(kBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(file.number(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Line{path}.refuse(std::string("it cannot be read: ") + std::strerror(errno));
    if (n == 0) break;
    size += size_t(n);
  }
  text.resize(size);
  if (text.size() > kBytesMax) Line{path}.refuse("it is larger than a megabyte");
  return parse_registry(text, path);
}

const char* environment(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

std::string registry_path() {
  const auto absolute = [](const char* name, const char* value) -> std::string {
    if (value[0] == '/') return value;
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                std::string("cannot read the environment variable ") + name + "='" + value +
                    "': it is a relative path; write an absolute one",
                HAL_REASON_ENVIRONMENT);
  };
  if (const char* file = environment("ANYHAL_REGISTRY")) return absolute("ANYHAL_REGISTRY", file);
  const std::string name = "/registry.tsv";
  if (const char* folder = environment("ANYHAL_CACHE"))
    return absolute("ANYHAL_CACHE", folder) + name;
  const char* cache = environment("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return cache + ("/anyhal" + name);
  if (const char* home = environment("HOME")) return home + ("/.cache/anyhal" + name);
  throw Error(ANYHAL_STATUS_NOT_FOUND,
              "no registry file: ANYHAL_REGISTRY and HOME are not set; name the file",
              HAL_REASON_REGISTRY);
}

}  // namespace hal
