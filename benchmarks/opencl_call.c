/* What a call through the contract costs over the same OpenCL calls made directly.
 * SPDX-License-Identifier: Apache-2.0
 * Usage: opencl_call BACKEND LOADER DEVICE; prints ns per call, contract and direct, best of
 * rounds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

enum { kCalls = 2000, kRounds = 15, kElements = 64 };
typedef void* handle;

static int32_t (*set_arg)(handle, uint32_t, size_t, const void*);
static int32_t (*run_kernel)(handle, handle, uint32_t, const size_t*, const size_t*, const size_t*,
                             uint32_t, const handle*, handle*);
static int32_t (*finish)(handle);
static int32_t (*release_event)(handle);

static const char kSource[] =
    "__kernel void add(__global const uchar* a, ulong p, __global const uchar* b, ulong q,"
    "                  __global uchar* c, ulong r, ulong n) {"
    "  ulong i = get_global_id(0); if (i >= n) return;"
    "  ((__global float*)(c + r))[i] = ((__global const float*)(a + p))[i]"
    "                                + ((__global const float*)(b + q))[i]; }";

static void must(int good, const char* what, const anyhal_error* error) {
  if (good) return;
  fprintf(stderr, "%s failed: %s\n", what, error ? error->text : "");
  exit(1);
}

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static const char* no_setting(void* context, const char* name) {
  (void)context, (void)name;
  return NULL;
}

/* As the backend calls: a fresh pair of arguments for each operand, an event for each command. */
static double direct(handle queue, handle kernel, const handle* memory) {
  static handle events[kCalls];
  const size_t global = 256, local = 256;
  const double begin = now_ns();
  for (int i = 0; i < kCalls; ++i) {
    const uint64_t offset = (uint64_t)(i % 2) * 256;
    for (uint32_t k = 0; k < 3; ++k) {
      set_arg(kernel, 2 * k, sizeof(handle), &memory[k]);
      set_arg(kernel, 2 * k + 1, sizeof(offset), &offset);
    }
    run_kernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, &events[i]);
  }
  finish(queue);
  for (int i = 0; i < kCalls; ++i) release_event(events[i]);
  return (now_ns() - begin) / kCalls;
}

