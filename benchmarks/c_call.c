/* What hal_op costs over calling the backend's op_enqueue directly, in the same run.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     gcc -O2 benchmarks/c_call.c $(anyhal config --cflags --libs) -ldl -o c_call
 *     ./c_call LIBRARY DEVICE [BLOCKS]    prints one line: hal_op ns, direct ns, difference ns
 *
 * LIBRARY is the device's backend (backends/cpu/libanyhal_cpu.so of the package and cpu).
 * The baseline opens the backend a second time by itself, prepares the same f32 8x8 product and
 * calls its slot. Blocks alternate in ABBA order over 64 operand sets; medians. The results of both
 * sides are compared.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "anyhal/backend.h"
#include "anyhal/hal_ops.h"
#include "anyhal/ops.h"

enum { N = 8, SETS = 64, ROUNDS = 4, CALLS = SETS * ROUNDS, BLOCKS_MAX = 20001 };

static hal_error error;
static anyhal_error slot_error = {sizeof slot_error, 0, 0, ""};

static void must(int status, const char* what) {
  if (status == 0) return;
  fprintf(stderr, "%s: %s%s\n", what, error.text, slot_error.text);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- services of the direct side: one thread, the host's memory */

static void quiet(void* c, int32_t level, const char* text) { (void)c, (void)level, (void)text; }
static anyhal_status say(void* c, anyhal_error* e, anyhal_status s, int32_t reason, const char* t) {
  (void)c;
  if (e) {
    e->reason = reason;
    snprintf(e->text, sizeof e->text, "%s", t ? t : "");
  }
  return s;
}
static void* get(void* c, uint64_t bytes, uint64_t alignment) {
  void* p = NULL;
  (void)c;
  return posix_memalign(&p, alignment < 8 ? 8 : (size_t)alignment, (size_t)bytes) ? NULL : p;
}
static void put(void* c, void* p) {
  (void)c;
  free(p);
}
static void run_all(void* c, uint32_t n, void (*fn)(void*, uint32_t), void* argument) {
  (void)c;
  for (uint32_t i = 0; i < n; ++i) fn(argument, i);
}
static uint32_t one(void* c) { return (void)c, 1; }
static anyhal_status no_get(void* c, const char* k, void* d, uint64_t* n) {
  return (void)c, (void)k, (void)d, (void)n, ANYHAL_STATUS_NOT_FOUND;
}
static anyhal_status no_put(void* c, const char* k, const void* d, uint64_t n) {
  return (void)c, (void)k, (void)d, (void)n, ANYHAL_STATUS_NOT_FOUND;
}
static const char* no_setting(void* c, const char* name) { return (void)c, (void)name, NULL; }
static void no_span(void* c, uint64_t t, uint64_t b, uint64_t e, uint32_t d) {
  (void)c, (void)t, (void)b, (void)e, (void)d;
}
static void no_note(void* c, const char* l, int64_t n) { (void)c, (void)l, (void)n; }
static const anyhal_services services = {
    sizeof services, 0,   NULL,   quiet,  say,        get,     put,
    run_all,         one, no_get, no_put, no_setting, no_span, no_note};

/* ---- both sides */

static float in_a[SETS][N * N], in_b[SETS][N * N];

static hal_queue* queue;
static hal_tensor a[SETS], b[SETS], c[SETS];

static void through_hal(void) {
  for (int r = 0; r < ROUNDS; ++r)
    for (int s = 0; s < SETS; ++s) {
      const hal_tensor* const operands[] = {&a[s], &b[s], &c[s]};
      must(hal_op(queue, HAL_OP_MATMUL, operands, 2, 3, NULL, 0, &error), "hal_op");
    }
}

static const anyhal_table* table;
static anyhal_plan* plan;
static anyhal_ref refs[SETS][3];

static void directly(void) {
  for (int r = 0; r < ROUNDS; ++r)
    for (int s = 0; s < SETS; ++s) {
      anyhal_call call;
      memset(&call, 0, sizeof call);
      call.size = sizeof call, call.operands = refs[s], call.operand_count = 3;
      must((int)table->op_enqueue(NULL, plan, &call, &slot_error), "op_enqueue");
    }
}

