/* A backend that works, until its setting "lie" says what it is to get wrong.
 * SPDX-License-Identifier: Apache-2.0
 *
 * It is linked with the objects of the smallest real backend, whose entry was renamed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "anyhal/backend.h"
#include "anyhal/ops.h"
#include "deeds.h"

anyhal_status honest_main(const anyhal_hello* hello, anyhal_reply* reply, anyhal_error* error);

typedef struct liar {
  const anyhal_table* honest;
  anyhal_self* self;
  const anyhal_services* services;
  const char* lie;
  anyhal_memory_kind kinds[2];
  anyhal_memory_block first; /* the block that was given first */
  anyhal_prepared prepared;
  anyhal_pack pack;
  uint64_t asked;
} liar;

typedef struct made_plan {
  liar* of;
  anyhal_plan* honest;
} made_plan;

static int is(const liar* l, const char* lie) { return strcmp(l->lie, lie) == 0; }

/* ---------------------------------------------------------------------------- devices and memory
 */

static void lie_about_kinds(liar* l, anyhal_device_info* info) {
  l->kinds[0] = l->kinds[1] = info->kinds[0];
  info->kinds = l->kinds;
  anyhal_memory_kind* kind = &l->kinds[0];
  if (is(l, "kind_count")) info->kind_count = UINT32_MAX;
  if (is(l, "no_kinds")) info->kind_count = 0;
  if (is(l, "null_kinds")) info->kinds = NULL;
  if (is(l, "wild_kinds")) info->kinds = (const anyhal_memory_kind*)(uintptr_t)16;
  if (is(l, "negative_heap")) kind->heap_bytes = (uint64_t)-1;
  if (is(l, "no_heap")) kind->heap_bytes = 0;
  if (is(l, "odd_alignment")) kind->base_alignment = 3;
  if (is(l, "huge_alignment")) kind->base_alignment = 1u << 31;
  if (is(l, "huge_granularity")) kind->granularity = (uint64_t)1 << 62;
  if (is(l, "kind_flags")) kind->flags |= 1u << 31;
  if (is(l, "kind_size")) kind->size = 8;
}

static anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                                 uint32_t* out_total, anyhal_error* error) {
  liar* l = (liar*)self;
  hostile_deed(AT_LIST);
  const anyhal_status status = l->honest->device_list(l->self, infos, capacity, out_total, error);
  if (status != ANYHAL_STATUS_OK || capacity == 0) return status;
  lie_about_kinds(l, &infos[0]);
  if (is(l, "many_devices")) *out_total = UINT32_MAX;
  if (is(l, "growing_devices")) *out_total = capacity + 1;
  if (is(l, "more_written")) memset(infos + 1, 0xff, (capacity - 1) * sizeof *infos);
  if (is(l, "past_devices")) memset(infos + capacity, 0xff, sizeof *infos / 2);
  if (is(l, "endless_name")) memset(infos[0].name, 'x', sizeof infos[0].name);
  if (is(l, "not_utf8")) memcpy(infos[0].name, "\xff\xfe\x1b[31m \xc3", 9);
  if (is(l, "not_utf8")) memcpy(infos[0].arch, "\xc3\x28\n", 4);
  if (is(l, "info_flags")) infos[0].flags |= 1u << 31;
  if (is(l, "info_size")) infos[0].size = 8;
  if (is(l, "recovery")) infos[0].recovery = 4711;
  if (is(l, "list_status")) return (anyhal_status)4711;
  if (is(l, "two_ids")) {
    infos[1] = infos[0];
    *out_total = 2;
  }
  return ANYHAL_STATUS_OK;
}

static anyhal_status device_open(anyhal_self* self, uint64_t id, const anyhal_setting* options,
                                 uint32_t count, anyhal_device** out_device, uint64_t* out_block,
                                 anyhal_error* error) {
  liar* l = (liar*)self;
  anyhal_device* ignored;
  *out_device = (anyhal_device*)l;
  if (is(l, "endless_error")) memset(error->text, 'z', sizeof error->text);
  if (is(l, "endless_error")) return ANYHAL_STATUS_NOT_FOUND;
  return l->honest->device_open(l->self, id, options, count, &ignored, out_block, error);
}

