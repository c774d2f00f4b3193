/* Kernels of the application's own, and extensions.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     kernel DEVICE    prints "ok", or "unsupported" where the device loads no C function */
#include "check.h"

typedef struct scale_values {
  float factor;
  int64_t count;
} scale_values;

static int32_t scale(void* const* arrays, const void* values, uint32_t part, uint32_t parts) {
  const float* x = (const float*)arrays[0];
  float* y = (float*)arrays[1];
  const scale_values* v = (const scale_values*)values;
  for (int64_t i = v->count * part / parts; i < v->count * (part + 1) / parts; ++i)
    y[i] = v->factor * x[i];
  return v->factor == 0 ? 7 : 0;
}

static hal_device* device;
static hal_queue* queue;
static hal_module* module;

/* A kernel that calls: each call could wait for the kernel itself. */
static hal_tensor inside;
static hal_kernel* calls_kernel;

static int32_t calls(void* const* arrays, const void* values, uint32_t part, uint32_t parts) {
  float one[64];
  (void)arrays, (void)values, (void)part, (void)parts;
  BAD(INVALID_ARGUMENT, NONE, hal_unary(queue, &inside, HAL_UNARY_FN_NEG, &inside, error));
  BAD(INVALID_ARGUMENT, NONE, hal_unary(queue, &inside, HAL_UNARY_FN_EXP, &inside, error));
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_launch(queue, calls_kernel, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_buffer_read(queue, inside.buffer, 0, one, sizeof one, error));
  return 0;
}

static void refuses_calls_from_inside(void) {
  const hal_host_kernel_fn function = calls;
  hal_module* m;
  inside = matrix(queue, 8, 8);
  fill(queue, &inside, 1);
  GOOD(hal_unary(queue, &inside, HAL_UNARY_FN_NEG, &inside, error));
  GOOD(hal_module_load(device, HAL_FORMAT_HOST_FUNCTION, &function, sizeof function, NULL, &m,
                       error));
  for (uint32_t parts = 1; parts <= 8; parts += 7) {
    hal_signature s = {sizeof s, 0, NULL, {parts, 0, 0}, {0, 0, 0}, 0, 0};
    GOOD(hal_kernel_prepare(m, "calls", &s, &calls_kernel, error));
    GOOD(hal_kernel_launch(queue, calls_kernel, NULL, 0, error));
    GOOD(hal_kernel_release(calls_kernel, error));
  }
  GOOD(hal_module_release(m, error));
  GOOD(hal_unary(queue, &inside, HAL_UNARY_FN_NEG, &inside, error));
}

static hal_argument value(const void* from, size_t bytes) {
  hal_argument a = {NULL, 0};
  memcpy(&a.bits, from, bytes);
  return a;
}

static hal_kernel* kernel_of(const hal_parameter* parameters, uint32_t count, uint32_t parts) {
  hal_signature s = {sizeof s, count, parameters, {parts, 0, 0}, {0, 0, 0}, 0, 0};
  hal_kernel* kernel;
  GOOD(hal_kernel_prepare(module, "scale", &s, &kernel, error));
  return kernel;
}

static const hal_parameter kScale[] = {{HAL_ACCESS_READ, 0}, {HAL_ACCESS_WRITE, 0}, {0, 4}, {0, 8}};