static double through(const anyhal_table* table, anyhal_queue* queue, anyhal_plan* plan,
                      const uint64_t* memory, uint64_t* value) {
  anyhal_error error = {.size = sizeof(error)};
  anyhal_queue_state state = {.size = sizeof(state)};
  const double begin = now_ns();
  for (int i = 0; i < kCalls; ++i) {
    const uint64_t offset = (uint64_t)(i % 2) * 256;
    const anyhal_ref refs[3] = {{memory[0], offset}, {memory[1], offset}, {memory[2], offset}};
    anyhal_call call = {.size = sizeof(call), .operands = refs, .operand_count = 3};
    must(table->op_enqueue(queue, plan, &call, &error) == 0, "op_enqueue", &error);
  }
  must(table->queue_signal(queue, ++*value, &error) == 0, "queue_signal", &error);
  must(table->host_wait(queue, *value, ANYHAL_NO_LIMIT, &state, &error) == 0, "host_wait", &error);
  return (now_ns() - begin) / kCalls;
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  void* library = dlopen(arguments[1], RTLD_NOW);
  void* loader = dlopen(arguments[2], RTLD_NOW);
  must(library && loader, "dlopen", NULL);
  anyhal_services services = {.size = sizeof(services), .setting = no_setting};
  anyhal_hello hello = {.size = sizeof(hello),
                        .abi_min = ANYHAL_ABI_VERSION,
                        .abi_max = ANYHAL_ABI_VERSION,
                        .services = &services};
  anyhal_reply reply = {.size = sizeof(reply)};
  anyhal_error error = {.size = sizeof(error)};
  anyhal_backend_main_fn entry = (anyhal_backend_main_fn)dlsym(library, ANYHAL_ENTRY_SYMBOL);
  must(entry(&hello, &reply, &error) == 0, "the entry", &error);
  const anyhal_table* table = reply.table;
  anyhal_device* device;
  anyhal_queue* queue;
  uint64_t address_block, memory[3], value = 0, context = 0, cl_queue = 0, cl_memory[3];
  must(table->device_open(reply.self, strtoull(arguments[3], NULL, 10), NULL, 0, &device,
                          &address_block, &error) == 0,
       "device_open", &error);
  must(table->queue_create(device, NULL, &queue, &error) == 0, "queue_create", &error);
  uint32_t type, owned;
  for (int k = 0; k < 3; ++k) {
    anyhal_memory_request request = {.size = sizeof(request), .bytes = 1024, .alignment = 64};
    anyhal_memory_block block = {.size = sizeof(block)};
    must(table->memory_alloc(device, &request, &block, &error) == 0, "memory_alloc", &error);
    memory[k] = block.memory;
    table->native_handle(reply.self, ANYHAL_OBJECT_MEMORY, block.memory, &cl_memory[k], &type,
                         &owned, &error);
  }
  const int64_t dims = kElements, stride = 1;
  anyhal_tensor_desc operands[3];
  for (int k = 0; k < 3; ++k)
    operands[k] = (anyhal_tensor_desc){.size = sizeof(operands[k]),
                                       .dtype = ANYHAL_DTYPE_F32,
                                       .rank = 1,
                                       .dims = &dims,
                                       .strides = &stride,
                                       .alignment = 64};
  anyhal_attrs_binary attributes = {.size = sizeof(attributes), .fn = ANYHAL_BINARY_FN_ADD};
  anyhal_op_desc desc = {.size = sizeof(desc),
                         .op = ANYHAL_OP_BINARY,
                         .op_version = 1,
                         .input_count = 2,
                         .operand_count = 3,
                         .operands = operands,
                         .attributes = &attributes,
                         .attributes_size = sizeof(attributes)};
  anyhal_plan* plan;
  const anyhal_prepared* prepared;
  must(table->op_prepare(device, &desc, &plan, &prepared, &error) == 0, "op_prepare", &error);
  table->native_handle(reply.self, ANYHAL_OBJECT_DEVICE, (uint64_t)(uintptr_t)device, &context,
                       &type, &owned, &error);
  table->native_handle(reply.self, ANYHAL_OBJECT_QUEUE, (uint64_t)(uintptr_t)queue, &cl_queue,
                       &type, &owned, &error);

  handle (*make_program)(handle, uint32_t, const char**, const size_t*, int32_t*) =
      dlsym(loader, "clCreateProgramWithSource");
  int32_t (*build)(handle, uint32_t, const handle*, const char*, void*, void*) =
      dlsym(loader, "clBuildProgram");
  handle (*make_kernel)(handle, const char*, int32_t*) = dlsym(loader, "clCreateKernel");
  set_arg = dlsym(loader, "clSetKernelArg");
  run_kernel = dlsym(loader, "clEnqueueNDRangeKernel");
  finish = dlsym(loader, "clFinish");
  release_event = dlsym(loader, "clReleaseEvent");
  const char* text = kSource;
  int32_t code = 0;
  handle program = make_program((handle)(uintptr_t)context, 1, &text, NULL, &code);
  must(code == 0 && build(program, 0, NULL, "-cl-std=CL1.2", NULL, NULL) == 0, "building", NULL);
  handle kernel = make_kernel(program, "add", &code);
  const uint64_t n = kElements;
  must(code == 0 && set_arg(kernel, 6, sizeof(n), &n) == 0, "the direct kernel", NULL);

  handle raw[3];
  for (int k = 0; k < 3; ++k) raw[k] = (handle)(uintptr_t)cl_memory[k];
  double best[2] = {1e18, 1e18};
  for (int round = 0; round < kRounds; ++round) {
    const double ours = through(table, queue, plan, memory, &value);
    const double theirs = direct((handle)(uintptr_t)cl_queue, kernel, raw);
    if (ours < best[0]) best[0] = ours;
    if (theirs < best[1]) best[1] = theirs;
  }
  printf("%.0f %.0f\n", best[0], best[1]);
  return 0;
}
