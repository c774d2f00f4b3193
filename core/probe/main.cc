// anyhal-probe: opens a library for the first time, in a process that nobody will miss.
// SPDX-License-Identifier: Apache-2.0
//
//     anyhal-probe FD LIMIT_MS LIMIT_BYTES SETTINGS_BYTES SHA256 PATH NAME
//
// FD is the library's file, or a sealed copy of it; SHA256 may be "-" for the latter. The settings
// come on standard input, as name, 0, value, 0; it then stays open as long as the answer matters.
// The answer is one JSON object on standard output. What it means is judged by runtime/probe.py.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "core/probe/answer.hpp"
#include "core/probe/subject.hpp"
#include "core/probe/watcher.hpp"

namespace hal::probe {
namespace {

constexpr unsigned long kSettingsMax = 16u << 20;
constexpr int kLoadsBelow = 64;  // it takes the first free descriptor

std::string read_settings(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = read(STDIN_FILENO, text.data() + got, bytes - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) std::exit(2);  // whoever asked is gone
    got += size_t(n);
  }
  return text;
}

void take_settings(const std::string& text, Request& request) {
  for (size_t at = 0; at < text.size();) {
    const size_t key = text.find('\0', at);
    const size_t value = key == std::string::npos ? key : text.find('\0', key + 1);
    if (value == std::string::npos) return;
    request.settings.emplace_back(text.substr(at, key - at), text.substr(key + 1, value - key - 1));
    at = value + 1;
  }
}

// The dynamic loader opened it before main, for what LD_DEBUG asked; nobody inherits either.
void take_loads(Request& request) {
  const char* name = std::getenv("LD_DEBUG_OUTPUT");
  if (name) request.loads_path = name + ("." + std::to_string(getpid()));
  struct stat wanted, info;
  if (name && stat(request.loads_path.c_str(), &wanted) == 0)
    for (int number = STDERR_FILENO + 1; number < kLoadsBelow && request.loads < 0; ++number)
      if (fstat(number, &info) == 0 && info.st_dev == wanted.st_dev && info.st_ino == wanted.st_ino)
        request.loads = number;
  if (request.loads >= 0) fcntl(request.loads, F_SETFD, FD_CLOEXEC);
  unsetenv("LD_DEBUG"), unsetenv("LD_DEBUG_OUTPUT");
}

// The bytes that were looked at, whoever has written to the file since.
Sealed take_library(int file, const std::string& sha256, const std::string& path) {
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_WRITE)) return {Descriptor(file), sha256};
  Sealed copy = seal(Descriptor(file), path.substr(path.rfind('/') + 1));
  if (copy.sha256 != sha256)
    throw NotOpened{NotOpened::kUntrusted, "it was changed since it was looked at"};
  return copy;
}

int run(char** words) {
  Request request;
  take_loads(request);
  const int file = std::atoi(words[1]);
  const Limits limits = {std::strtoull(words[2], nullptr, 10),
                         std::strtoull(words[3], nullptr, 10)};
  const unsigned long bytes = std::strtoul(words[4], nullptr, 10);
  if (bytes > kSettingsMax) return 2;
  take_settings(read_settings(bytes), request);
  request.path = words[6], request.name = words[7];
  // As the core has it: a copy in memory lies in no folder, and a backend may look beside itself.
  request.settings.emplace_back("folder", request.path.substr(0, request.path.rfind('/')));
  try {
    const Sealed library = take_library(file, words[5], request.path);
    void* shared =
        mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw NotOpened{NotOpened::kNoRoom, std::strerror(errno)};
    Record& record = *new (shared) Record;
    const Outcome outcome = watch(limits, library, request, record);
    write_answer(outcome, record);
    return 0;
  } catch (const NotOpened& e) {
    write_failure(e.why == NotOpened::kUntrusted ? "changed" : "not_run", e.text);
    return 0;
  }
}

}  // namespace
}  // namespace hal::probe

int main(int count, char** words) {
  if (count != 8) {
    std::fprintf(stderr, "anyhal-probe is run by anyhal, which gives it seven arguments\n");
    return 2;
  }
  return hal::probe::run(words);
}