static void set_up_hal(const char* name) {
  const int64_t dims[] = {N, N};
  hal_device* device;
  must(hal_select_backend(name, &device, &error), "select");
  must(hal_queue_create(device, &queue, &error), "queue");
  for (int s = 0; s < SETS; ++s) {
    hal_tensor* const all[] = {&a[s], &b[s], &c[s]};
    for (int i = 0; i < 3; ++i) {
      hal_buffer* buffer;
      must(hal_alloc(queue, sizeof in_a[s], HAL_PURPOSE_ACTIVATIONS, &buffer, &error), "alloc");
      must(hal_tensor_dense(buffer, 0, HAL_DTYPE_F32, 2, dims, all[i], NULL, &error), "tensor");
    }
    for (int i = 0; i < N * N; ++i)
      in_a[s][i] = (float)((i * 7 + s) % 11) - 5, in_b[s][i] = (float)((i * 5 + s) % 13) - 6;
    must(hal_buffer_write(queue, a[s].buffer, 0, in_a[s], sizeof in_a[s], &error), "write");
    must(hal_buffer_write(queue, b[s].buffer, 0, in_b[s], sizeof in_b[s], &error), "write");
  }
}

static void set_up_direct(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  anyhal_backend_main_fn entry;
  const anyhal_hello hello = {
      sizeof hello, 0, ANYHAL_ABI_VERSION, ANYHAL_ABI_VERSION, &services, "direct", NULL, 0, 0};
  anyhal_reply reply = {0};
  anyhal_device_info info = {0};
  anyhal_device* device;
  const int64_t dims[] = {N, N}, strides[] = {N, 1};
  anyhal_tensor_desc operands[3] = {0};
  anyhal_op_desc desc = {0};
  const anyhal_prepared* prepared;
  uint64_t block;
  uint32_t total;
  if (!handle) must(1, dlerror());
  *(void**)&entry = dlsym(handle, ANYHAL_ENTRY_SYMBOL);
  reply.size = sizeof reply, info.size = sizeof info;
  must((int)entry(&hello, &reply, &slot_error), "entry");
  table = reply.table;
  must((int)table->device_list(reply.self, &info, 1, &total, &slot_error), "list");
  must((int)table->device_open(reply.self, info.id, NULL, 0, &device, &block, &slot_error), "open");
  for (int i = 0; i < 3; ++i) {
    operands[i].size = sizeof operands[i], operands[i].dtype = ANYHAL_DTYPE_F32;
    operands[i].rank = 2, operands[i].dims = dims, operands[i].strides = strides;
    operands[i].alignment = 64;
  }
  desc.size = sizeof desc, desc.op = ANYHAL_OP_MATMUL, desc.op_version = 1;
  desc.input_count = 2, desc.operand_count = 3, desc.operands = operands;
  must((int)table->op_prepare(device, &desc, &plan, &prepared, &slot_error), "prepare");
  for (int s = 0; s < SETS; ++s)
    for (int i = 0; i < 3; ++i) {
      void* place = NULL;
      if (i < 2) {
        must(hal_buffer_address(i ? b[s].buffer : a[s].buffer, &place, &error), "address");
      } else {
        place = get(NULL, sizeof in_a[s], 64);
      }
      refs[s][i].memory = block, refs[s][i].offset = (uint64_t)(uintptr_t)place;
    }
}

static int by_value(const void* x, const void* y) {
  const double p = *(const double*)x, q = *(const double*)y;
  return (p > q) - (p < q);
}

static double median(double* values, int n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
  return values[n / 2];
}

static double timed(void (*side)(void)) {
  const uint64_t begin = now_ns();
  side();
  return (double)(now_ns() - begin) / CALLS;
}

int main(int argc, char** argv) {
  static double ours[BLOCKS_MAX], theirs[BLOCKS_MAX], over[BLOCKS_MAX];
  const int blocks = argc > 3 ? atoi(argv[3]) : 5001;
  if (argc < 3 || blocks < 1 || blocks > BLOCKS_MAX) return 2;
  set_up_hal(argv[2]);
  set_up_direct(argv[1]);
  through_hal(), directly();
  for (int s = 0; s < SETS; ++s) {
    void* mine;
    must(hal_buffer_address(c[s].buffer, &mine, &error), "address");
    if (memcmp(mine, (void*)(uintptr_t)refs[s][2].offset, sizeof in_a[s])) {
      fprintf(stderr, "the products differ: the timing means nothing\n");
      return 1;
    }
  }
  for (int i = 0; i < blocks; ++i) {
    double first, second, third, fourth;
    first = timed(i % 2 ? directly : through_hal), second = timed(i % 2 ? through_hal : directly);
    third = timed(i % 2 ? through_hal : directly), fourth = timed(i % 2 ? directly : through_hal);
    ours[i] = i % 2 ? (second + third) / 2 : (first + fourth) / 2;
    theirs[i] = i % 2 ? (first + fourth) / 2 : (second + third) / 2;
    over[i] = ours[i] - theirs[i];
  }
  {
    const double mine = median(ours, blocks), base = median(theirs, blocks);
    printf("%.2f %.2f %.2f\n", mine, base, median(over, blocks));
  }
  return 0;
}
