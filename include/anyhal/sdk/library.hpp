// What a file would do to the process that opens it as a library, seen before dlopen is called.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_LIBRARY_HPP_
#define ANYHAL_SDK_LIBRARY_HPP_

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace hal::sdk {

// Bytes that the parts of a 64-bit ELF file reach to; 0 where it is none.
inline uint64_t library_end(int file) {
  Elf64_Ehdr head = {};
  if (pread(file, &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head) ||
      std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64)
    return 0;
  uint64_t end = 0;
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part = {};
    const auto at = static_cast<off_t>(head.e_phoff + i * sizeof part);
    if (pread(file, &part, sizeof part, at) != static_cast<ssize_t>(sizeof part)) break;
    const uint64_t last = part.p_offset + part.p_filesz;
    if (part.p_type == PT_LOAD && last > end) end = last;
  }
  return end;
}

// Why the file at `path` must not be given to dlopen, beginning with its path; "" where it may be.
// dlopen waits for ever at a pipe, and maps what a library says, so that a truncated one kills the
// process. All else (nothing there, a folder, text) it refuses by itself, and by name. A path
// without a slash is searched for among the system's libraries, and is not looked at here.
inline std::string library_fault(const std::string& path) {
  struct stat info = {};
  if (path.find('/') == std::string::npos || stat(path.c_str(), &info) != 0) return "";
  if (S_ISDIR(info.st_mode)) return "";
  if (!S_ISREG(info.st_mode)) return path + ": it is no regular file";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return "";
  const uint64_t end = library_end(file);
  close(file);
  return end > static_cast<uint64_t>(info.st_size) ? path + ": it is not a whole library" : "";
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_LIBRARY_HPP_