static anyhal_status memory_alloc(anyhal_device* device, const anyhal_memory_request* request,
                                  anyhal_memory_block* block, anyhal_error* error) {
  liar* l = (liar*)device;
  const anyhal_status status =
      l->honest->memory_alloc((anyhal_device*)l->self, request, block, error);
  if (status != ANYHAL_STATUS_OK) return status;
  if (is(l, "block_0")) block->memory = 0;
  if (is(l, "short_block")) block->bytes = request->bytes / 2;
  if (is(l, "odd_block")) block->host_address += 1;
  if (is(l, "no_address")) block->host_address = 0;
  if (is(l, "end_of_memory")) block->host_address = UINT64_MAX - 255;
  if (is(l, "past_block")) memset(block + 1, 0, 16);
  if (l->first.memory == 0)
    l->first = *block;
  else if (is(l, "same_block"))
    *block = l->first;
  else if (is(l, "overlapping_block"))
    block->host_address = l->first.host_address;
  return ANYHAL_STATUS_OK;
}

/* ------------------------------------------------------------------------------------------- ops
 */

static anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc, anyhal_verdict* v,
                              anyhal_error* error) {
  liar* l = (liar*)device;
  const anyhal_status status = l->honest->op_query((anyhal_device*)l->self, desc, v, error);
  if (is(l, "support")) v->support = 77;
  if (is(l, "verdict_flags")) v->flags |= 1u << 31;
  if (is(l, "reason")) v->support = ANYHAL_SUPPORT_NO, v->reason = -4711;
  if (is(l, "reason_operand")) v->reason_operand = 1 << 30;
  if (is(l, "want_count")) v->want_count = UINT32_MAX;
  if (is(l, "wants")) v->wants[0].layout = 99, v->want_count = 1;
  if (is(l, "wild_wants")) v->wants = (anyhal_want*)(uintptr_t)16, v->want_count = 1;
  if (is(l, "past_verdict")) memset(v + 1, 0, 16);
  if (is(l, "query_status")) return (anyhal_status)-3;
  return status;
}

static void lie_about_plan(liar* l, const anyhal_prepared** out) {
  l->prepared = **out;
  *out = &l->prepared;
  anyhal_prepared* p = &l->prepared;
  if (is(l, "no_record")) *out = NULL;
  if (is(l, "short_record")) p->size = 8;
  if (is(l, "workspace")) p->workspace_bytes = UINT64_MAX - 7;
  if (is(l, "large_workspace")) p->workspace_bytes = (uint64_t)1 << 50;
  if (is(l, "workspace_alignment")) p->workspace_alignment = 3;
  if (is(l, "pack_count")) p->pack_count = UINT32_MAX, p->packs = &l->pack;
  if (is(l, "null_packs")) p->pack_count = 1, p->packs = NULL;
  if (is(l, "pack_operand")) l->pack.operand = 1000, p->pack_count = 1, p->packs = &l->pack;
  if (is(l, "pack_key")) l->pack.key_size = UINT32_MAX, p->pack_count = 1, p->packs = &l->pack;
  if (is(l, "kernel_name")) p->kernel = "\xff\x1b[31m";
}

static anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc,
                                anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                anyhal_error* error) {
  liar* l = (liar*)device;
  if (is(l, "nothing_prepared")) return ANYHAL_STATUS_OK;
  made_plan* plan = malloc(sizeof *plan);
  plan->of = l;
  const anyhal_status status =
      l->honest->op_prepare((anyhal_device*)l->self, desc, &plan->honest, out_prepared, error);
  if (status != ANYHAL_STATUS_OK) return status;
  lie_about_plan(l, out_prepared);
  *out_plan = is(l, "no_plan") ? NULL : (anyhal_plan*)plan;
  return is(l, "prepare_status") ? (anyhal_status)4711 : ANYHAL_STATUS_OK;
}

static anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                                anyhal_error* error) {
  const made_plan* made = (const made_plan*)plan;
  if (is(made->of, "enqueue_status")) return (anyhal_status)4711;
  if (is(made->of, "enqueue_error")) memset(error->text, 'z', sizeof error->text);
  if (is(made->of, "enqueue_error")) return ANYHAL_STATUS_INTERNAL;
  return made->of->honest->op_enqueue(queue, made->honest, call, error);
}

static anyhal_status device_query(anyhal_device* device, uint32_t key, uint64_t argument,
                                  void* value, uint64_t* bytes, anyhal_error* error) {
  liar* l = (liar*)device;
  (void)key, (void)argument, (void)error;
  const uint64_t room = *bytes;
  *bytes = is(l, "huge_fact") ? UINT64_MAX : is(l, "growing_fact") ? room + 1 : 5;
  if (is(l, "past_fact")) memset((char*)value + room, 'x', 8);
  if (is(l, "odd_fact")) memset(value, 0xff, 5);
  return is(l, "fact_status") ? (anyhal_status)4711 : ANYHAL_STATUS_OK;
}