static void runs_in_order(void) {
  hal_tensor x = matrix(queue, 8, 8), y = matrix(queue, 8, 8), z = matrix(queue, 8, 8);
  hal_kernel* kernel = kernel_of(kScale, 4, 3);
  const float three = 3;
  const int64_t count = 64, part = 8;
  hal_argument given[] = {{x.buffer, 0}, {y.buffer, 0}, value(&three, 4), value(&count, 8)};
  fill(queue, &x, 1);
  GOOD(hal_unary(queue, &x, HAL_UNARY_FN_NEG, &x, error));
  GOOD(hal_kernel_launch(queue, kernel, given, 4, error));
  GOOD(hal_unary(queue, &y, HAL_UNARY_FN_NEG, &z, error));
  float *before = values_of(queue, &x), *after = values_of(queue, &z);
  for (int i = 0; i < 64; ++i) HOLDS(after[i] == -3 * before[i]);
  /* In a graph, from an offset on; the kernel's handle may go before the graph. */
  hal_graph* graph;
  GOOD(hal_graph_begin(queue, &graph, error));
  given[0].bits = given[1].bits = 56 * sizeof(float);
  given[3] = value(&part, 8);
  GOOD(hal_kernel_launch(queue, kernel, given, 4, error));
  GOOD(hal_unary(queue, &y, HAL_UNARY_FN_ABS, &z, error));
  GOOD(hal_graph_end(graph, error));
  GOOD(hal_kernel_release(kernel, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_kernel_launch(queue, kernel, given, 4, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_kernel_release(kernel, error));
  GOOD(hal_graph_launch(graph, error));
  free(after);
  after = values_of(queue, &z);
  for (int i = 0; i < 64; ++i) HOLDS(after[i] == 3 * (before[i] < 0 ? -before[i] : before[i]));
  GOOD(hal_graph_release(graph, error));
  free(before), free(after);
}

static void refuses(void) {
  hal_tensor x = matrix(queue, 8, 8), y = matrix(queue, 8, 8);
  hal_kernel* kernel = kernel_of(kScale, 4, 1);
  const float one = 1, none = 0;
  const int64_t count = 64;
  const hal_argument good[] = {{x.buffer, 0}, {y.buffer, 0}, value(&one, 4), value(&count, 8)};
  hal_argument bad[4];
  fill(queue, &x, 1), fill(queue, &y, 2);
  float* before = values_of(queue, &y);
#define WRONG(reason, change)    \
  memcpy(bad, good, sizeof bad); \
  change;                        \
  BAD(INVALID_ARGUMENT, reason, hal_kernel_launch(queue, kernel, bad, 4, error));
  WRONG(HANDLE, bad[0].buffer = NULL)
  WRONG(HANDLE, bad[1].buffer = (hal_buffer*)device)
  WRONG(NONE, bad[2].buffer = x.buffer)
  WRONG(BOUNDS, bad[0].bits = 1 << 20)
  WRONG(ALIASING, bad[1].buffer = x.buffer)
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_launch(queue, kernel, good, 3, error));
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_launch(queue, kernel, NULL, 4, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_kernel_launch(NULL, kernel, good, 4, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_kernel_launch(queue, NULL, good, 4, error));
  hal_tensor other = matrix(queue, 8, 8);
  GOOD(hal_free(other.buffer, error));
  WRONG(HANDLE, bad[1].buffer = other.buffer)
  float* after = values_of(queue, &y);
  HOLDS(!memcmp(before, after, 64 * sizeof(float))); /* nothing was written */
  memcpy(bad, good, sizeof bad);
  bad[2] = value(&none, 4);
  BAD(EXECUTION_FAILED, NONE, hal_kernel_launch(queue, kernel, bad, 4, error));
  GOOD(hal_kernel_launch(queue, kernel, good, 4, error)); /* the queue goes on */
  GOOD(hal_buffer_freeze(y.buffer, error));
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_launch(queue, kernel, good, 4, error));
  GOOD(hal_kernel_release(kernel, error));
  free(before), free(after);
}

static void refuses_signatures(void) {
  static const hal_parameter late[] = {{0, 4}, {HAL_ACCESS_READ, 0}};
  static const hal_parameter odd[] = {{0, 3}}, both[] = {{HAL_ACCESS_READ, 4}}, more[] = {{4, 0}};
  hal_signature s = {sizeof s, 2, late, {0, 0, 0}, {0, 0, 0}, 0, 0};
  hal_kernel* kernel;
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", &s, &kernel, error));
  s.parameter_count = 1, s.parameters = odd;
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", &s, &kernel, error));
  s.parameters = both;
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", &s, &kernel, error));
  s.parameters = more;
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", &s, &kernel, error));
  s.parameters = NULL;
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", &s, &kernel, error));
  s.parameter_count = 25;
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", &s, &kernel, error));
  s.parameter_count = 0, s.size = 4;
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", &s, &kernel, error));
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, NULL, &s, &kernel, error));
  BAD(INVALID_ARGUMENT, NONE, hal_kernel_prepare(module, "scale", NULL, &kernel, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_kernel_prepare((hal_module*)queue, "x", &s, &kernel, error));
}

static void refuses_code(void) {
  const uint64_t nothing = 0;
  hal_module* m;
  const int32_t function = HAL_FORMAT_HOST_FUNCTION, library = HAL_FORMAT_HOST_LIBRARY;
  BAD(INVALID_ARGUMENT, NONE, hal_module_load(device, function, NULL, 8, NULL, &m, error));
  BAD(INVALID_ARGUMENT, NONE, hal_module_load(device, function, &nothing, 8, NULL, &m, error));
  BAD(INVALID_ARGUMENT, NONE, hal_module_load(device, function, "1234", 4, NULL, &m, error));
  BAD(INVALID_ARGUMENT, NONE, hal_module_load(device, 99, "x", 1, NULL, &m, error));
  BAD(INVALID_ARGUMENT, NONE, hal_module_load(device, library, "k.so", 4, NULL, &m, error));
  BAD(NOT_FOUND, NONE, hal_module_load(device, library, "/no/k.so", 8, NULL, &m, error));
  BAD(UNSUPPORTED, ARCHITECTURE,
      hal_module_load(device, library, "/etc/passwd", 11, NULL, &m, error));
  BAD(UNSUPPORTED, ARCHITECTURE,
      hal_module_load(device, HAL_FORMAT_PTX, "x", 1, "sm_90", &m, error));
}

static void extensions(void) {
  const void* table;
  void* theirs;
  hal_error why;
  GOOD(hal_extension(device, "kernel_limits", 1, &table, &theirs, error));
  HOLDS(((const uint32_t*)table)[0] >= 16 && ((const uint32_t*)table)[1] == 1 && theirs);
  HOLDS(hal_extension(device, "kernel_limits", 2, &table, &theirs, &why) == HAL_STATUS_UNSUPPORTED);
  HOLDS(strstr(why.text, "there is: kernel_limits 1"));
  BAD(UNSUPPORTED, OP, hal_extension(device, "wings", 1, &table, &theirs, error));
  BAD(INVALID_ARGUMENT, NONE, hal_extension(device, NULL, 1, &table, &theirs, error));
  BAD(INVALID_ARGUMENT, NONE, hal_extension(device, "wings", 0, &table, &theirs, error));
}

int main(int argc, char** argv) {
  hal_error why = {0, 0, ""};
  const hal_host_kernel_fn function = scale;
  (void)argc;
  GOOD(hal_device_find(argv[1], &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  if (hal_module_load(device, HAL_FORMAT_HOST_FUNCTION, &function, sizeof function, NULL, &module,
                      &why) != HAL_STATUS_OK) {
    HOLDS(why.status == HAL_STATUS_UNSUPPORTED && why.text[0]);
    printf("unsupported\n");
    return 0;
  }
  runs_in_order();
  refuses();
  refuses_calls_from_inside();
  refuses_signatures();
  refuses_code();
  extensions();
  GOOD(hal_module_release(module, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_module_release(module, error));
  GOOD(hal_module_release(NULL, error));
  printf("ok\n");
  return 0;
}
