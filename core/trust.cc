// One walk from the root, link by link; a sealed copy in memory.
// SPDX-License-Identifier: Apache-2.0
#include "core/trust.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/file_limit.hpp"
#include "core/sha256.hpp"

namespace hal {
namespace {

constexpr int kLinksMax = 40;                      // as the kernel's own walk
constexpr uint64_t kBytesMax = uint64_t(1) << 32;  // of a library
constexpr unsigned kNoExecSeal = 8;                // MFD_NOEXEC_SEAL of Linux 6.3

[[noreturn]] void missing(const std::string& where) {
  throw NotOpened{NotOpened::kMissing, where + " cannot be opened: " + std::strerror(errno)};
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

struct stat stat_of(const Descriptor& at, const std::string& where) {
  struct stat info;
  if (fstat(at.number(), &info) != 0) missing(where);
  return info;
}

// Only root and this user may replace or write it. A link has no rights of its own, only an owner.
void require_own(const struct stat& info, const std::string& where) {
  const auto refuse = [&](const std::string& why) {
    throw NotOpened{NotOpened::kUntrusted, where + why};
  };
  if (info.st_uid != 0 && info.st_uid != geteuid())
    refuse(" belongs to user " + std::to_string(info.st_uid));
  if (S_ISLNK(info.st_mode)) return;
  // In a sticky folder such as /tmp others cannot replace what is mine.
  if (S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX)) return;
  if (info.st_mode & S_IWOTH) refuse(" can be written by everybody");
  if (info.st_mode & S_IWGRP && info.st_gid != 0 && info.st_gid != getegid())
    refuse(" can be written by group " + std::to_string(info.st_gid));
}

// The parts of a path in reverse, so that the next one is at the end.
void push_parts(std::vector<std::string>& rest, const std::string& path) {
  for (size_t end = path.size(); end != std::string::npos;) {
    const size_t slash = end ? path.rfind('/', end - 1) : std::string::npos;
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    if (end > begin && path.compare(begin, end - begin, ".") != 0)
      rest.push_back(path.substr(begin, end - begin));
    end = slash;
  }
}

std::string target_of(const Descriptor& link, const std::string& where) {
  char text[PATH_MAX];
  const ssize_t n = readlinkat(link.number(), "", text, sizeof(text));
  if (n < 0) missing(where);
  return std::string(text, size_t(n));
}

Descriptor open_last(const Descriptor& folder, const std::string& name, const struct stat& seen,
                     const std::string& where) {
  if (!S_ISREG(seen.st_mode))
    throw NotOpened{NotOpened::kMissing,
                    where + " is " + kind_of(seen.st_mode) + ", not a regular file"};
  require_own(seen, where);
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  Descriptor file(openat(folder.number(), name.c_str(), flags));
  if (file.number() < 0) missing(where);
  const struct stat now = stat_of(file, where);
  if (now.st_dev != seen.st_dev || now.st_ino != seen.st_ino)
    throw NotOpened{NotOpened::kUntrusted, where + " was replaced while it was looked at"};
  return file;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Descriptor open_trusted(const std::string& path, bool every_step) {
  std::vector<std::string> rest;
  push_parts(rest, path);
  if (path.empty() || path[0] != '/') {
    char folder[PATH_MAX];
    if (!getcwd(folder, sizeof(folder))) missing(path);
    push_parts(rest, folder);
  }
  const auto root = [] { return Descriptor(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)); };
  Descriptor at = root();
  std::string folder;  // "" is the root
  int links = 0;
  while (!rest.empty()) {
    const std::string part = rest.back();
    rest.pop_back();
    const std::string where =
        part == ".." ? folder.substr(0, folder.find_last_of('/')) : folder + "/" + part;
    Descriptor next(openat(at.number(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (next.number() < 0) missing(where);
    const struct stat info = stat_of(next, where);
    if (!S_ISDIR(info.st_mode) && !S_ISLNK(info.st_mode)) {
      errno = ENOTDIR;
      if (!rest.empty()) missing(where);
      return open_last(at, part, info, where);
    }
    if (every_step) require_own(info, where);
    if (S_ISDIR(info.st_mode)) {
      at = std::move(next), folder = where;
      continue;
    }
    errno = ELOOP;
    if (++links > kLinksMax) missing(where);
    const std::string target = target_of(next, where);
    push_parts(rest, target);
    if (!target.empty() && target[0] == '/') at = root(), folder.clear();
  }
  throw NotOpened{NotOpened::kMissing, path + " is a folder, not a regular file"};
}

Sealed seal(const Descriptor& file, const std::string& name) {
  const auto failed = [&](const char* what) {
    throw NotOpened{NotOpened::kMissing, std::string(what) + ": " + std::strerror(errno)};
  };
  const auto no_memory = [&] {
    throw NotOpened{NotOpened::kNoMemory,
                    std::string("there is no memory for a private copy: ") + std::strerror(errno)};
  };
  // Since Linux 6.3 a system may insist on the flag, before it the flag is unknown.
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor memory(memfd_create(name.c_str(), flags | kNoExecSeal));
  if (memory.number() < 0) memory = Descriptor(memfd_create(name.c_str(), flags));
  if (memory.number() < 0) no_memory();
  const FileLimitSignal guard;
  Sha256 hash;
  std::vector<uint8_t> piece(1 << 16);
  for (uint64_t at = 0;;) {
    const ssize_t n = pread(file.number(), piece.data(), piece.size(), off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) failed("it cannot be read");
    if (n == 0) break;
    at += uint64_t(n);
    if (at > kBytesMax)
      throw NotOpened{NotOpened::kMissing, "it has more than 4 GiB, which no backend has"};
    hash.add(piece.data(), uint64_t(n));
    for (ssize_t done = 0; done < n;) {
      const ssize_t written = write(memory.number(), piece.data() + done, size_t(n - done));
      if (written < 0 && errno == EFBIG)
        throw NotOpened{NotOpened::kNoRoom,
                        "its private copy in memory is larger than this process may write; raise "
                        "the limit of file sizes (ulimit -f)"};
      if (written < 0 && errno != EINTR) no_memory();
      done += written > 0 ? written : 0;
    }
  }
  if (fcntl(memory.number(), F_ADD_SEALS,
            F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    failed("its private copy cannot be sealed");
  return {std::move(memory), hex_of(hash.finish())};
}

}  // namespace hal
