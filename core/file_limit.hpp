// Writing files where a process's files are limited (ulimit -f).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace hal {

// While it lives, this thread's writes past the limit fail with EFBIG alone: the signal that the
// kernel sends as well, which would end the process, is taken. What was pending before stays.
class FileLimitSignal {
 public:
  FileLimitSignal() {
    sigset_t pending;
    sigemptyset(&own_), sigaddset(&own_, SIGXFSZ);
    sigpending(&pending);
    pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &own_, &old_);
  }
  FileLimitSignal(const FileLimitSignal&) = delete;
  ~FileLimitSignal() {
    const timespec none = {0, 0};
    if (!pending_) sigtimedwait(&own_, nullptr, &none);
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }

 private:
  sigset_t own_, old_;
  bool pending_;
};

}  // namespace hal
