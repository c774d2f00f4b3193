/* What a library can do to the process that opens it: one DEED, at one time (WHEN).
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "deeds.h"

#include <dlfcn.h>
#include <fenv.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define NOTHING 0
#define CRASH 1
#define HANG 2
#define ABORT 3
#define EXIT 4
#define FORK 5   /* the copy returns into the program */
#define LEAVE 6  /* a process of a session of its own is left behind */
#define HELPER 7 /* a child that is waited for, as drivers start them */
#define PRINT 8
#define COMPLAIN 9 /* on standard error */
#define THREAD 10
#define FLUSH 11 /* denormal numbers are 0 from now on */
#define ROUND 12
#define LOCALE 13
#define SIGNAL 14   /* Ctrl-C no longer arrives */
#define IN_FRONT 15 /* a handler that passes on what it gets */
#define FAULT 16    /* a handler for SIGFPE */
#define MASK 17
#define SETENV 18
#define PATHENV 19
#define CHDIR 20
#define UMASK 21
#define LIMIT 22
#define AFFINITY 23
#define CLOSE 24 /* all descriptors, as daemons do */
#define OPEN 25
#define MEMORY 26
#define EXIT_LATER 27 /* an exit handler that crashes */
#define ALARM 28      /* ends the program a minute later */
#define TIMER 29      /* of timer_create */
#define USER 30
#define NICE 31
#define POLICY 32
#define DUMP 33
#define DEATH 34 /* with its parent, as children of launchers do */
#define PRIVILEGES 35
#define SECCOMP 36
#define STOP 37   /* whoever watches */
#define DRIVER 38 /* opened if it is there */

#ifndef DRIVER_PATH
#define DRIVER_PATH ""
#endif
#ifndef DEED
#define DEED NOTHING
#endif
#ifndef WHEN
#define WHEN 0
#endif

static void* sleep_on(void* argument) {
  for (;;) pause();
  return argument;
}

static struct sigaction before;
static void pass_on(int number) {
  sigaction(number, &before, NULL);
  raise(number);
}
static void ignore(int number) { (void)number; }
static void crash(void) { raise(SIGSEGV); }

static void leave_a_process(void) {
  if (fork() == 0) {
    setsid();
    if (fork() == 0) sleep_on(NULL);
    _exit(0);
  }
}

static void take_memory(void) {
  for (;;) {
    char* piece = malloc(64u << 20);
    if (piece == NULL) abort();
    memset(piece, 1, 64u << 20);
  }
}

static void handle(int number, void (*handler)(int)) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  sigaction(number, &action, &before);
}

static void restrict_it(void) {
  if (DEED == LIMIT) {
    const struct rlimit few = {64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  if (DEED == AFFINITY) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  if (DEED == MASK) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
  }
  if (DEED == CLOSE)
    for (int i = 0; i < 256; ++i) close(i);
}

static void allow_every_call(void) {
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {1, &allow};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void change_the_process(void) {
  if (DEED == ALARM) alarm(60);
  if (DEED == TIMER) {
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, NULL, &timer);
  }
  if (DEED == USER) (void)!setuid(65534);
  if (DEED == NICE) setpriority(PRIO_PROCESS, 0, 19);
  if (DEED == POLICY) sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
  if (DEED == DUMP) prctl(PR_SET_DUMPABLE, 0);
  if (DEED == DEATH) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (DEED == PRIVILEGES) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (DEED == SECCOMP) allow_every_call();
}

static void change_how_it_computes(void) {
#if defined(__x86_64__)
  if (DEED == FLUSH) _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  if (DEED == ROUND) fesetround(FE_UPWARD);
}

static void start(void) {
  if (DEED == FORK) (void)!fork();
  if (DEED == LEAVE) leave_a_process();
  if (DEED == HELPER) (void)!system("true");
  if (DEED == THREAD) {
    pthread_t thread;
    pthread_create(&thread, NULL, sleep_on, NULL);
  }
  if (DEED == OPEN) (void)!fopen("/dev/null", "r");
  if (DEED == EXIT_LATER) atexit(crash);
}

void hostile_deed(int when) {
  if (when != WHEN) return;
  if (DEED == CRASH) *(volatile int*)(intptr_t)DEED = 0;
  if (DEED == HANG) sleep_on(NULL);
  if (DEED == ABORT) abort();
  if (DEED == EXIT) exit(3);
  if (DEED == PRINT) puts("Welcome to Hostile 1.0!");
  if (DEED == COMPLAIN) fputs("hostile: a warning\n", stderr);
  if (DEED == LOCALE) setlocale(LC_ALL, "C");
  if (DEED == SIGNAL) handle(SIGINT, ignore);
  if (DEED == IN_FRONT) handle(SIGINT, pass_on);
  if (DEED == FAULT) handle(SIGFPE, ignore);
  if (DEED == SETENV) setenv("HOSTILE_FOLDER", "/opt/hostile", 1);
  if (DEED == PATHENV) setenv("PATH", "/opt/hostile/bin", 1);
  if (DEED == CHDIR) (void)!chdir("/");
  if (DEED == UMASK) umask(0);
  if (DEED == MEMORY) take_memory();
  if (DEED == STOP) kill(getppid(), SIGSTOP);
  if (DEED == DRIVER) dlopen(DRIVER_PATH, RTLD_NOW);
  start();
  change_how_it_computes();
  change_the_process();
  restrict_it();
}

#ifndef LIE
#define LIE ""
#endif
const char hostile_lie[] = LIE;

#ifdef EXTRA_SYMBOL
__attribute__((visibility("default"))) int hostile_extra(void) { return 1; }
#endif
#ifdef UNIQUE_SYMBOL
__asm__(
    ".section .data\n.globl hostile_unique\n.type hostile_unique, %gnu_unique_object\n"
    ".size hostile_unique, 8\nhostile_unique: .quad 1\n.text\n");
#endif
#ifdef UNDEFINED_SYMBOL
void hostile_nowhere(void);
void (*hostile_somewhere)(void) = hostile_nowhere;
#endif

__attribute__((constructor)) static void opened(void) { hostile_deed(AT_OPEN); }
__attribute__((destructor)) static void closed(void) { hostile_deed(AT_EXIT); }
