// Nothing here opens the library: what is watched cannot take the watcher with it.
// SPDX-License-Identifier: Apache-2.0
#include "core/probe/watcher.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hal::probe {
namespace {

constexpr int kLookEveryMs = 10;
constexpr uint64_t kEndWithinUs = 1000000;  // a process in a driver's hands may not end at all
constexpr size_t kBeginning = 200;

uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000u + uint64_t(t.tv_nsec) / 1000u;
}

struct Pipe {
  Descriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw NotOpened{NotOpened::kNoRoom, std::string("no pipe: ") + std::strerror(errno)};
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void close_between(int first, int last) {
#ifdef SYS_close_range  // Linux 5.9
  if (first > last || syscall(SYS_close_range, unsigned(first), unsigned(last), 0u) == 0) return;
#endif
  for (int number = first; number <= std::min(last, 1023); ++number) close(number);
}

void write_text(const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t done = write(file, text, std::strlen(text));
  close(file);
}

[[noreturn]] void become_subject(pid_t watcher, int out, int err, const Sealed& library,
                                 const Request& request, Record& record) {
  prctl(PR_SET_PDEATHSIG, SIGRTMAX);  // ends it as SIGKILL would, which libraries choose
  if (getppid() != watcher) _exit(0);
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO), dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
  const auto [low, high] = std::minmax({library.memory.number(), std::max(request.loads, 2)});
  close_between(STDERR_FILENO + 1, low - 1);
  close_between(low + 1, high - 1);
  close_between(high + 1, INT_MAX);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  write_text("/proc/self/oom_score_adj", "1000");  // when memory runs out, this one goes first
  run_subject(request, library, record);
}

void read_printed(int from, Printed& printed, uint32_t stage) {
  char piece[4096];
  for (ssize_t n; (n = read(from, piece, sizeof(piece))) > 0;) {
    if (printed.bytes == 0) printed.stage = stage;
    printed.bytes += uint64_t(n);
    if (printed.beginning.size() < kBeginning)
      printed.beginning.append(piece, std::min(size_t(n), kBeginning - printed.beginning.size()));
  }
}

// Memory of its own: what it only reserved, and the files it mapped, do not count.
uint64_t own_bytes(pid_t process) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/statm", int(process));
  FILE* file = std::fopen(path, "re");
  if (!file) return 0;
  unsigned long long resident = 0, shared = 0;
  const int got = std::fscanf(file, "%*u %llu %llu", &resident, &shared);
  std::fclose(file);
  return got == 2 && resident > shared ? (resident - shared) * uint64_t(getpagesize()) : 0;
}

// Ends what is left of the subject's family: as a subreaper this process inherits all orphans.
int end_family(pid_t subject) {
  kill(-subject, SIGKILL);
  int left = 0;
  const uint64_t until = now_us() + kEndWithinUs;
  while (now_us() < until) {
    int status;
    const pid_t one = waitpid(-1, &status, WNOHANG);
    if (one < 0) return left;
    if (one > 0) {
      left += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      continue;
    }
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/task/%d/children", int(getpid()));
    if (FILE* file = std::fopen(path, "re")) {
      for (int child; std::fscanf(file, "%d", &child) == 1;) kill(child, SIGKILL);
      std::fclose(file);
    }
    usleep(500);
  }
  return left + 1;
}

void note_end(int status, const Record& record, Outcome& outcome) {
  if (WIFSIGNALED(status)) {
    outcome.ended = "signal", outcome.number = WTERMSIG(status);
  } else if (WEXITSTATUS(status) != 0 || record.stage.load() != kExit) {
    outcome.ended = "exited", outcome.number = WEXITSTATUS(status);
  }
}

// Whether whoever asked has closed our input: then nobody waits for the answer.
bool abandoned(const pollfd& input) { return input.revents & (POLLHUP | POLLERR | POLLNVAL); }

}  // namespace

Outcome watch(const Limits& limits, const Sealed& library, const Request& request, Record& record) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Pipe out = make_pipe(), err = make_pipe();
  const uint64_t start = now_us(), until = start + limits.milliseconds * 1000u;
  const pid_t self = getpid(), subject = fork();
  if (subject < 0)
    throw NotOpened{NotOpened::kNoRoom, std::string("no process: ") + std::strerror(errno)};
  if (subject == 0)
    become_subject(self, out.write.number(), err.write.number(), library, request, record);
  out.write = Descriptor(), err.write = Descriptor();
  Outcome outcome;
  pollfd waited[] = {
      {out.read.number(), POLLIN, 0}, {err.read.number(), POLLIN, 0}, {STDIN_FILENO, 0, 0}};
  for (int status;;) {
    poll(waited, 3, kLookEveryMs);
    const uint32_t stage = record.stage.load();  // the next one waits until this is read
    read_printed(out.read.number(), outcome.out, stage);
    read_printed(err.read.number(), outcome.err, stage);
    for (pollfd& one : waited)  // a closed pipe is always ready; its end is seen below
      if (one.fd != STDIN_FILENO && (one.revents & POLLHUP)) one.fd = -1;
    if (waitpid(subject, &status, WNOHANG) == subject) {
      note_end(status, record, outcome);
      break;
    }
    const uint64_t bytes = own_bytes(subject);
    outcome.peak_bytes = std::max(outcome.peak_bytes, bytes);
    const bool alone = abandoned(waited[2]);
    if (!alone && now_us() < until && bytes <= limits.bytes) continue;
    outcome.ended = bytes > limits.bytes ? "memory" : "hung";
    kill(subject, SIGKILL);
    for (const uint64_t end = now_us() + kEndWithinUs;
         waitpid(subject, &status, WNOHANG) == 0 && now_us() < end;)
      usleep(500);
    if (alone) {
      end_family(subject);
      unlink(request.loads_path.c_str());
      rmdir(request.loads_path.substr(0, request.loads_path.rfind('/')).c_str());
      _exit(3);
    }
    break;
  }
  outcome.microseconds = now_us() - start;
  outcome.left = end_family(subject);
  read_printed(out.read.number(), outcome.out, record.stage.load());
  read_printed(err.read.number(), outcome.err, record.stage.load());
  return outcome;
}

}  // namespace hal::probe
