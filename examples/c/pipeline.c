/* Two queues: one prepares the next batch while the other works on the last; timelines between.
 * SPDX-License-Identifier: Apache-2.0 */
#include <anyhal/hal_ops.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCHES = 4, ROWS = 8, COLUMNS = 8, N = ROWS * COLUMNS };

static hal_error error;

static void must(hal_status status) {
  if (status == HAL_STATUS_OK) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

static hal_tensor matrix(hal_queue* queue) {
  const int64_t dims[] = {ROWS, COLUMNS};
  hal_tensor t;
  hal_buffer* buffer;
  must(hal_alloc(queue, N * sizeof(float), HAL_PURPOSE_ACTIVATIONS, &buffer, &error));
  must(hal_tensor_dense(buffer, 0, HAL_DTYPE_F32, 2, dims, &t, NULL, &error));
  return t;
}

int main(int argc, char** argv) {
  hal_queue *prepare, *compute;
  hal_tensor raw, ready[2], out;
  float values[N];
  uint64_t done[2] = {0, 0};

  must(hal_select_backend(argc > 1 ? argv[1] : NULL, NULL, &error));
  must(hal_queue_create(NULL, &prepare, &error));
  must(hal_queue_create(NULL, &compute, &error));
  raw = matrix(prepare), ready[0] = matrix(prepare), ready[1] = matrix(prepare);
  out = matrix(compute);

  for (int batch = 0; batch < BATCHES; ++batch) {
    const hal_tensor* slot = &ready[batch % 2];
    uint64_t prepared;
    for (int i = 0; i < N; ++i) values[i] = (float)(batch - i % 3);
    must(hal_buffer_write(prepare, raw.buffer, 0, values, sizeof values, &error));
    /* The slot is free when the batch before last was computed. */
    must(hal_queue_wait_for(prepare, compute, done[batch % 2], &error));
    must(hal_unary(prepare, &raw, HAL_UNARY_FN_ABS, slot, &error));
    must(hal_queue_signal(prepare, &prepared, &error));

    must(hal_queue_wait_for(compute, prepare, prepared, &error));
    must(hal_matmul(compute, slot, slot, &out, &error));
    must(hal_queue_signal(compute, &done[batch % 2], &error));
    must(hal_buffer_read(compute, out.buffer, 0, values, sizeof values, &error));
    printf("batch %d: corner %g, center %g\n", batch, values[0], values[N / 2 + COLUMNS / 2]);
  }
  for (int i = 0; i < 2; ++i) must(hal_free(ready[i].buffer, &error));
  must(hal_free(raw.buffer, &error));
  must(hal_free(out.buffer, &error));
  must(hal_queue_release(prepare, &error));
  must(hal_queue_release(compute, &error));
  return 0;
}
