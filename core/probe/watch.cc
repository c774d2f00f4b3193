// Everything is read from the process itself, and nothing that is looked at is changed.
// SPDX-License-Identifier: Apache-2.0
#include "core/probe/watch.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "core/text.hpp"

extern char** environ;

namespace hal::probe {
namespace {

std::vector<int> numbers_in(const char* folder) {
  std::vector<int> found;
  DIR* open = opendir(folder);
  if (!open) return found;
  const int own = dirfd(open);
  while (const dirent* entry = readdir(open))
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != own)
      found.push_back(std::atoi(entry->d_name));
  closedir(open);
  return found;
}

void* handler_of(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) ? reinterpret_cast<void*>(action.sa_sigaction)
                                        : reinterpret_cast<void*>(action.sa_handler);
}

// Raised by the processor for what the program itself does; run-time libraries emulate
// instructions and find limits of memory that way.
bool is_fault(int number) {
  for (const int one : {SIGFPE, SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    if (number == one) return true;
  return false;
}

// Those that programs handle and nobody sends to themselves.
constexpr int kListened[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1, SIGUSR2,
                             SIGALRM, SIGPIPE, SIGWINCH, SIGCHLD, SIGXCPU, SIGXFSZ};
volatile sig_atomic_t g_heard = 0;

void hear(int) { g_heard = 1; }

bool arrives(int number) {
  if (std::find(std::begin(kListened), std::end(kListened), number) == std::end(kListened))
    return false;
  g_heard = 0;
  raise(number);
  return g_heard;
}

std::string signal_text(int number) {
  return "signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

int number_after(const char* key, const char* path) {
  FILE* file = std::fopen(path, "re");
  if (!file) return -1;
  int found = -1;
  char line[256];
  while (found < 0 && std::fgets(line, sizeof(line), file))
    if (std::strncmp(line, key, std::strlen(key)) == 0) found = std::atoi(line + std::strlen(key));
  std::fclose(file);
  return found;
}

int count_timers() {
  int count = 0;
  for (const auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    itimerval timer = {};
    if (getitimer(which, &timer) == 0) count += timerisset(&timer.it_value) ? 1 : 0;
  }
  FILE* file = std::fopen("/proc/self/timers", "re");  // those of timer_create
  char line[256];
  while (file && std::fgets(line, sizeof(line), file)) count += std::strncmp(line, "ID:", 3) == 0;
  if (file) std::fclose(file);
  return count;
}

std::vector<unsigned> ids() {
  uid_t user[3] = {};
  gid_t group[3] = {};
  getresuid(&user[0], &user[1], &user[2]);
  getresgid(&group[0], &group[1], &group[2]);
  return {user[0], user[1], user[2], group[0], group[1], group[2]};
}

std::map<std::string, int> process_flags() {
  int death = 0;
  prctl(PR_GET_PDEATHSIG, &death);
  // seccomp is read from a file: in its strict mode prctl would end the process
  return {{"whether it can be dumped and debugged", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)},
          {"what signal it gets when its parent ends", death},
          {"no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)},
          {"seccomp", number_after("Seccomp:", "/proc/self/status")}};
}

}  // namespace

void listen() {
  struct sigaction action = {};
  action.sa_handler = hear;
  action.sa_flags = SA_RESTART;
  for (const int number : kListened) sigaction(number, &action, nullptr);
}

void note(Record& record, What what, Stage stage, const std::string& detail) {
  Change& change = record.changes[what];
  if (change.stage.load() != kStart) return;
  copy_text(change.detail, detail.c_str());
  change.stage.store(stage);
}

Watch Watch::look() {
  Watch w;
  w.floating = floating_control();
  const char* locale = std::setlocale(LC_ALL, nullptr);
  w.locale = locale ? locale : "";
  char folder[PATH_MAX];
  w.directory = getcwd(folder, sizeof(folder)) ? folder : "";
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (sigaction(number, nullptr, &action) == 0)
      w.signals[number] = {handler_of(action), action.sa_flags};
    if (sigismember(&blocked, number) == 1) w.blocked.push_back(number);
  }
  for (char** at = environ; at && *at; ++at) {
    const std::string pair = *at;
    const size_t equals = pair.find('=');
    w.environment[pair.substr(0, equals)] =
        equals == std::string::npos ? "" : pair.substr(equals + 1);
  }
  w.mask = umask(0);
  umask(w.mask);
  for (int number = 0; number < int(RLIM_NLIMITS); ++number) {
    struct rlimit limit;
    if (getrlimit(__rlimit_resource_t(number), &limit) == 0)
      w.limits[number] = {limit.rlim_cur, limit.rlim_max};
  }
  CPU_ZERO(&w.affinity);
  sched_getaffinity(getpid(), sizeof(w.affinity), &w.affinity);
  w.user = ids();
  w.priority = {getpriority(PRIO_PROCESS, 0), sched_getscheduler(0)};
  w.process = process_flags();
  w.timers = count_timers();
  for (const int number : numbers_in("/proc/self/fd")) {
    struct stat info;
    if (fstat(number, &info) != 0) continue;
    w.files[number] = {info.st_dev, info.st_ino};
    if (!(fcntl(number, F_GETFD) & FD_CLOEXEC)) ++w.inherited;
  }
  w.threads = std::max(0, int(numbers_in("/proc/self/task").size()) - 1);
  return w;
}

void Watch::compare(const Watch& before, Stage stage, Record& record) const {
  const auto changed = [&](What what, const std::string& detail) {
    note(record, what, stage, detail);
  };
  if (floating != before.floating)
    changed(kFloatingPoint, "rounding, or what becomes of denormal numbers");
  if (locale != before.locale) changed(kLocale, "now " + locale);
  for (const auto& [number, action] : before.signals)
    if (auto now = signals.find(number); now != signals.end() && now->second != action)
      changed(is_fault(number)  ? kFaultSignal
              : arrives(number) ? kSignalInFront
                                : kSignal,
              signal_text(number));
  if (blocked != before.blocked)
    changed(kSignalMask, std::to_string(blocked.size()) + " signals are blocked");
  for (const auto& [name, value] : before.environment) {
    const auto now = environment.find(name);
    if (now == environment.end())
      changed(kEnvironment, "took the variable " + name + " away");
    else if (now->second != value)
      changed(kEnvironment, "gave the variable " + name + " a value");
  }
  for (const auto& [name, value] : environment)
    if (!before.environment.contains(name)) changed(kVariable, "set the variable " + name);
  if (directory != before.directory) changed(kDirectory, "now " + directory);
  if (mask != before.mask) changed(kUmask, "what new files may be used for");
  for (const auto& [number, limit] : before.limits) {
    const auto now = limits.at(number);
    if (now == limit) continue;
    const bool raised = now.first >= limit.first && now.second == limit.second;
    changed(raised ? kRaisedLimit : kLimit, "resource limit " + std::to_string(number));
  }
  if (!CPU_EQUAL(&affinity, &before.affinity))
    changed(kAffinity, "runs on " + std::to_string(CPU_COUNT(&affinity)) + " of " +
                           std::to_string(CPU_COUNT(&before.affinity)) + " processor cores");
  if (user != before.user) changed(kUser, "now user " + std::to_string(user[1]));
  if (priority != before.priority) changed(kPriority, "nice " + std::to_string(priority[0]));
  for (const auto& [name, value] : before.process)
    if (process.at(name) != value) changed(kProcess, name);
  if (timers > before.timers) changed(kTimer, std::to_string(timers) + " armed");
  for (const auto& [number, file] : before.files)
    if (auto now = files.find(number); now == files.end() || now->second != file)
      changed(kClosed, "descriptor " + std::to_string(number));
  if (files.size() > before.files.size())
    changed(kOpened, std::to_string(files.size() - before.files.size()) + " files open, of which " +
                         std::to_string(std::max(0, inherited - before.inherited)) +
                         " would go to child programs");
  if (threads > before.threads)
    changed(kThreads, std::to_string(threads - before.threads) +
                          (threads - before.threads == 1 ? " thread" : " threads"));
}

}  // namespace hal::probe
