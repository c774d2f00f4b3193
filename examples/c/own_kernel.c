/* A function of the application's own among a queue's ops: module, kernel, launch, graph.
 * SPDX-License-Identifier: Apache-2.0 */
#include <anyhal/hal_ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6 };

static hal_error error;

static void must(hal_status status) {
  if (status == HAL_STATUS_OK) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

/* y = factor * x; each part does its share, on a thread of the library's. */
static int32_t scale(void* const* arrays, const void* values, uint32_t part, uint32_t parts) {
  const float* x = (const float*)arrays[0];
  float* y = (float*)arrays[1];
  float factor;
  memcpy(&factor, values, sizeof factor);
  for (uint32_t i = N * part / parts; i < N * (part + 1) / parts; ++i) y[i] = factor * x[i];
  return 0; /* anything else: it failed */
}

int main(void) {
  const hal_host_kernel_fn function = scale;
  const hal_parameter parameters[] = {{HAL_ACCESS_READ, 0}, {HAL_ACCESS_WRITE, 0}, {0, 4}};
  const hal_signature signature = {sizeof signature, 3, parameters, {2, 1, 1}, {1, 1, 1}, 0, 0};
  const int64_t dims[] = {N};
  const float factor = 10;
  float values[N] = {1, 2, 3, 4, 5, 6};
  hal_device* device;
  hal_queue* queue;
  hal_module* module;
  hal_kernel* kernel;
  hal_tensor x, y;
  hal_argument arguments[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
  must(hal_select_backend("cpu", &device, &error));
  must(hal_queue_create(device, &queue, &error));
  must(hal_module_load(device, HAL_FORMAT_HOST_FUNCTION, &function, sizeof function, NULL, &module,
                       &error));
  must(hal_kernel_prepare(module, "scale", &signature, &kernel, &error));
  for (int i = 0; i < 2; ++i)
    must(hal_alloc(queue, sizeof values, HAL_PURPOSE_ACTIVATIONS, &arguments[i].buffer, &error));
  memcpy(&arguments[2].bits, &factor, sizeof factor);
  must(hal_tensor_dense(arguments[0].buffer, 0, HAL_DTYPE_F32, 1, dims, &x, NULL, &error));
  must(hal_tensor_dense(arguments[1].buffer, 0, HAL_DTYPE_F32, 1, dims, &y, NULL, &error));
  must(hal_buffer_write(queue, x.buffer, 0, values, sizeof values, &error));
  must(hal_unary(queue, &x, HAL_UNARY_FN_NEG, &x, &error)); /* an op, the kernel, an op */
  must(hal_kernel_launch(queue, kernel, arguments, 3, &error));
  must(hal_unary(queue, &y, HAL_UNARY_FN_ABS, &y, &error));
  must(hal_buffer_read(queue, y.buffer, 0, values, sizeof values, &error));
  for (int i = 0; i < N; ++i) printf("%g%s", (double)values[i], i + 1 < N ? " " : "\n");
  if (hal_kernel_launch(queue, kernel, arguments, 2, &error)) printf("%s\n", error.text);
  must(hal_kernel_release(kernel, &error)), must(hal_module_release(module, &error));
  return hal_queue_release(queue, &error);
}
