// Reads from a library which others it needs from its own folder, and opens those first.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "core/trust.hpp"

namespace hal {
namespace {

// A library's bytes; whatever leaves them is not there.
struct Image {
  const uint8_t* bytes = nullptr;
  uint64_t size = 0;

  ~Image() {
    if (bytes) munmap(const_cast<uint8_t*>(bytes), size);
  }
  // Copied, since a damaged file may put a record anywhere.
  template <class T>
  bool get(uint64_t at, T& out) const {
    if (at > size || size - at < sizeof(T)) return false;
    std::memcpy(&out, bytes + at, sizeof(T));
    return true;
  }
  std::string_view text(uint64_t at) const {
    if (at >= size) return {};
    const auto* from = reinterpret_cast<const char*>(bytes) + at;
    const void* end = std::memchr(from, 0, size - at);
    return end ? std::string_view(from, size_t(static_cast<const char*>(end) - from))
               : std::string_view();
  }
};

struct Needs {
  std::vector<std::string_view> names, folders;
};

Needs needs_of(const Image& image) {
  ElfW(Ehdr) head;
  if (!image.get(0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return {};
  std::vector<ElfW(Phdr)> loads;
  ElfW(Phdr) part, dynamic = {};
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    if (!image.get(head.e_phoff + i * sizeof(part), part)) return {};
    if (part.p_type == PT_LOAD) loads.push_back(part);
    if (part.p_type == PT_DYNAMIC) dynamic = part;
  }
  const auto offset_of = [&](uint64_t address) {
    for (const ElfW(Phdr) & p : loads)
      if (address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
        return address - p.p_vaddr + p.p_offset;
    return ~uint64_t(0);
  };
  uint64_t strings = ~uint64_t(0);
  std::vector<uint64_t> names, folders;
  ElfW(Dyn) entry;
  for (uint64_t at = 0; at + sizeof(entry) <= dynamic.p_filesz; at += sizeof(entry)) {
    if (!image.get(dynamic.p_offset + at, entry) || entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) strings = offset_of(entry.d_un.d_ptr);
    if (entry.d_tag == DT_NEEDED) names.push_back(entry.d_un.d_val);
    if (entry.d_tag == DT_RUNPATH || entry.d_tag == DT_RPATH) folders.push_back(entry.d_un.d_val);
  }
  Needs found;
  if (strings >= image.size) return found;
  for (const uint64_t at : names) found.names.push_back(image.text(strings + at));
  for (const uint64_t at : folders)
    for (std::string_view list = image.text(strings + at); !list.empty();) {
      const size_t colon = list.find(':');
      found.folders.push_back(list.substr(0, colon));
      list.remove_prefix(colon == std::string_view::npos ? list.size() : colon + 1);
    }
  return found;
}

// `folder` with the library's own in place of $ORIGIN; "" for one that does not begin so.
std::string beside(std::string_view folder, const std::string& library) {
  for (const std::string_view name : {"$ORIGIN", "${ORIGIN}"})
    if (folder.starts_with(name))
      return library.substr(0, library.find_last_of('/')) + std::string(folder.substr(name.size()));
  return {};
}

}  // namespace

void open_neighbours(const Sealed& copy, const std::string& library) {
  struct stat info;
  if (fstat(copy.memory.number(), &info) != 0 || info.st_size <= 0) return;
  Image image;
  void* mapped =
      mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, copy.memory.number(), 0);
  if (mapped == MAP_FAILED) return;
  image.bytes = static_cast<const uint8_t*>(mapped), image.size = uint64_t(info.st_size);
  const Needs needs = needs_of(image);
  for (const std::string_view name : needs.names)
    for (const std::string_view folder : needs.folders) {
      const std::string where = beside(folder, library);
      if (where.empty() || name.find('/') != std::string_view::npos) continue;
      const std::string path = where + "/" + std::string(name);
      struct stat there;
      if (stat(path.c_str(), &there) != 0) continue;
      open_trusted(path, false);                    // throws where others can write it
      dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // what fails is named when the copy is opened
      break;
    }
}

}  // namespace hal
