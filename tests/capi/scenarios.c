/* One scenario of the C interface on one device; prints "ok" or the line that failed.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     scenarios DEVICE SCENARIO
 */
#include <pthread.h>

#include "check.h"

static hal_device* device;
static hal_queue* queue;
static hal_device_info info;

static void product(const float* a, const float* b, float* out, int m, int k, int n) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      out[i * n + j] = 0;
      for (int l = 0; l < k; ++l) out[i * n + j] += a[i * k + l] * b[l * n + j];
    }
}

static void expect_product(const hal_tensor* a, const hal_tensor* b, const hal_tensor* c) {
  float *x = values_of(queue, a), *y = values_of(queue, b), *z = values_of(queue, c);
  float* wanted = (float*)malloc(bytes_of(c));
  product(x, y, wanted, (int)c->dims[0], (int)a->dims[1], (int)c->dims[1]);
  HOLDS(!memcmp(wanted, z, bytes_of(c)));
  free(x), free(y), free(z), free(wanted);
}

static void ops(void) {
  hal_tensor a = matrix(queue, 5, 7), b = matrix(queue, 7, 3), c = matrix(queue, 5, 3);
  hal_tensor e = matrix(queue, 5, 3);
  fill(queue, &a, 1), fill(queue, &b, 2);
  for (int i = 0; i < 3; ++i) GOOD(hal_matmul(queue, &a, &b, &c, error));
  expect_product(&a, &b, &c);
  /* another shape of the same op, then the first again: the key is the whole signature */
  hal_tensor d = matrix(queue, 7, 4), f = matrix(queue, 5, 4);
  fill(queue, &d, 3);
  GOOD(hal_matmul(queue, &a, &d, &f, error));
  expect_product(&a, &d, &f);
  fill(queue, &a, 4);
  GOOD(hal_matmul(queue, &a, &b, &c, error));
  expect_product(&a, &b, &c);
  /* attributes are part of the key */
  float *x = values_of(queue, &c), *y;
  GOOD(hal_unary(queue, &c, HAL_UNARY_FN_NEG, &e, error));
  y = values_of(queue, &e);
  HOLDS(y[4] == -x[4]);
  free(y);
  GOOD(hal_unary(queue, &c, HAL_UNARY_FN_ABS, &e, error));
  y = values_of(queue, &e);
  HOLDS(y[4] == fabsf(x[4]));
  free(x), free(y);
  /* in place, and broadcast by stride 0 */
  {
    const int64_t row_dims[] = {3}, full[] = {5, 3};
    hal_tensor row = tensor(queue, 1, row_dims), wide;
    fill(queue, &row, 5);
    GOOD(hal_tensor_broadcast(&row, 2, full, &wide, error));
    x = values_of(queue, &e), y = values_of(queue, &row);
    GOOD(hal_binary(queue, &e, &wide, HAL_BINARY_FN_ADD, &e, error));
    float* z = values_of(queue, &e);
    for (int i = 0; i < 15; ++i) HOLDS(z[i] == x[i] + y[i % 3]);
    free(x), free(y), free(z);
  }
}

static void frozen(void) {
  hal_tensor a = matrix(queue, 96, 64), b = matrix(queue, 64, 80), c = matrix(queue, 96, 80);
  float value = 0;
  fill(queue, &a, 1), fill(queue, &b, 2);
  GOOD(hal_buffer_freeze(b.buffer, error));
  for (int i = 0; i < 3; ++i) {
    fill(queue, &a, i);
    GOOD(hal_matmul(queue, &a, &b, &c, error));
    expect_product(&a, &b, &c);
  }
  BAD(INVALID_ARGUMENT, NONE, hal_buffer_write(queue, b.buffer, 0, &value, sizeof value, error));
  hal_tensor d = matrix(queue, 64, 80);
  BAD(INVALID_ARGUMENT, NONE, hal_unary(queue, &d, HAL_UNARY_FN_NEG, &b, error));
}

