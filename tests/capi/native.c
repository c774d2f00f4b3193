/* Native work, native handles, imported memory, and what a capture forbids to other queues.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     native DEVICE SCENARIO    prints "ok", or "unsupported" with the reason */
#include "check.h"

static hal_device* device;
static hal_queue* queue;

/* A refusal of what a device may lack ends the program well; anything else is a mistake. */
static void may_lack(hal_status status, const hal_error* error) {
  if (status == HAL_STATUS_OK) return;
  if (status != HAL_STATUS_UNSUPPORTED || !error->text[0]) {
    printf("%s: %s\n", hal_status_name(status), error->text);
    exit(1);
  }
  printf("unsupported %s\n", hal_reason_name(error->reason));
  exit(0);
}

/* ---- native work */

typedef struct work {
  int calls;
  int32_t answer;
  const hal_tensor *a, *b, *c;
} work;

/* The host is the queue: y += 1, in the middle of ops on y. */
static int32_t add_one(void* argument, const hal_native* native) {
  work* w = (work*)argument;
  ++w->calls;
  HOLDS(native->size == sizeof *native && native->type == HAL_NATIVE_HOST);
  HOLDS(native->operand_count == 2 && native->operands[0] && native->operands[1]);
  float* y = (float*)(uintptr_t)native->operands[1];
  const float* x = (const float*)(uintptr_t)native->operands[0];
  for (int i = 0; i < 64; ++i) y[i] += x[i];
  /* It may call, on this queue too. */
  GOOD(hal_matmul(queue, w->a, w->b, w->c, error));
  return w->answer;
}

