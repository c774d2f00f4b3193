// Reads the registry file; the writer is src/anyhal/runtime/registry.py, which describes the form.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/registry.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "anyhal/hal.h"

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

int32_t number(const std::string& text, const Line& line) {
  int32_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size())
    line.refuse("'" + text + "' is not a whole number of 32 bits");
  return value;
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

// name, abi, state, allowed, rank, sha256, path
Registered read_backend(const std::vector<std::string>& f, const Line& line) {
  if (f.size() != 8) line.refuse("a backend has 7 fields, not " + std::to_string(f.size() - 1));
  Registered b;
  b.name = f[1], b.abi = f[2], b.state = f[3], b.sha256 = f[6], b.path = f[7];
  if (!is_name(b.name)) line.refuse("'" + b.name + "' is not a backend's name");
  const auto is_state = [&](const char* state) { return b.state == state; };
  if (std::none_of(std::begin(kStates), std::end(kStates), is_state))
    line.refuse("'" + b.state + "' is not a state");
  if (f[4] != "yes" && f[4] != "no") line.refuse("'" + f[4] + "' is neither yes nor no");
  b.allowed = f[4] == "yes";
  b.rank = number(f[5], line);
  if (!is_hash(b.sha256)) line.refuse("'" + b.sha256 + "' is not a sha256 in lower-case hex");
  if (b.path.empty() || b.path[0] != '/') line.refuse("'" + b.path + "' is not an absolute path");
  return b;
}

}  // namespace

std::vector<Registered> parse_registry(const std::string& text, const std::string& where) {
  std::vector<Registered> found;
  bool begun = false, ended = false;
  size_t count = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    const std::string_view row = rest.substr(0, end);
    const Line line{where + " line " + std::to_string(++count)};
    if (end == std::string_view::npos) line.refuse("the line has no end: the file was cut off");
    rest.remove_prefix(end + 1);
    if (row.find('\0') != std::string_view::npos) line.refuse("it holds a zero byte");
    if (row.empty() || row[0] == '#') continue;
    const std::vector<std::string> f = split(row, line);
    if (!begun) {
      begun = true;
      if (f.size() != 2 || f[0] != "anyhal-registry") line.refuse("it is not a registry file");
      if (f[1] != "1") line.refuse("its form is " + f[1] + ", this library reads form 1");
    } else if (ended) {
      line.refuse("something follows the end");
    } else if (f[0] == "backend") {
      found.push_back(read_backend(f, line));
      for (size_t i = 0; i + 1 < found.size(); ++i)
        if (found[i].name == found.back().name)
          line.refuse("the backend " + found.back().name + " is listed twice");
    } else if (f[0] == "setting") {
      if (found.empty()) line.refuse("a setting stands before any backend");
      if (f.size() != 3 || f[1].empty()) line.refuse("a setting has a name and a value");
      found.back().settings.emplace_back(f[1], f[2]);
    } else if (f[0] == "end") {
      if (f.size() != 2 || number(f[1], line) != int32_t(found.size()))
        line.refuse("the end does not count " + std::to_string(found.size()) + " backends");
      ended = true;
    } else {
      line.refuse("'" + f[0] + "' is not known");
    }
  }
  if (!ended) Line{where}.refuse("it has no end line: the file was cut off or is empty");
  return found;
}

std::vector<Registered> read_registry(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  struct stat info;
  if (!file || stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    throw Error(ANYHAL_STATUS_NOT_FOUND,
                "there is no registry file " + path +
                    "; run `anyhal devices --write-registry`, or name the file in ANYHAL_REGISTRY",
                HAL_REASON_REGISTRY);
  const std::string writer = writable_by_others(path, true);
  if (!writer.empty())
    throw Error(ANYHAL_STATUS_ABI_MISMATCH,
                "the registry " + path + " cannot be trusted: " + writer +
                    "; take that right away (chmod go-w) or move the file",
                HAL_REASON_UNTRUSTED);
  std::string text(kBytesMax + 1, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(file.gcount()));
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

std::string writable_by_others(const std::string& path, bool strict) {
  char* resolved = realpath(path.c_str(), nullptr);
  if (!resolved) return path + " cannot be resolved: " + std::strerror(errno);
  const std::string whole = resolved;
  std::free(resolved);
  for (std::string step = whole;;) {
    struct stat info;
    if (stat(step.c_str(), &info) != 0) return step + " cannot be read: " + std::strerror(errno);
    // In a sticky folder such as /tmp others cannot replace what is mine.
    const bool sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX);
    if ((info.st_mode & S_IWOTH) && !sticky) return step + " can be written by everybody";
    if (!strict) return "";
    if (info.st_uid != 0 && info.st_uid != geteuid())
      return step + " belongs to user " + std::to_string(info.st_uid);
    if ((info.st_mode & S_IWGRP) && info.st_gid != 0 && info.st_gid != getegid() && !sticky)
      return step + " can be written by group " + std::to_string(info.st_gid);
    if (step == "/") return "";
    const size_t slash = step.find_last_of('/');
    step.resize(slash ? slash : 1);
  }
}

}  // namespace hal
