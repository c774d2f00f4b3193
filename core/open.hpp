// The one way of a library into the process: what was hashed is what is opened.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/instance.hpp"
#include "core/trust.hpp"

namespace hal {

// The name by which dlopen gets exactly the bytes that have this hash: a sealed copy in memory that
// stays open for ever, so that its name never becomes another's. The same file with the same hash
// has one copy, so that its instances share the library. Libraries beside `path` that it needs are
// opened first. Throws NotOpened.
std::string trusted_copy(const std::string& path, const std::string& sha256);

// Opens those that a vendor's own libraries need, by absolute path: what they then ask for by name
// is in the process already, and no search path is asked. Throws NotOpened.
void open_first(const std::vector<std::string>& libraries);

struct Trusted {
  std::string path, sha256;
  std::vector<std::string> first;  // libraries of its vendor to open before it, absolute
};
// load_instance of such a copy; Error has the stage (trust, dependencies, or a later one) and its
// code. The backend gets its own folder as the setting "folder", since its copy lies in none.
HAL_API Instance* load_trusted(const Trusted& library, const std::string& name,
                               std::vector<std::pair<std::string, std::string>> settings);

// Every object that the process has mapped, by the file it came from, in the order of loading.
HAL_API std::vector<std::string> mapped_libraries();

}  // namespace hal