static void native(void) {
  hal_tensor x = matrix(queue, 8, 8), y = matrix(queue, 8, 8), z = matrix(queue, 8, 8);
  hal_tensor product = matrix(queue, 8, 8);
  work w = {0, 0, &x, &x, &product};
  hal_buffer* buffers[] = {x.buffer, y.buffer};
  uint32_t access[] = {HAL_ACCESS_READ, HAL_ACCESS_WRITE};
  hal_error why = {0, 0, ""};
  uint64_t before, after;
  fill(queue, &x, 1);
  GOOD(hal_unary(queue, &x, HAL_UNARY_FN_NEG, &y, error));
  GOOD(hal_queue_signal(queue, &before, error));
  may_lack(hal_queue_native(queue, add_one, &w, buffers, access, 2, &why), &why);
  GOOD(hal_queue_signal(queue, &after, error));
  HOLDS(w.calls == 1 && after > before);
  GOOD(hal_unary(queue, &y, HAL_UNARY_FN_ABS, &z, error));
  float* values = values_of(queue, &z);
  for (int i = 0; i < 64; ++i) HOLDS(values[i] == 0); /* |-x + x| */
  free(values);
  w.answer = HAL_STATUS_CANCELLED;
  BAD(CANCELLED, NONE, hal_queue_native(queue, add_one, &w, buffers, access, 2, error));
  w.answer = 4711;
  BAD(EXECUTION_FAILED, NONE, hal_queue_native(queue, add_one, &w, buffers, access, 2, error));
  HOLDS(w.calls == 3);
  access[1] = 0;
  BAD(INVALID_ARGUMENT, NONE, hal_queue_native(queue, add_one, &w, buffers, access, 2, error));
  access[1] = HAL_ACCESS_WRITE;
  BAD(INVALID_ARGUMENT, NONE, hal_queue_native(queue, NULL, &w, buffers, access, 2, error));
  BAD(INVALID_ARGUMENT, NONE, hal_queue_native(queue, add_one, &w, buffers, access, 25, error));
  hal_graph* graph;
  GOOD(hal_graph_begin(queue, &graph, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_queue_native(queue, add_one, &w, buffers, access, 2, error));
  GOOD(hal_graph_release(graph, error));
  GOOD(hal_buffer_freeze(y.buffer, error));
  BAD(INVALID_ARGUMENT, NONE, hal_queue_native(queue, add_one, &w, buffers, access, 2, error));
  GOOD(hal_free(y.buffer, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_queue_native(queue, add_one, &w, buffers, access, 2, error));
  HOLDS(w.calls == 3);
}

static void handles(void) {
  hal_native_handle handle = {0, 0, 0, 0, 0, 0};
  hal_error why = {0, 0, ""};
  hal_tensor x = matrix(queue, 8, 8);
  BAD(INVALID_ARGUMENT, NONE, hal_native_handle_of(device, &handle, error));
  handle.size = sizeof handle;
  BAD(INVALID_ARGUMENT, HANDLE, hal_native_handle_of(NULL, &handle, error));
  BAD(INVALID_ARGUMENT, HANDLE, hal_native_handle_of(&handle, &handle, error));
  may_lack(hal_native_handle_of(device, &handle, &why), &why);
  HOLDS(handle.handle != 0 && handle.owned == 0);
  GOOD(hal_native_handle_of(x.buffer, &handle, error));
  HOLDS(handle.handle != 0);
  may_lack(hal_native_handle_of(queue, &handle, &why), &why);
  HOLDS(handle.handle != 0);
}

/* ---- imported memory */

static int given_back;
static void released(void* argument) {
  HOLDS(argument == &given_back);
  ++given_back;
}

static void import(void) {
  _Alignas(64) static float memory[80];
  hal_error why = {0, 0, ""};
  hal_tensor x = matrix(queue, 8, 8), y = matrix(queue, 8, 8);
  hal_buffer* theirs = x.buffer;
  for (int i = 0; i < 64; ++i) memory[i] = (float)i;
  may_lack(hal_buffer_import(queue, memory, 256, released, &given_back, &x.buffer, &why), &why);
  GOOD(hal_unary(queue, &x, HAL_UNARY_FN_NEG, &y, error));
  GOOD(hal_unary(queue, &y, HAL_UNARY_FN_NEG, &y, error));
  GOOD(hal_binary(queue, &x, &y, HAL_BINARY_FN_ADD, &x, error));
  GOOD(hal_queue_wait(queue, HAL_NO_LIMIT, HAL_NO_LIMIT, error));
  for (int i = 0; i < 64; ++i) HOLDS(memory[i] == 2 * (float)i); /* in place: nothing was copied */
  BAD(INVALID_ARGUMENT, BOUNDS, hal_buffer_write(queue, x.buffer, 252, memory, 8, error));
  HOLDS(given_back == 0);
  /* A byte is in one buffer: another one would be neither ordered nor frozen with it. */
  hal_buffer* again;
  BAD(INVALID_ARGUMENT, ALIASING,
      hal_buffer_import(queue, memory, 256, released, &given_back, &again, error));
  BAD(INVALID_ARGUMENT, ALIASING,
      hal_buffer_import(queue, memory + 48, 64, released, &given_back, &again, error));
  BAD(INVALID_ARGUMENT, BOUNDS,
      hal_buffer_import(queue, memory + 64, UINT64_MAX, released, &given_back, &again, error));
  GOOD(hal_buffer_import(queue, memory + 64, 64, NULL, NULL, &again, error));
  GOOD(hal_free(again, error));
  HOLDS(given_back == 0);
  void* address;
  GOOD(hal_buffer_address(theirs, &address, error));
  GOOD(hal_buffer_import(queue, address, 256, NULL, NULL, &again, error));
  BAD(INVALID_ARGUMENT, ALIASING, hal_buffer_copy(queue, again, 4, theirs, 0, 128, error));
  GOOD(hal_buffer_copy(queue, again, 128, theirs, 0, 128, error));
  GOOD(hal_free(again, error));
  GOOD(hal_unary(queue, &x, HAL_UNARY_FN_NEG, &y, error));
  GOOD(hal_free(x.buffer, error));
  GOOD(hal_queue_wait(queue, HAL_NO_LIMIT, HAL_NO_LIMIT, error));
  HOLDS(given_back == 1);
  GOOD(hal_free(theirs, error));
  GOOD(hal_buffer_import(queue, memory, 256, NULL, NULL, &again, error)); /* now it may be */
  GOOD(hal_free(again, error));
  BAD(INVALID_ARGUMENT, NONE, hal_buffer_import(queue, NULL, 8, NULL, NULL, &x.buffer, error));
  /* off by one float: an import, or a typed refusal; then as far as the op takes it */
  if (!hal_buffer_import(queue, memory + 1, 256, released, &given_back, &x.buffer, &why)) {
    GOOD(hal_unary(queue, &x, HAL_UNARY_FN_NEG, &y, error));
    GOOD(hal_free(x.buffer, error));
    GOOD(hal_queue_wait(queue, HAL_NO_LIMIT, HAL_NO_LIMIT, error));
    HOLDS(given_back == 2);
  } else {
    HOLDS(why.status == HAL_STATUS_UNSUPPORTED && why.reason == HAL_REASON_ALIGNMENT);
  }
}

/* ---- what a capture forbids: its queue, and what it is about to write */

static void capture(void) {
  hal_queue* other;
  hal_graph* graph;
  float value = 0, values[16] = {0};
  hal_tensor a = matrix(queue, 4, 4), b = matrix(queue, 4, 4), c = matrix(queue, 4, 4);
  GOOD(hal_queue_create(device, &other, error));
  fill(queue, &a, 1), fill(queue, &c, 2);
  GOOD(hal_graph_begin(queue, &graph, error));
  GOOD(hal_unary(queue, &a, HAL_UNARY_FN_NEG, &b, error));
  GOOD(hal_buffer_read(other, a.buffer, 0, &value, 4, error));
  GOOD(hal_buffer_read(other, c.buffer, 0, &value, 4, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_buffer_read(queue, c.buffer, 0, &value, 4, error));
  BAD(INVALID_ARGUMENT, CAPTURE, hal_buffer_read(other, b.buffer, 0, &value, 4, error));
  BAD(INVALID_ARGUMENT, CAPTURE,
      hal_buffer_write(other, b.buffer, 0, values, sizeof values, error));
  BAD(INVALID_ARGUMENT, CAPTURE,
      hal_buffer_copy(other, c.buffer, 0, b.buffer, 0, bytes_of(&b), error));
  GOOD(hal_graph_end(graph, error));
  GOOD(hal_graph_launch(graph, error));
  GOOD(hal_buffer_read(other, b.buffer, 0, &value, 4, error));
  GOOD(hal_graph_release(graph, error));
  GOOD(hal_graph_begin(queue, &graph, error));
  GOOD(hal_unary(queue, &a, HAL_UNARY_FN_NEG, &b, error));
  GOOD(hal_graph_release(graph, error)); /* abandoned */
  GOOD(hal_buffer_read(other, b.buffer, 0, &value, 4, error));
  GOOD(hal_queue_release(other, error));
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*play)(void);
  } all[] = {{"native", native}, {"handles", handles}, {"import", import}, {"capture", capture}};
  if (argc < 3) return 2;
  GOOD(hal_select_backend(argv[1], &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (!strcmp(all[i].name, argv[2])) {
      all[i].play();
      GOOD(hal_queue_release(queue, error));
      printf("ok\n");
      return 0;
    }
  return 2;
}
