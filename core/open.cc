// Sealed copies, each kept for the process's life, and what is really mapped.
// SPDX-License-Identifier: Apache-2.0
#include "core/open.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

#include "core/floating.hpp"

namespace hal {
namespace {

// A copy that dlopen may have seen. Never taken away; found without a lock, since a process may be
// forked while another thread loads.
struct Copy {
  std::string path, sha256, name;
  const Copy* next;
};
std::atomic<const Copy*> g_copies{nullptr};

const Copy* copy_of(const std::string& path, const std::string& sha256) {
  for (const Copy* c = g_copies.load(); c; c = c->next)
    if (c->sha256 == sha256 && c->path == path) return c;
  return nullptr;
}

// What /proc/self/maps and debuggers show of the copy: the path's end, as far as the kernel takes
// it.
std::string shown(const std::string& path) {
  constexpr size_t kNameMax = 240;  // NAME_MAX less "memfd:"
  return path.size() <= kNameMax ? path : path.substr(path.size() - kNameMax);
}

[[noreturn]] void refuse(const Trusted& library, const std::string& name, const char* stage,
                         anyhal_status status, const char* code, const std::string& why) {
  throw Error(status, "backend '" + name + "' was not loaded from " + library.path + ": " + why, 0,
              stage, code);
}

[[noreturn]] void refuse(const Trusted& library, const std::string& name, const NotOpened& e) {
  static const struct {
    const char* stage;
    anyhal_status status;
    const char *code, *hint;
  } kRows[] = {
      // by NotOpened::Why
      {"trust", ANYHAL_STATUS_NOT_FOUND, "unreadable", "; install it again"},
      {"trust", ANYHAL_STATUS_ABI_MISMATCH, "untrusted", "; take that right away (chmod go-w)"},
      {"trust", ANYHAL_STATUS_ABI_MISMATCH, "hash_mismatch", "; install it again"},
      {"open", ANYHAL_STATUS_OUT_OF_MEMORY, "no_memory", "; free some"},
      {"open", ANYHAL_STATUS_OUT_OF_MEMORY, "file_limit", ""},
  };
  const auto& row = kRows[e.why];
  refuse(library, name, row.stage, row.status, row.code, e.text + row.hint);
}

int add_name(dl_phdr_info* info, size_t, void* out) {
  auto& names = *static_cast<std::vector<std::string>*>(out);
  if (!info->dlpi_name || !*info->dlpi_name) return 0;  // the program itself
  std::string name = info->dlpi_name;
  for (const Copy* c = g_copies.load(); c; c = c->next)
    if (c->name == name) {
      name = c->path;
      break;
    }
  names.push_back(std::move(name));
  return 0;
}

}  // namespace

void open_first(const std::vector<std::string>& libraries) {
  for (const std::string& path : libraries) {
    open_trusted(path, false);  // throws where others can write it
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) continue;
    const char* said = dlerror();
    throw NotOpened{NotOpened::kMissing, std::string("its vendor's library cannot be opened: ") +
                                             (said ? said : path.c_str())};
  }
}

std::string trusted_copy(const std::string& path, const std::string& sha256) {
  if (const Copy* known = copy_of(path, sha256)) return known->name;
  Sealed copy = seal(open_trusted(path, false), shown(path));
  if (copy.sha256 != sha256)
    throw NotOpened{NotOpened::kChanged, "its hash " + copy.sha256.substr(0, 16) + " is not " +
                                             sha256.substr(0, 16) +
                                             ", which was looked at: it was changed"};
  open_neighbours(copy, path);
  auto* kept = new Copy{path, sha256, copy.path(), g_copies.load()};
  copy.memory.keep();
  while (!g_copies.compare_exchange_weak(kept->next, kept)) {
  }
  return kept->name;
}

Instance* load_trusted(const Trusted& library, const std::string& name,
                       std::vector<std::pair<std::string, std::string>> settings) {
  std::string copy;
  const FloatingGuard floating;  // constructors can change how the host computes
  try {
    open_first(library.first);
  } catch (const NotOpened& e) {
    const bool untrusted = e.why == NotOpened::kUntrusted;
    refuse(library, name, "dependencies", ANYHAL_STATUS_NOT_FOUND,
           untrusted ? "untrusted" : "missing_library", e.text + "; install it again");
  }
  try {
    copy = trusted_copy(library.path, library.sha256);
  } catch (const NotOpened& e) {
    refuse(library, name, e);
  }
  settings.emplace_back("folder", library.path.substr(0, library.path.rfind('/')));
  Instance* made = load_instance(library.path, name, std::move(settings), copy);
  made->asked.back() = 1;  // it came from here: no spelling to check
  return made;
}

std::vector<std::string> mapped_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(add_name, &names);
  return names;
}

}  // namespace hal