static void two_queues(void) {
  hal_queue* other;
  uint64_t value;
  int32_t reached;
  hal_tensor a = matrix(queue, 8, 8), b = matrix(queue, 8, 8), c = matrix(queue, 8, 8);
  GOOD(hal_queue_create(device, &other, error));
  fill(queue, &a, 1);
  for (int i = 0; i < 20; ++i) {
    GOOD(hal_unary(queue, &a, HAL_UNARY_FN_NEG, &b, error));
    GOOD(hal_queue_signal(queue, &value, error));
    GOOD(hal_queue_wait_for(other, queue, value, error));
    GOOD(hal_unary(other, &b, HAL_UNARY_FN_ABS, &c, error));
    GOOD(hal_matmul(queue, &b, &c, &a, error)); /* the core orders this one by itself */
    fill(queue, &a, i);
  }
  BAD(INVALID_ARGUMENT, NONE, hal_queue_wait_for(other, queue, value + 1000, error));
  BAD(INVALID_ARGUMENT, NONE, hal_queue_wait(queue, value + 1000, 0, error));
  GOOD(hal_queue_wait(other, HAL_NO_LIMIT, HAL_NO_LIMIT, error));
  GOOD(hal_queue_wait(queue, value, HAL_NO_LIMIT, error));
  GOOD(hal_queue_reached(queue, value, &reached, error));
  HOLDS(reached == 1);
  float *x = values_of(queue, &b), *y = values_of(queue, &c);
  for (int i = 0; i < 64; ++i) HOLDS(y[i] == fabsf(x[i]));
  free(x), free(y);
  GOOD(hal_queue_release(other, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_queue_wait(other, 0, 0, error));
}

static void graphs(void) {
  hal_graph *graph, *second;
  float value = 0;
  hal_tensor a = matrix(queue, 4, 6), b = matrix(queue, 6, 4), c = matrix(queue, 4, 4);
  hal_tensor d = matrix(queue, 4, 4);
  fill(queue, &b, 2);
  GOOD(hal_graph_begin(queue, &graph, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_graph_begin(queue, &second, error));
  GOOD(hal_matmul(queue, &a, &b, &c, error));
  GOOD(hal_unary(queue, &c, HAL_UNARY_FN_NEG, &d, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_buffer_read(queue, c.buffer, 0, &value, 4, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_graph_launch(graph, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_queue_release(queue, error));
  GOOD(hal_graph_end(graph, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_graph_end(graph, error));
  for (int i = 0; i < 3; ++i) {
    fill(queue, &a, i);
    GOOD(hal_graph_launch(graph, error));
    expect_product(&a, &b, &c);
    float *x = values_of(queue, &c), *y = values_of(queue, &d);
    HOLDS(y[7] == -x[7]);
    free(x), free(y);
  }
  GOOD(hal_graph_release(graph, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_graph_launch(graph, error));
  /* nothing recorded; abandoned; the queue goes on */
  GOOD(hal_graph_begin(queue, &graph, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_graph_end(graph, error));
  GOOD(hal_graph_release(graph, error));
  GOOD(hal_graph_begin(queue, &graph, error));
  GOOD(hal_graph_release(graph, error));
  GOOD(hal_matmul(queue, &a, &b, &c, error));
  expect_product(&a, &b, &c);
}

static void copies(void) {
  hal_tensor a = matrix(queue, 16, 16), b = matrix(queue, 16, 16);
  hal_device* others[16];
  uint32_t count;
  fill(queue, &a, 3);
  GOOD(hal_buffer_copy(queue, b.buffer, 0, a.buffer, 0, bytes_of(&a), error));
  float *x = values_of(queue, &a), *y = values_of(queue, &b);
  HOLDS(!memcmp(x, y, bytes_of(&a)));
  free(y);
  GOOD(hal_device_list(others, 16, &count, error));
  for (uint32_t i = 0; i < count && i < 16; ++i) {
    hal_queue* there;
    GOOD(hal_queue_create(others[i], &there, error));
    hal_tensor c = matrix(there, 16, 16);
    GOOD(hal_buffer_copy(there, c.buffer, 0, a.buffer, 0, bytes_of(&a), error));
    y = values_of(there, &c);
    HOLDS(!memcmp(x, y, bytes_of(&a)));
    free(y);
    if (others[i] != device) {
      BAD(INVALID_ARGUMENT, NONE, hal_unary(queue, &c, HAL_UNARY_FN_NEG, &b, error));
      BAD(INVALID_ARGUMENT, NONE, hal_buffer_read(queue, c.buffer, 0, x, 4, error));
    }
    GOOD(hal_free(c.buffer, error));
    GOOD(hal_queue_release(there, error));
  }
  free(x);
}

static void explain(void) {
  char text[4096];
  uint64_t bytes;
  hal_decision decision = {sizeof decision, 0, NULL, 0};
  hal_tensor a = matrix(queue, 8, 8), b = matrix(queue, 8, 8), c = matrix(queue, 8, 8);
  const hal_tensor* operands[] = {&a, &b, &c};
  hal_receipt receipts[4];
  uint32_t count;
  GOOD(hal_explain(HAL_OP_MATMUL, operands, 2, 3, NULL, 0, &decision, text, sizeof text, &bytes,
                   error));
  HOLDS(decision.device == device && bytes == strlen(text) + 1);
  HOLDS(strstr(text, "chosen") && strstr(text, info.name));
  GOOD(hal_explain(HAL_OP_MATMUL, operands, 2, 3, NULL, 0, &decision, text, 5, NULL, error));
  HOLDS(strlen(text) == 4);
  GOOD(hal_receipts_enable(1, error));
  GOOD(hal_matmul(queue, &a, &b, &c, error));
  GOOD(hal_receipts_enable(0, error));
  GOOD(hal_receipts_read(receipts, 4, sizeof *receipts, &count, error));
  HOLDS(count == 1 && receipts[0].op == HAL_OP_MATMUL && receipts[0].status == HAL_STATUS_OK);
  HOLDS(!strcmp(receipts[0].call, "matmul f32[8,8] f32[8,8] -> f32[8,8]"));
  HOLDS(!strcmp(receipts[0].device, info.name) && !strcmp(receipts[0].state, info.state));
}

/* ---- threads: all share a queue, buffers and plans, and have some of their own */

static hal_tensor shared_a, shared_b;
static float* shared_product;

static void* work(void* argument) {
  const int seed = *(const int*)argument;
  hal_queue* own;
  GOOD(hal_queue_create(device, &own, error));
  for (int round = 0; round < 60; ++round) {
    hal_queue* q = round % 3 ? own : queue;
    const int64_t rows = 1 + (seed * 31 + round) % 40; /* new signatures all the time */
    hal_tensor x = matrix(q, rows, 12), y = matrix(q, rows, 12), out = matrix(q, 12, 12);
    fill(q, &x, seed + round);
    GOOD(hal_unary(q, &x, HAL_UNARY_FN_NEG, &y, error));
    float *before = values_of(q, &x), *after = values_of(q, &y);
    for (int64_t i = 0; i < rows * 12; ++i) HOLDS(after[i] == -before[i]);
    free(before), free(after);
    GOOD(hal_matmul(q, &shared_a, &shared_b, &out, error));
    float* z = values_of(q, &out);
    HOLDS(!memcmp(z, shared_product, 144 * sizeof(float)));
    free(z);
    if (q == own) {
      hal_graph* graph;
      GOOD(hal_graph_begin(q, &graph, error));
      GOOD(hal_unary(q, &x, HAL_UNARY_FN_ABS, &y, error));
      GOOD(hal_graph_end(graph, error));
      GOOD(hal_graph_launch(graph, error));
      GOOD(hal_graph_release(graph, error));
    }
    GOOD(hal_free(x.buffer, error));
    GOOD(hal_free(y.buffer, error));
    GOOD(hal_free(out.buffer, error));
  }
  GOOD(hal_queue_release(own, error));
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  int seeds[] = {1, 2, 3, 4};
  shared_a = matrix(queue, 12, 12), shared_b = matrix(queue, 12, 12);
  fill(queue, &shared_a, 1), fill(queue, &shared_b, 2);
  float *x = values_of(queue, &shared_a), *y = values_of(queue, &shared_b);
  shared_product = (float*)malloc(144 * sizeof(float));
  product(x, y, shared_product, 12, 12, 12);
  free(x), free(y);
  for (int i = 0; i < 4; ++i) HOLDS(!pthread_create(&all[i], NULL, work, &seeds[i]));
  for (int i = 0; i < 4; ++i) pthread_join(all[i], NULL);
  free(shared_product);
}

/* More signatures than the table keeps: it is emptied and what was in it freed, also while threads
 * run ops. */
static void* churn(void* argument) {
  const int64_t columns = *(const int*)argument;
  hal_queue* own;
  GOOD(hal_queue_create(device, &own, error));
  hal_tensor x = matrix(own, 1, columns), y = matrix(own, 1, columns);
  hal_tensor a = matrix(own, 4, 4), b = matrix(own, 4, 4);
  fill(own, &a, 1);
  for (int64_t n = 0; n < 40000; ++n) {
    hal_tensor u = x, v = y;
    u.dims[0] = v.dims[0] = 1, u.dims[1] = v.dims[1] = columns;
    u.strides[0] = v.strides[0] = n + 1; /* a size of 1 has any stride: cheap, and a new key */
    GOOD(hal_unary(own, &u, HAL_UNARY_FN_NEG, &v, error));
    if (n % 16 == 0) GOOD(hal_unary(own, &a, HAL_UNARY_FN_NEG, &b, error));
  }
  float *p = values_of(own, &a), *q = values_of(own, &b);
  for (int i = 0; i < 16; ++i) HOLDS(q[i] == -p[i]);
  free(p), free(q);
  GOOD(hal_queue_release(own, error));
  return NULL;
}

static void eviction(void) {
  pthread_t all[2];
  int columns[] = {2, 3};
  for (int i = 0; i < 2; ++i) HOLDS(!pthread_create(&all[i], NULL, churn, &columns[i]));
  for (int i = 0; i < 2; ++i) pthread_join(all[i], NULL);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*play)(void);
  } all[] = {{"ops", ops},         {"frozen", frozen},    {"two_queues", two_queues},
             {"graphs", graphs},   {"copies", copies},    {"explain", explain},
             {"threads", threads}, {"eviction", eviction}};
  if (argc < 3) return 2;
  info.size = sizeof info;
  GOOD(hal_select_backend(argv[1], &device, error));
  GOOD(hal_device_describe(device, &info, error));
  GOOD(hal_queue_create(NULL, &queue, error));
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (!strcmp(all[i].name, argv[2])) {
      all[i].play();
      GOOD(hal_queue_release(queue, error));
      printf("ok\n");
      return 0;
    }
  return 2;
}
