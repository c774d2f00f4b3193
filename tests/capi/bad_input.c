/* Every kind of wrong argument gets its status and reason; prints "ok".
 * SPDX-License-Identifier: Apache-2.0
 *
 *     bad_input DEVICE
 */
#include "check.h"

static hal_queue* queue;
static hal_device* device;

static void handles(void) {
  hal_tensor a = matrix(queue, 4, 4), b = matrix(queue, 4, 4), c = matrix(queue, 4, 4);
  hal_tensor t = a;
  hal_buffer* buffer;
  hal_queue* other;
  hal_graph* graph;
  void* address;
  uint64_t value;
  int32_t reached;
  hal_device_info info = {0};
  void* wrong[] = {
      NULL,          (void*)1, (void*)a.buffer,      (void*)queue,
      (void*)device, &info,    (void*)(uintptr_t)-1, (void*)(uintptr_t)0x2000000000000001u};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    void* w = wrong[i];
    info.size = sizeof info;
    if (w != device)
      BAD(INVALID_ARGUMENT, HANDLE, hal_device_describe((hal_device*)w, &info, error));
    if (w && w != device)
      BAD(INVALID_ARGUMENT, HANDLE, hal_queue_create((hal_device*)w, &other, error));
    if (w != a.buffer) {
      if (w) BAD(INVALID_ARGUMENT, HANDLE, hal_free((hal_buffer*)w, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_buffer_freeze((hal_buffer*)w, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_buffer_address((hal_buffer*)w, &address, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_buffer_write(queue, (hal_buffer*)w, 0, &value, 8, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_buffer_read(queue, (hal_buffer*)w, 0, &value, 8, error));
      BAD(INVALID_ARGUMENT, HANDLE,
          hal_buffer_copy(queue, (hal_buffer*)w, 0, a.buffer, 0, 8, error));
      BAD(INVALID_ARGUMENT, HANDLE,
          hal_buffer_copy(queue, a.buffer, 0, (hal_buffer*)w, 0, 8, error));
      t.buffer = (hal_buffer*)w;
      BAD(INVALID_ARGUMENT, HANDLE, hal_matmul(queue, &t, &b, &c, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_matmul(queue, &a, &b, &t, error));
    }
    if (w != queue) {
      hal_queue* q = (hal_queue*)w;
      BAD(INVALID_ARGUMENT, HANDLE, hal_alloc(q, 8, 0, &buffer, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_matmul(q, &a, &b, &c, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_queue_signal(q, &value, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_queue_wait(q, 0, 0, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_queue_wait_for(queue, q, 0, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_queue_wait_for(q, queue, 0, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_queue_reached(q, 0, &reached, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_graph_begin(q, &graph, error));
      BAD(INVALID_ARGUMENT, HANDLE, hal_buffer_write(q, a.buffer, 0, &value, 8, error));
      if (w) BAD(INVALID_ARGUMENT, HANDLE, hal_queue_release(q, error));
    }
    if (w) BAD(INVALID_ARGUMENT, HANDLE, hal_graph_release((hal_graph*)w, error));
    BAD(INVALID_ARGUMENT, HANDLE, hal_graph_end((hal_graph*)w, error));
    BAD(INVALID_ARGUMENT, HANDLE, hal_graph_launch((hal_graph*)w, error));
  }
  GOOD(hal_free(NULL, error));
  GOOD(hal_queue_release(NULL, error));
  GOOD(hal_graph_release(NULL, error));
  GOOD(hal_free(a.buffer, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_free(a.buffer, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_matmul(queue, &a, &b, &c, error));
}

static void nulls(void) {
  const int64_t dims[] = {2, 2};
  hal_tensor a = matrix(queue, 4, 4);
  const hal_tensor* operands[] = {&a, &a, &a};
  hal_decision decision = {0, 0, NULL, 0};
  uint32_t count;
  BAD(INVALID_ARGUMENT, NONE, hal_device_find("cpu", NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_device_list(NULL, 4, &count, error));
  BAD(INVALID_ARGUMENT, NONE, hal_device_list(NULL, 0, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_device_describe(device, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_queue_create(device, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_queue_signal(queue, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_queue_reached(queue, 0, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_alloc(queue, 8, 0, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_buffer_address(a.buffer, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_buffer_write(queue, a.buffer, 0, NULL, 8, error));
  BAD(INVALID_ARGUMENT, NONE, hal_buffer_read(queue, a.buffer, 0, NULL, 8, error));
  BAD(INVALID_ARGUMENT, NONE, hal_tensor_dense(NULL, 0, 1, 2, dims, NULL, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_tensor_dense(NULL, 0, 1, 2, NULL, &a, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_tensor_broadcast(NULL, 2, dims, &a, error));
  BAD(INVALID_ARGUMENT, NONE, hal_graph_begin(queue, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_op(queue, HAL_OP_MATMUL, NULL, 2, 3, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_matmul(queue, NULL, &a, &a, error));
  BAD(INVALID_ARGUMENT, NONE, hal_matmul(queue, &a, &a, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_concat(queue, NULL, 2, 0, &a, error));
  BAD(INVALID_ARGUMENT, NONE, hal_concat(queue, operands, UINT32_MAX, 0, &a, error));
  BAD(INVALID_ARGUMENT, NONE,
      hal_explain(HAL_OP_MATMUL, operands, 2, 3, NULL, 0, NULL, NULL, 0, NULL, error));
  BAD(INVALID_ARGUMENT, NONE,
      hal_explain(HAL_OP_MATMUL, operands, 2, 3, NULL, 0, &decision, NULL, 0, NULL, error));
  BAD(INVALID_ARGUMENT, NONE, hal_receipts_read(NULL, 0, 7, &count, error));
  HOLDS(hal_matmul(queue, NULL, &a, &a, NULL) == HAL_STATUS_INVALID_ARGUMENT);
}

static void calls(void) {
  hal_tensor a = matrix(queue, 4, 6), b = matrix(queue, 6, 4), c = matrix(queue, 4, 4), t;
  const hal_tensor* operands[HAL_OPERANDS_MAX + 8];
  hal_attrs_unary attributes = {sizeof attributes, 0, HAL_UNARY_FN_NEG, 0};
  for (int i = 0; i < HAL_OPERANDS_MAX + 8; ++i) operands[i] = &c;
  BAD(INVALID_ARGUMENT, OP, hal_op(queue, 0, operands, 1, 2, NULL, 0, error));
  BAD(INVALID_ARGUMENT, OP, hal_op(queue, 123456, operands, 1, 2, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_op(queue, HAL_OP_MATMUL, operands, 1, 3, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_op(queue, HAL_OP_MATMUL, operands, 2, 2, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_op(queue, HAL_OP_MATMUL, operands, 3, 2, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_op(queue, HAL_OP_CONCAT, operands, 0, 1, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_op(queue, HAL_OP_CONCAT, operands, 31, 32, NULL, 0, error));
  BAD(INVALID_ARGUMENT, NONE, hal_op(queue, HAL_OP_UNARY, operands, 1, 2, &attributes, 8, error));
  BAD(INVALID_ARGUMENT, NONE,
      hal_op(queue, HAL_OP_UNARY, operands, 1, 2, &attributes, 4096, error));
  BAD(INVALID_ARGUMENT, NONE,
      hal_op(queue, HAL_OP_UNARY, operands, 1, 2, NULL, sizeof attributes, error));
  attributes.size = 8;
  BAD(INVALID_ARGUMENT, NONE,
      hal_op(queue, HAL_OP_UNARY, operands, 1, 2, &attributes, sizeof attributes, error));
  /* shapes: the backend's own checks */
  HOLDS(hal_matmul(queue, &a, &a, &c, NULL) == HAL_STATUS_INVALID_ARGUMENT);
  HOLDS(hal_matmul(queue, &a, &b, &a, NULL) == HAL_STATUS_INVALID_ARGUMENT);
  /* geometry */
  t = c, t.rank = 9;
  BAD(INVALID_ARGUMENT, RANK, hal_matmul(queue, &a, &b, &t, error));
  t = c, t.rank = -1;
  BAD(INVALID_ARGUMENT, RANK, hal_matmul(queue, &a, &b, &t, error));
  t = c, t.dims[0] = -4;
  BAD(INVALID_ARGUMENT, NONE, hal_matmul(queue, &a, &b, &t, error));
  t = c, t.strides[0] = -4;
  BAD(INVALID_ARGUMENT, NONE, hal_matmul(queue, &a, &b, &t, error));
  t = a, t.dims[0] = INT64_MAX, t.dims[1] = INT64_MAX;
  BAD(INVALID_ARGUMENT, NONE, hal_matmul(queue, &t, &b, &c, error));
  t = c, t.dtype = 99;
  BAD(INVALID_ARGUMENT, NONE, hal_matmul(queue, &a, &b, &t, error));
  t = c, t.strides[0] = 0;
  BAD(INVALID_ARGUMENT, ALIASING, hal_matmul(queue, &a, &b, &t, error));
  t = c, t.offset_bytes = 2;
  BAD(INVALID_ARGUMENT, ALIGNMENT, hal_matmul(queue, &a, &b, &t, error));
  /* bounds: before the plan exists, and after */
  for (int i = 0; i < 2; ++i) {
    t = c, t.offset_bytes = 4;
    BAD(INVALID_ARGUMENT, BOUNDS, hal_matmul(queue, &a, &b, &t, error));
    t.offset_bytes = UINT64_MAX - 3;
    BAD(INVALID_ARGUMENT, BOUNDS, hal_matmul(queue, &a, &b, &t, error));
    t = c, t.strides[0] = INT64_MAX / 64;
    BAD(INVALID_ARGUMENT, BOUNDS, hal_matmul(queue, &a, &b, &t, error));
    fill(queue, &a, 1), fill(queue, &b, 1);
    GOOD(hal_matmul(queue, &a, &b, &c, error));
  }
  /* overlaps */
  BAD(INVALID_ARGUMENT, ALIASING, hal_matmul(queue, &c, &c, &c, error));
  t = matrix(queue, 8, 4);
  hal_tensor low = t, high = t;
  low.dims[0] = high.dims[0] = 4, high.offset_bytes = 16;
  BAD(INVALID_ARGUMENT, ALIASING, hal_unary(queue, &low, HAL_UNARY_FN_NEG, &high, error));
  BAD(INVALID_ARGUMENT, ATTRIBUTE, hal_unary(queue, &low, (hal_unary_fn)999, &low, error));
  BAD(INVALID_ARGUMENT, ATTRIBUTE, hal_unary(queue, &low, (hal_unary_fn)0, &low, error));
  high.offset_bytes = 64;
  GOOD(hal_unary(queue, &low, HAL_UNARY_FN_NEG, &high, error));
  GOOD(hal_unary(queue, &low, HAL_UNARY_FN_NEG, &low, error));
  BAD(INVALID_ARGUMENT, ALIASING, hal_buffer_copy(queue, t.buffer, 0, t.buffer, 4, 64, error));
  /* copies */
  BAD(INVALID_ARGUMENT, BOUNDS, hal_buffer_write(queue, c.buffer, 60, &t, 8, error));
  BAD(INVALID_ARGUMENT, BOUNDS, hal_buffer_read(queue, c.buffer, UINT64_MAX, &t, 2, error));
  BAD(INVALID_ARGUMENT, BOUNDS, hal_buffer_copy(queue, c.buffer, 0, a.buffer, 92, 8, error));
  GOOD(hal_buffer_write(queue, c.buffer, 64, NULL, 0, error));
  hal_buffer* buffer;
  BAD(INVALID_ARGUMENT, NONE, hal_alloc(queue, 8, 77, &buffer, error));
  BAD(OUT_OF_MEMORY, NONE, hal_alloc(queue, UINT64_MAX / 2, 0, &buffer, error));
  GOOD(hal_alloc(queue, 0, 0, &buffer, error));
  GOOD(hal_free(buffer, error));
}

static void names(void) {
  hal_device* d = device;
  BAD(NOT_FOUND, NONE, hal_select_backend("nowhere", &d, error));
  BAD(NOT_FOUND, NONE, hal_select_backend("nowhere:0|neither:7", &d, error));
  BAD(NOT_FOUND, NONE, hal_select_backend("cpu:4711", &d, error));
  BAD(INVALID_ARGUMENT, NONE, hal_select_backend("CPU:x", &d, error));
  BAD(INVALID_ARGUMENT, NONE, hal_select_backend(" cpu | cpu_ref ", &d, error));
  BAD(INVALID_ARGUMENT, NONE, hal_select_backend("", &d, error));
  BAD(INVALID_ARGUMENT, NONE, hal_select_backend("cpu||x", &d, error));
  BAD(INVALID_ARGUMENT, REGISTRY, hal_registry_read("/another/file", error));
  HOLDS(d == device);
  GOOD(hal_registry_read(NULL, error));
  GOOD(hal_device_find("nowhere | cpu", &d, error));
  HOLDS(!strcmp(hal_status_name(3), "out_of_memory") &&
        !strcmp(hal_reason_name(HAL_REASON_ENVIRONMENT), "environment"));
  for (int i = -3; i < 99; ++i) HOLDS(hal_status_name(i)[0] && hal_reason_name(i)[0]);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  GOOD(hal_select_backend(argv[1], &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  handles(), nulls(), calls(), names();
  printf("ok\n");
  return 0;
}
