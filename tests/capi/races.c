/* Handles that are released while other threads call with them: each such call is done or refused
 * with reason HANDLE, and what is alive is never touched.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     races DEVICE SCENARIO ROUNDS */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check.h"

enum { CALLERS = 3 };

static hal_device* device;
static int rounds;
static _Atomic(hal_queue*) queue; /* ended and made again, all the time */
static _Atomic(hal_buffer*) buffer;
static _Atomic(hal_graph*) graph;
static hal_queue* steady;
static hal_tensor a, b, c;
static atomic_int ending;
static atomic_long done, refused;

/* Counts a call that may have met a released handle. */
static void met(hal_status status, const hal_error* error, int line) {
  if (status == HAL_STATUS_OK) {
    atomic_fetch_add(&done, 1);
  } else if (status == HAL_STATUS_INVALID_ARGUMENT && error->reason == HAL_REASON_HANDLE) {
    atomic_fetch_add(&refused, 1);
  } else {
    printf("line %d: %s, %s: %s\n", line, hal_status_name(status), hal_reason_name(error->reason),
           error->text);
    exit(1);
  }
}
#define MEETS(call)                \
  do {                             \
    hal_error error_ = {0, 0, ""}; \
    hal_error* error = &error_;    \
    met((call), error, __LINE__);  \
  } while (0)

/* Different outputs, since threads that write one tensor at once are the caller's mistake. */
static void* use_queue(void* argument) {
  hal_tensor own = matrix(steady, 8, 8);
  float value[64];
  uint64_t position;
  int32_t reached;
  (void)argument;
  while (!atomic_load(&ending)) {
    hal_queue* q = atomic_load(&queue);
    for (int i = 0; i < 20; ++i) MEETS(hal_matmul(q, &a, &b, &own, error));
    MEETS(hal_buffer_read(q, own.buffer, 0, value, sizeof value, error));
    MEETS(hal_buffer_write(q, own.buffer, 0, value, sizeof value, error));
    MEETS(hal_buffer_copy(q, own.buffer, 0, a.buffer, 0, sizeof value, error));
    MEETS(hal_queue_signal(q, &position, error));
    MEETS(hal_queue_reached(q, 1, &reached, error));
    MEETS(hal_queue_wait(q, HAL_NO_LIMIT, HAL_NO_LIMIT, error));
    MEETS(hal_queue_wait_for(steady, q, 0, error));
  }
  return NULL;
}

static void end_queues(void) {
  for (int i = 0; i < rounds; ++i) {
    hal_queue* fresh;
    GOOD(hal_queue_create(device, &fresh, error));
    hal_queue* old = atomic_exchange(&queue, fresh);
    if (i % 4 == 0) sched_yield();
    GOOD(hal_queue_release(old, error));
    BAD(INVALID_ARGUMENT, HANDLE, hal_matmul(old, &a, &b, &c, error));
  }
}

static void* use_buffer(void* argument) {
  hal_tensor own = matrix(steady, 8, 8);
  float value[64];
  (void)argument;
  while (!atomic_load(&ending)) {
    hal_tensor x = a;
    x.buffer = atomic_load(&buffer);
    for (int i = 0; i < 20; ++i) MEETS(hal_matmul(steady, &x, &b, &own, error));
    MEETS(hal_buffer_read(steady, x.buffer, 0, value, sizeof value, error));
    MEETS(hal_buffer_copy(steady, own.buffer, 0, x.buffer, 0, sizeof value, error));
    MEETS(hal_buffer_freeze(x.buffer, error));
  }
  return NULL;
}

/* What comes out of the pool belongs to nobody else: a late reader may see it, nobody writes it. */
static void end_buffers(void) {
  float values[64], seen[64];
  for (int i = 0; i < rounds; ++i) {
    hal_buffer* fresh;
    for (int k = 0; k < 64; ++k) values[k] = (float)(i % 1000);
    GOOD(hal_alloc(steady, sizeof values, HAL_PURPOSE_ACTIVATIONS, &fresh, error));
    GOOD(hal_buffer_write(steady, fresh, 0, values, sizeof values, error));
    GOOD(hal_buffer_read(steady, fresh, 0, seen, sizeof seen, error));
    HOLDS(!memcmp(values, seen, sizeof seen));
    hal_buffer* old = atomic_exchange(&buffer, fresh);
    if (i % 4 == 0) sched_yield();
    GOOD(hal_free(old, error));
    BAD(INVALID_ARGUMENT, HANDLE, hal_buffer_read(steady, old, 0, seen, 4, error));
  }
}

static void* use_graph(void* argument) {
  (void)argument;
  while (!atomic_load(&ending)) {
    hal_graph* g = atomic_load(&graph);
    for (int i = 0; i < 20; ++i) MEETS(hal_graph_launch(g, error));
  }
  return NULL;
}

/* With an output of its own, which only the graph keeps. */
static hal_graph* record(void) {
  hal_graph* made;
  hal_tensor out = matrix(steady, 8, 8);
  GOOD(hal_graph_begin(atomic_load(&queue), &made, error));
  GOOD(hal_matmul(atomic_load(&queue), &a, &b, &out, error));
  GOOD(hal_unary(atomic_load(&queue), &out, HAL_UNARY_FN_NEG, &out, error));
  GOOD(hal_graph_end(made, error));
  GOOD(hal_free(out.buffer, error));
  return made;
}

static void end_graphs(void) {
  for (int i = 0; i < rounds; ++i) {
    /* every other time its queue goes first */
    hal_queue* fresh;
    GOOD(hal_queue_create(device, &fresh, error));
    hal_queue* old = atomic_exchange(&queue, fresh);
    if (i % 2) GOOD(hal_queue_release(old, error));
    hal_graph* last = atomic_exchange(&graph, record());
    if (i % 4 == 0) sched_yield();
    GOOD(hal_graph_release(last, error));
    if (i % 2 == 0) GOOD(hal_queue_release(old, error));
    BAD(INVALID_ARGUMENT, HANDLE, hal_graph_launch(last, error));
  }
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void* (*use)(void*);
    void (*end)(void);
  } all[] = {{"queues", use_queue, end_queues},
             {"buffers", use_buffer, end_buffers},
             {"graphs", use_graph, end_graphs}};
  pthread_t callers[CALLERS];
  hal_queue* first;
  if (argc < 4) return 2;
  rounds = atoi(argv[3]);
  GOOD(hal_select_backend(argv[1], &device, error));
  GOOD(hal_queue_create(device, &steady, error));
  GOOD(hal_queue_create(device, &first, error));
  a = matrix(steady, 8, 8), b = matrix(steady, 8, 8), c = matrix(steady, 8, 8);
  fill(steady, &a, 1), fill(steady, &b, 2);
  atomic_store(&queue, first);
  hal_tensor x = matrix(steady, 8, 8);
  fill(steady, &x, 3);
  atomic_store(&buffer, x.buffer);
  atomic_store(&graph, record());
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (strcmp(all[i].name, argv[2])) continue;
    for (int k = 0; k < CALLERS; ++k) HOLDS(!pthread_create(&callers[k], NULL, all[i].use, NULL));
    while (!atomic_load(&done)) sched_yield();
    all[i].end();
    atomic_store(&ending, 1);
    for (int k = 0; k < CALLERS; ++k) pthread_join(callers[k], NULL);
    printf("%ld done, %ld refused\n", atomic_load(&done), atomic_load(&refused));
    return 0;
  }
  return 2;
}
