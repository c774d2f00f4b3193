/* A buffer that a graph writes, frozen: its bytes never change, whoever asks.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     frozen DEVICE    prints "ok" */
#include "check.h"

int main(int argc, char** argv) {
  hal_device* device;
  hal_queue* queue;
  hal_graph* graph;
  (void)argc;
  GOOD(hal_device_find(argv[1], &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  hal_tensor x = matrix(queue, 8, 8), w = matrix(queue, 8, 8), y = matrix(queue, 8, 8);
  fill(queue, &x, 1), fill(queue, &w, 2);

  GOOD(hal_graph_begin(queue, &graph, error));
  GOOD(hal_unary(queue, &x, HAL_UNARY_FN_NEG, &w, error));
  GOOD(hal_unary(queue, &w, HAL_UNARY_FN_NEG, &y, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_buffer_freeze(w.buffer, error));
  GOOD(hal_graph_end(graph, error));
  GOOD(hal_graph_launch(graph, error));
  GOOD(hal_buffer_freeze(w.buffer, error));
  float* before = values_of(queue, &w);
  fill(queue, &x, 5);
  BAD(INVALID_ARGUMENT, CAPTURE, hal_graph_launch(graph, error));
  float* after = values_of(queue, &w);
  HOLDS(!memcmp(before, after, 64 * sizeof(float)));
  GOOD(hal_graph_release(graph, error));

  /* One that only reads it goes on. */
  GOOD(hal_graph_begin(queue, &graph, error));
  GOOD(hal_unary(queue, &w, HAL_UNARY_FN_NEG, &y, error));
  GOOD(hal_graph_end(graph, error));
  GOOD(hal_graph_launch(graph, error));
  free(before), free(after);
  printf("ok\n");
  return 0;
}
