// Stands between our libraries and symbols that glibc got after 2.28, so that they load there too.
// SPDX-License-Identifier: Apache-2.0
//
// The linker turns each call of NAME into one of __wrap_NAME (cmake/old_glibc.cmake lists the
// names). Most functions only got a new version; the old one, which every glibc still has, is
// called by it. What did not exist at all is done here with what did.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

// The first version of each architecture, and its number of `struct stat`.
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define STAT_VERSION 1
#define DLADDR1 "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#define STAT_VERSION 0
#define DLADDR1 FIRST
#else
#error "the first version of glibc's symbols is not known for this architecture"
#endif

#define OLD(type, name, parameters, arguments, version) \
  type old_##name parameters;                           \
  __asm__(".symver old_" #name ", " #name "@" version); \
  type __wrap_##name parameters;                        \
  type __wrap_##name parameters { return old_##name arguments; }

// 2.29 and 2.35: the same functions without the old error handler.
OLD(double, exp, (double x), (x), FIRST)
OLD(double, exp2, (double x), (x), FIRST)
OLD(double, log, (double x), (x), FIRST)
OLD(double, log2, (double x), (x), FIRST)
OLD(double, pow, (double x, double y), (x, y), FIRST)
OLD(double, hypot, (double x, double y), (x, y), FIRST)
OLD(float, hypotf, (float x, float y), (x, y), FIRST)

// 2.34: moved from libdl and libpthread into libc.
OLD(void*, dlopen, (const char* file, int mode), (file, mode), FIRST)
OLD(void*, dlsym, (void* handle, const char* name), (handle, name), FIRST)
OLD(char*, dlerror, (void), (), FIRST)
OLD(int, dlclose, (void* handle), (handle), FIRST)
OLD(int, dladdr, (const void* at, Dl_info* out), (at, out), FIRST)
OLD(int, dladdr1, (const void* at, Dl_info* out, void** more, int flags), (at, out, more, flags),
    DLADDR1)
OLD(int, pthread_once, (pthread_once_t * once, void (*f)(void)), (once, f), FIRST)
OLD(int, __pthread_key_create, (pthread_key_t * key, void (*f)(void*)), (key, f), FIRST)
OLD(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex), FIRST)
OLD(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* old), (how, set, old), FIRST)

// 2.33: functions now, inline calls of these before.
int old_xstat(int version, const char* path, struct stat* out);
int old_lxstat(int version, const char* path, struct stat* out);
int old_fxstat(int version, int fd, struct stat* out);
__asm__(".symver old_xstat, __xstat@" FIRST);
__asm__(".symver old_lxstat, __lxstat@" FIRST);
__asm__(".symver old_fxstat, __fxstat@" FIRST);
#define STAT(name, type, argument, old)               \
  int __wrap_##name(type argument, struct stat* out); \
  int __wrap_##name(type argument, struct stat* out) { return old(STAT_VERSION, argument, out); }
STAT(stat, const char*, path, old_xstat)
STAT(lstat, const char*, path, old_lxstat)
STAT(fstat, int, fd, old_fxstat)
STAT(fstat64, int, fd, old_fxstat)  // both structures are one where long has 64 bits

// 2.30. What is left of the time is waited for by the clock that the older function knows.
int __wrap_pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until);
int __wrap_pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until) {
  struct timespec now, at;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_sec += until->tv_sec - now.tv_sec;
  at.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (at.tv_nsec < 0) at.tv_nsec += 1000000000, --at.tv_sec;
  if (at.tv_nsec >= 1000000000) at.tv_nsec -= 1000000000, ++at.tv_sec;
  return pthread_cond_timedwait(cond, mutex, &at);
}

// 2.32. Where it is false the C++ runtime counts references atomically, which is always right.
char __wrap___libc_single_threaded = 0;

// 2.36, only reached through std::random_device.
uint32_t __wrap_arc4random(void);
uint32_t __wrap_arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value)) {
  }
  return value;
}

// 2.34: a program's own constructors, run by the C library now, were run by a function that the
// program handed over; every glibc calls one that it is given.
typedef void Constructor(int, char**, char**);
extern Constructor* __preinit_array_start[] __attribute__((visibility("hidden")));
extern Constructor* __preinit_array_end[] __attribute__((visibility("hidden")));
extern Constructor* __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor* __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void) __attribute__((visibility("hidden")));

static void construct(int argc, char** argv, char** environment) {
  for (Constructor** f = __preinit_array_start; f != __preinit_array_end; ++f)
    (*f)(argc, argv, environment);
  _init();
  for (Constructor** f = __init_array_start; f != __init_array_end; ++f)
    (*f)(argc, argv, environment);
}

typedef int Main(int, char**, char**);
int old_start(Main* main, int argc, char** argv, Constructor* init, void (*fini)(void),
              void (*loader_fini)(void), void* stack_end);
__asm__(".symver old_start, __libc_start_main@" FIRST);
int __wrap___libc_start_main(Main* main, int argc, char** argv, Constructor* init,
                             void (*fini)(void), void (*loader_fini)(void), void* stack_end);
int __wrap___libc_start_main(Main* main, int argc, char** argv, Constructor* init,
                             void (*fini)(void), void (*loader_fini)(void), void* stack_end) {
  return old_start(main, argc, argv, init ? init : construct, fini, loader_fini, stack_end);
}

// 2.35: which library an instruction of a thrown exception lies in.
#ifdef DLFO_STRUCT_HAS_EH_DBASE
typedef struct {
  uintptr_t address;
  struct dl_find_object* out;
} Wanted;

static int holds(struct dl_phdr_info* info, size_t size, void* context) {
  (void)size;
  const Wanted* wanted = context;
  const ElfW(Phdr)* frames = NULL;
  const ElfW(Phdr)* code = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* row = &info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + row->p_vaddr;
    if (row->p_type == PT_LOAD && wanted->address - start < row->p_memsz) code = row;
    if (row->p_type == PT_GNU_EH_FRAME) frames = row;
  }
  if (!code || !frames) return 0;
  memset(wanted->out, 0, sizeof(*wanted->out));
  wanted->out->dlfo_map_start = (void*)(info->dlpi_addr + code->p_vaddr);
  wanted->out->dlfo_map_end = (void*)(info->dlpi_addr + code->p_vaddr + code->p_memsz);
  wanted->out->dlfo_eh_frame = (void*)(info->dlpi_addr + frames->p_vaddr);
  return 1;
}

int __wrap__dl_find_object(void* address, struct dl_find_object* out);
int __wrap__dl_find_object(void* address, struct dl_find_object* out) {
  Wanted wanted = {(uintptr_t)address, out};
  return dl_iterate_phdr(holds, &wanted) == 1 ? 0 : -1;
}
#endif
