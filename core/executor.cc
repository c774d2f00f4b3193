// Workers spin briefly for the next job, then sleep on a futex; a job is claimed index by index.
// SPDX-License-Identifier: Apache-2.0
#include "core/executor.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>

namespace hal {
namespace {

// About 30 us of pauses: longer than the gap between two ops of a decode step, far shorter than a
// scheduler slice. Measured with benchmarks/llm.py.
constexpr int kSpins = 2000;

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr,
          0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t quota_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t n = sched_getaffinity(0, sizeof(set), &set) == 0 ? uint32_t(CPU_COUNT(&set)) : 1;
  if (FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "re")) {
    long long quota = 0, period = 0;
    if (std::fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
      n = std::min<uint32_t>(n, std::max(1u, uint32_t(std::ceil(double(quota) / double(period)))));
    std::fclose(f);
  }
  return std::max(1u, n);
}

// One job at a time. `ticket` packs generation, count and next index in one word, so that a worker
// that wakes late can never claim an index of another job than the one it read.
constexpr int kCountBits = 20;
constexpr uint64_t kCountMask = (1u << kCountBits) - 1;

struct Pool {
  std::atomic<bool> busy{false};
  std::atomic<bool> retired{false};     // replaced by another pool: workers end when they wake
  std::atomic<uint32_t> generation{0};  // futex word: bumped per job
  std::atomic<uint64_t> ticket{0};
  std::atomic<uint32_t> done{0};
  std::atomic<uint32_t> sleepers{0};
  // Written before `ticket` is published; read by those who claimed an index of it.
  std::atomic<ParallelFn> fn{nullptr};
  std::atomic<void*> argument{nullptr};
  uint32_t started = 0;                // workers, guarded by busy
  std::atomic<uint32_t> wanted{0};     // 0 = automatic
  std::atomic<uint32_t> automatic{0};  // counted on first use; every thread counts alike
};

uint64_t pack_ticket(uint32_t generation, uint32_t count) {
  return uint64_t(generation) << (2 * kCountBits) | uint64_t(count) << kCountBits;
}

Pool* make_pool() { return new Pool; }
std::atomic<Pool*> g_pool{nullptr};
thread_local bool t_inside = false;

Pool& pool() {
  Pool* p = g_pool.load(std::memory_order_acquire);
  if (!p) {
    Pool* fresh = make_pool();
    if (g_pool.compare_exchange_strong(p, fresh)) return *fresh;
    delete fresh;
  }
  return *p;
}

// Claims and runs indices of the current job until none is left.
void work(Pool& p) {
  for (;;) {
    uint64_t t = p.ticket.load(std::memory_order_acquire);
    do {
      if ((t & kCountMask) >= (t >> kCountBits & kCountMask)) return;
    } while (!p.ticket.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel));
    p.fn.load(std::memory_order_relaxed)(p.argument.load(std::memory_order_relaxed),
                                         uint32_t(t & kCountMask));
    p.done.fetch_add(1, std::memory_order_release);
  }
}

void worker(Pool* p, uint32_t seen) {
  t_inside = true;
  for (;;) {
    int spins = 0;
    while (p->generation.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        pause();
        continue;
      }
      p->sleepers.fetch_add(1);
      futex_wait(p->generation, seen);
      p->sleepers.fetch_sub(1);
    }
    if (p->retired.load()) return;
    seen = p->generation.load(std::memory_order_acquire);
    work(*p);
  }
}

void start_workers(Pool& p, uint32_t needed) {
  while (p.started < needed) {
    // Signals belong to the application's threads.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    try {
      std::thread(worker, &p, p.generation.load()).detach();
      ++p.started;
    } catch (const std::system_error&) {
      pthread_sigmask(SIG_SETMASK, &old, nullptr);
      return;  // fewer threads, same result
    }
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }
}

}  // namespace

uint32_t executor_thread_count() {
  Pool& p = pool();
  if (const uint32_t wanted = p.wanted.load(std::memory_order_relaxed)) return wanted;
  uint32_t automatic = p.automatic.load(std::memory_order_relaxed);
  if (!automatic) p.automatic.store(automatic = quota_threads(), std::memory_order_relaxed);
  return automatic;
}

void executor_set_thread_count(uint32_t count) {
  Pool& p = pool();
  while (p.busy.exchange(true, std::memory_order_acquire)) pause();
  Pool* fresh = make_pool();
  fresh->wanted = count;
  g_pool.store(fresh);
  // The old pool is never freed: a worker or a caller may still look at it. Changes are rare.
  p.retired.store(true);
  p.generation.fetch_add(1, std::memory_order_release);
  futex_wake_all(p.generation);
  p.busy.store(false, std::memory_order_release);
}

void parallel_for(uint32_t count, ParallelFn fn, void* argument) {
  Pool& p = pool();
  const uint32_t threads = std::min(count, executor_thread_count());
  if (threads <= 1 || count > kCountMask || t_inside ||
      p.busy.exchange(true, std::memory_order_acquire)) {
    for (uint32_t i = 0; i < count; ++i) fn(argument, i);
    return;
  }
  t_inside = true;
  start_workers(p, threads - 1);
  p.fn.store(fn, std::memory_order_relaxed);
  p.argument.store(argument, std::memory_order_relaxed);
  p.done.store(0, std::memory_order_relaxed);
  const uint32_t generation = p.generation.load(std::memory_order_relaxed) + 1;
  p.ticket.store(pack_ticket(generation, count), std::memory_order_release);
  p.generation.store(generation, std::memory_order_seq_cst);
  if (p.sleepers.load(std::memory_order_seq_cst)) futex_wake_all(p.generation);
  work(p);
  for (int spins = 0; p.done.load(std::memory_order_acquire) != count; ++spins)
    spins < 20000 ? pause() : (void)sched_yield();
  t_inside = false;
  p.busy.store(false, std::memory_order_release);
}

bool executor_inside() { return t_inside; }

void executor_after_fork() {
  Pool* old = g_pool.load();
  if (!old) return;
  Pool* fresh = make_pool();  // the old one is left: its locks may be held by threads that are gone
  fresh->wanted = old->wanted.load();
  g_pool.store(fresh);
  t_inside = false;
}

}  // namespace hal