static anyhal_status release_object(anyhal_self* self, uint32_t kind, uint64_t object,
                                    uint32_t flags, anyhal_error* error) {
  liar* l = (liar*)self;
  if (kind == ANYHAL_OBJECT_PLAN)
    object = (uint64_t)(uintptr_t)((made_plan*)(uintptr_t)object)->honest;
  return l->honest->release(l->self, kind, object, flags, error);
}

/* ---------------------------------------------------------------------------------------- queues
 */

struct anyhal_queue {
  liar* of;
  uint64_t signalled;
};

static anyhal_status queue_create(anyhal_device* device, const anyhal_queue_options* options,
                                  anyhal_queue** out_queue, anyhal_error* error) {
  (void)options, (void)error;
  *out_queue = calloc(1, sizeof **out_queue);
  (*out_queue)->of = (liar*)device;
  return ANYHAL_STATUS_OK;
}

static anyhal_status queue_signal(anyhal_queue* queue, uint64_t value, anyhal_error* error) {
  (void)error;
  queue->signalled = value;
  return ANYHAL_STATUS_OK;
}

static anyhal_status host_wait(anyhal_queue* queue, uint64_t value, uint64_t limit_ns,
                               anyhal_queue_state* state, anyhal_error* error) {
  liar* l = queue->of;
  (void)value, (void)limit_ns, (void)error;
  state->completed = queue->signalled;
  if (is(l, "wait_backwards")) state->completed = ++l->asked > 1 ? 0 : queue->signalled;
  if (is(l, "wait_ahead")) state->completed = UINT64_MAX;
  if (is(l, "wait_past")) memset(state + 1, 0, 16);
  if (is(l, "wait_failed")) state->failed_value = UINT64_MAX, state->failed_tag = UINT64_MAX;
  if (is(l, "wait_failed")) return ANYHAL_STATUS_EXECUTION_FAILED;
  return is(l, "wait_status") ? (anyhal_status)4711 : ANYHAL_STATUS_OK;
}

/* ----------------------------------------------------------------------------------------- entry
 */

static void count_up(void* argument, uint32_t index) { ((char*)argument)[index] += 1; }

/* From a thread of its own, while the handshake waits for it. */
static void* call_services(void* argument) {
  const anyhal_services* s = ((liar*)argument)->services;
  char seen[64] = {0};
  uint64_t bytes = sizeof seen;
  for (int i = 0; i < 100; ++i) {
    s->parallel_for(s->context, sizeof seen, count_up, seen);
    s->host_free(s->context, s->host_alloc(s->context, 100, 64));
    s->ledger_note(s->context, "pool", i);
    s->cache_get(s->context, "key", seen, &bytes);
    s->setting(s->context, "lie");
  }
  return NULL;
}

static void call_services_from_threads(liar* l) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, call_services, l);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error) {
  hostile_deed(AT_INIT);
  const anyhal_status status = honest_main(hello, reply, error);
  if (status != ANYHAL_STATUS_OK) return status;
  liar* l = calloc(1, sizeof *l);
  anyhal_table* table = calloc(1, sizeof *table);
  l->honest = reply->table, l->self = reply->self, l->services = hello->services;
  const char* asked = hello->services->setting(hello->services->context, "lie");
  l->lie = asked ? asked : hostile_lie;
  *table = *reply->table;
  table->device_list = device_list, table->device_open = device_open;
  table->memory_alloc = memory_alloc, table->op_query = op_query, table->op_prepare = op_prepare;
  table->op_enqueue = op_enqueue, table->release = release_object;
  if (strstr(l->lie, "fact")) table->device_query = device_query;
  if (strncmp(l->lie, "wait", 4) == 0) {
    reply->flags = 0;
    table->queue_create = queue_create, table->queue_signal = queue_signal;
    table->host_wait = host_wait;
  }
  if (is(l, "no_size")) table->size = 0;
  if (is(l, "null_slot")) table->op_enqueue = NULL;
  if (is(l, "zero_version")) reply->chosen = 0;
  if (is(l, "reply_size")) reply->size = 16;
  if (is(l, "wild_table")) table = (anyhal_table*)(uintptr_t)16;
  if (is(l, "threads_call")) call_services_from_threads(l);
  reply->table = table, reply->self = (anyhal_self*)l;
  return ANYHAL_STATUS_OK;
}
