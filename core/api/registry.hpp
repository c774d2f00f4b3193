// The registry file: what Python found and trusted, one tab-separated line per fact.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace hal {

// The states of routing/facts.py, best first.
inline constexpr const char* kStates[] = {"certified", "self-tested", "provisional", "uncertified",
                                          "quarantined"};

// An op with a main dtype that gave wrong answers on this machine.
struct WrongCell {
  std::string arch, op, dtype, why;
};

// Where and how long a certificate holds; elsewhere the backend's state is another.
struct Certified {
  int64_t until = 0;                         // seconds since 1970
  std::string otherwise, arch, least, most;  // drivers: the oldest and the newest one
};

struct Registered {
  std::string name, abi, state, sha256, path;
  bool allowed = false;  // may be chosen unnamed though uncertified
  int32_t rank = 0;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> first;  // libraries of its vendor to open before it
  std::vector<WrongCell> quarantined;
  std::vector<Certified> certified;
};

// The state on a device with that driver at that time. Twin of `standing` in runtime/certified.py.
HAL_API std::string state_on(const Registered& row, const std::string& arch,
                             const std::string& driver, int64_t now);

// Throws InvalidArgument, reason REGISTRY, naming `where` and the line.
HAL_API std::vector<Registered> parse_registry(const std::string& text, const std::string& where);
// Reads, checks who may write it, parses.
std::vector<Registered> read_registry(const std::string& path);
// ANYHAL_REGISTRY, else registry.tsv in the cache folder.
std::string registry_path();
// A variable's value; null when unset or empty, or when the process has more rights than its user.
const char* environment(const char* name);

}  // namespace hal
