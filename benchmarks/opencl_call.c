/* What a call through the contract costs over the same OpenCL calls made directly.
 * SPDX-License-Identifier: Apache-2.0
 * A library for opencl_call.py: open once, then each side runs one block of calls. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

enum { kCalls = 2000, kElements = 64 };
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

static const char* no_setting(void* context, const char* name) {
  (void)context, (void)name;
  return NULL;
}

static struct {
  const anyhal_table* table;
  anyhal_queue* queue;
  anyhal_plan* plan;
  uint64_t memory[3], value;
  handle cl_queue, cl_kernel, cl_memory[3];
} the;

/* As the backend calls: a fresh pair of arguments for each operand, an event for each command. */
void opencl_call_direct(void) {
  static handle events[kCalls];
  const size_t global = 256, local = 256;
  for (int i = 0; i < kCalls; ++i) {
    const uint64_t offset = (uint64_t)(i % 2) * 256;
    for (uint32_t k = 0; k < 3; ++k) {
      set_arg(the.cl_kernel, 2 * k, sizeof(handle), &the.cl_memory[k]);
      set_arg(the.cl_kernel, 2 * k + 1, sizeof(offset), &offset);
    }
    run_kernel(the.cl_queue, the.cl_kernel, 1, NULL, &global, &local, 0, NULL, &events[i]);
  }
  finish(the.cl_queue);
  for (int i = 0; i < kCalls; ++i) release_event(events[i]);
}

void opencl_call_contract(void) {
  anyhal_error error = {.size = sizeof(error)};
  anyhal_queue_state state = {.size = sizeof(state)};
  for (int i = 0; i < kCalls; ++i) {
    const uint64_t offset = (uint64_t)(i % 2) * 256;
    const anyhal_ref refs[3] = {
        {the.memory[0], offset}, {the.memory[1], offset}, {the.memory[2], offset}};
    anyhal_call call = {.size = sizeof(call), .operands = refs, .operand_count = 3};
    must(the.table->op_enqueue(the.queue, the.plan, &call, &error) == 0, "op_enqueue", &error);
  }
  const uint64_t value = ++the.value;
  must(the.table->queue_signal(the.queue, value, &error) == 0, "queue_signal", &error);
  must(the.table->host_wait(the.queue, value, ANYHAL_NO_LIMIT, &state, &error) == 0, "host_wait",
       &error);
}

int opencl_call_count(void) { return kCalls; }

void opencl_call_open(const char* backend, const char* opencl, uint64_t number) {
  void* library = dlopen(backend, RTLD_NOW);
  void* loader = dlopen(opencl, RTLD_NOW);
  must(library && loader, "dlopen", NULL);
  static anyhal_services services;
  services = (anyhal_services){.size = sizeof(services), .setting = no_setting};
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
  uint64_t address_block, memory[3], context = 0, cl_queue = 0, cl_memory[3];
  must(table->device_open(reply.self, number, NULL, 0, &device, &address_block, &error) == 0,
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

  the.table = table, the.queue = queue, the.plan = plan;
  the.cl_queue = (handle)(uintptr_t)cl_queue, the.cl_kernel = kernel;
  for (int k = 0; k < 3; ++k)
    the.memory[k] = memory[k], the.cl_memory[k] = (handle)(uintptr_t)cl_memory[k];
}
