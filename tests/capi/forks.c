/* Children forked while another thread computes, allocates and makes plans.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     forks DEVICE CHILDREN    prints "ok" */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static hal_device* device;
static hal_queue* queue;
static hal_tensor a, b;
static atomic_int stop;

/* Long calls, so that most forks meet a held lock, among many short ones. */
static void* busy(void* argument) {
  const hal_tensor large = matrix(queue, 192, 192);
  hal_tensor product = matrix(queue, 192, 192);
  fill(queue, &large, 3);
  for (int64_t rows = 1; !stop; ++rows) {
    GOOD(hal_matmul(queue, &large, &large, &product, error));
    for (int i = 0; i < 50; ++i) {
      hal_tensor t = matrix(queue, 1 + rows % 500, 7), u = matrix(queue, 1 + rows % 500, 7);
      hal_queue* other;
      GOOD(hal_unary(queue, &t, HAL_UNARY_FN_NEG, &u, error));
      GOOD(hal_free(t.buffer, error));
      GOOD(hal_free(u.buffer, error));
      GOOD(hal_queue_create(device, &other, error));
      GOOD(hal_queue_release(other, error));
    }
  }
  return argument;
}

static void child(const float* want) {
  alarm(30); /* a child that hangs ends by a signal */
  hal_queue* own;
  hal_tensor c = matrix(queue, 8, 8), d = matrix(queue, 8, 8);
  GOOD(hal_matmul(queue, &a, &b, &c, error)); /* the queue on which the other thread computes */
  GOOD(hal_queue_create(device, &own, error));
  GOOD(hal_matmul(own, &a, &b, &d, error));
  float *one = values_of(queue, &c), *two = values_of(own, &d);
  HOLDS(!memcmp(one, want, 256) && !memcmp(two, want, 256));
  GOOD(hal_free(c.buffer, error));
  GOOD(hal_queue_wait(queue, HAL_NO_LIMIT, HAL_NO_LIMIT, error));
  GOOD(hal_queue_release(queue, error));
  GOOD(hal_queue_release(own, error));
  fflush(stdout);
  _exit(0);
}

int main(int count, char** words) {
  if (count != 3) return 2;
  GOOD(hal_select_backend(words[1], &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  a = matrix(queue, 8, 8), b = matrix(queue, 8, 8);
  hal_tensor c = matrix(queue, 8, 8);
  fill(queue, &a, 1), fill(queue, &b, 2);
  GOOD(hal_matmul(queue, &a, &b, &c, error));
  float* want = values_of(queue, &c);
  pthread_t thread;
  HOLDS(!pthread_create(&thread, NULL, busy, NULL));
  for (int i = 0; i < atoi(words[2]); ++i) {
    usleep(2000);
    const pid_t pid = fork();
    if (pid == 0) child(want);
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid);
    if (status) printf("child %d ended with status 0x%x\n", i, (unsigned)status), exit(1);
  }
  stop = 1;
  pthread_join(thread, NULL);
  free(want);
  puts("ok");
  return 0;
}
