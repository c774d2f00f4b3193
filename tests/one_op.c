/* The smallest real backend, of which one op does something it should not.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Linked with the objects of that backend, whose entry was renamed. OP and DEED come from the
 * command line. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

anyhal_status honest_main(const anyhal_hello* hello, anyhal_reply* reply, anyhal_error* error);

typedef struct seen {
  anyhal_plan* plan;
  uint32_t inputs;
  int empty; /* its output has no element */
} seen;

enum { kPlans = 1 << 16 };
static const anyhal_table* honest;
static seen plans[kPlans];
static int plan_count;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static unsigned char* first_byte(const anyhal_call* call, uint32_t operand) {
  const anyhal_ref r = call->operands[operand];
  return (unsigned char*)(uintptr_t)(r.memory + r.offset);
}

/* Deeds; `took` is what the op itself took, in seconds. */
static void nothing(const anyhal_call* call, const seen* s, double took) {
  (void)call, (void)s, (void)took;
}
static void spin(const anyhal_call* call, const seen* s, double took) {
  (void)call, (void)s;
  const double until = now() + took * PERCENT / 100.0;
  while (now() < until) {
  }
}
static void crash(const anyhal_call* call, const seen* s, double took) {
  (void)call, (void)s, (void)took;
  abort();
}
static void leave(const anyhal_call* call, const seen* s, double took) {
  (void)call, (void)s, (void)took;
  _exit(0);
}
static void hang(const anyhal_call* call, const seen* s, double took) {
  (void)call, (void)s, (void)took;
  for (;;) sleep(1);
}
static void eat(const anyhal_call* call, const seen* s, double took) {
  (void)call, (void)s, (void)took;
  for (;;) {
    char* p = malloc(64 << 20);
    if (p) memset(p, 1, 64 << 20);
    usleep(2000);
  }
}
static void write_before(const anyhal_call* call, const seen* s, double took) {
  (void)took;
  first_byte(call, s->inputs)[-1] ^= 0x55;
}
static void change_input(const anyhal_call* call, const seen* s, double took) {
  (void)s, (void)took;
  first_byte(call, 0)[0] ^= 0x55;
}
static void change_output(const anyhal_call* call, const seen* s, double took) {
  (void)took;
  if (!s->empty) first_byte(call, s->inputs)[0] ^= 0x55;
}

static anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc,
                                anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                anyhal_error* error) {
  const anyhal_status status = honest->op_prepare(device, desc, out_plan, out_prepared, error);
  if (status != ANYHAL_STATUS_OK || desc->op != OP || plan_count == kPlans) return status;
  const anyhal_tensor_desc* out = &desc->operands[desc->input_count];
  int empty = 0;
  for (uint32_t i = 0; i < out->rank; ++i) empty |= out->dims[i] == 0;
  plans[plan_count++] = (seen){*out_plan, desc->input_count, empty};
  return status;
}

static anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                                anyhal_error* error) {
  const double started = now();
  const anyhal_status status = honest->op_enqueue(queue, plan, call, error);
  for (int i = plan_count; i-- > 0;)
    if (plans[i].plan == plan) {
      DEED(call, &plans[i], now() - started);
      break;
    }
  return status;
}

ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error) {
  static void (*const all[])(const anyhal_call*, const seen*, double) = {
      nothing, spin, crash, leave, hang, eat, write_before, change_input, change_output};
  (void)all;
  const anyhal_status status = honest_main(hello, reply, error);
  if (status != ANYHAL_STATUS_OK) return status;
  anyhal_table* table = calloc(1, sizeof *table);
  honest = reply->table;
  *table = *honest;
  table->op_prepare = op_prepare, table->op_enqueue = op_enqueue;
  reply->table = table;
  return ANYHAL_STATUS_OK;
}
