/* What happens at the limits that a system sets for a process.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     limits DEVICE SCENARIO    prints "ok" */
#define _GNU_SOURCE
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

static const char* name;

/* No more address space than there is now, and `more` bytes. */
static void limit_space(uint64_t more) {
  unsigned long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  HOLDS(file && fscanf(file, "%lu", &pages) == 1);
  fclose(file);
  const struct rlimit limit = {pages * 4096 + more, RLIM_INFINITY};
  HOLDS(!setrlimit(RLIMIT_AS, &limit));
}

/* Started with little space: a smaller table serves. */
static void works(void) {
  hal_device* device;
  hal_queue* queue;
  GOOD(hal_select_backend(name, &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  hal_tensor x = matrix(queue, 8, 8), y = matrix(queue, 8, 8);
  fill(queue, &x, 1);
  GOOD(hal_matmul(queue, &x, &x, &y, error));
}

static void no_space(void) {
  hal_device* device;
  hal_queue* queue;
  int none = 0;
  BAD(INVALID_ARGUMENT, HANDLE, hal_free((hal_buffer*)&none, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_free((hal_buffer*)1, error));
  GOOD(hal_select_backend(name, &device, error));
  limit_space(64 << 10);
  BAD(OUT_OF_MEMORY, NONE, hal_queue_create(device, &queue, error));
  const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  HOLDS(!setrlimit(RLIMIT_AS, &all));
  GOOD(hal_queue_create(device, &queue, error));
}

static void released(void* argument) { ++*(int*)argument; }

/* An import that fails when all else is done does not give the memory back. */
static void imports(void) {
  hal_device* device;
  hal_queue* queue;
  hal_buffer* buffer;
  hal_error why = {0, 0, ""};
  int given_back = 0;
  GOOD(hal_select_backend(name, &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  HOLDS(mallopt(M_MMAP_THRESHOLD, 1 << 30) && mallopt(M_TRIM_THRESHOLD, 1 << 30));
  void* volatile room = malloc(200 << 20); /* for the records */
  free(room);
  char* memory = (char*)mmap(NULL, 64 << 18, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HOLDS(memory != (char*)MAP_FAILED);
  limit_space(5 << 20); /* for a table of 2^16 handles */
  long n = 0;
  while (!hal_buffer_import(queue, memory + 64 * n, 64, released, &given_back, &buffer, &why)) ++n;
  if (n != (1 << 16) - 1) printf("%ld imports, then %s\n", n, why.text);
  HOLDS(n == (1 << 16) - 1 && why.status == HAL_STATUS_OUT_OF_MEMORY && given_back == 0);
}

/* A text is cut between characters, wherever its end falls. */
static void texts(void) {
  char path[1024];
  for (int head = 0; head < 4; ++head) {
    strcpy(path, "/");
    for (int i = 0; i < head; ++i) strcat(path, "x");
    while (strlen(path) < 900) strcat(path, "\xe2\x82\xac"); /* the euro sign */
    hal_error why = {0, 0, ""};
    HOLDS(hal_registry_read(path, &why) != HAL_STATUS_OK);
    const size_t size = strlen(why.text);
    HOLDS(size > 500 && !memcmp(why.text + size - 3, "\xe2\x82\xac", 3));
  }
}

int main(int count, char** words) {
  if (count != 3) return 2;
  name = words[1];
  if (!strcmp(words[2], "works")) works();
  if (!strcmp(words[2], "no_space")) no_space();
  if (!strcmp(words[2], "imports")) imports();
  if (!strcmp(words[2], "texts")) texts();
  puts("ok");
  return 0;
}
