/* A backend of a few lines, built from headers of several ages: it answers with what it was asked,
 * so that a field read at the wrong place shows. What is newer than its floor it uses guarded.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "anyhal/fingerprints.h"
#include "anyhal/ops.h"

#define HAS_1_1 (ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 1))
#define HAS_1_2 (ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 2))
#ifdef SLEEPY /* forgets the slot that 2.0 requires */
#define HAS_2_0 0
#else
#define HAS_2_0 (ANYHAL_ABI_VERSION >= ANYHAL_ABI(2, 0))
#endif
#define ABSENT 999 /* what it says where the core is too old to have said more */

static const anyhal_services* services;
static anyhal_memory_kind kinds[2];

static anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                                 uint32_t* out_total, anyhal_error* error) {
  (void)self, (void)error;
  *out_total = 3;
  for (uint32_t k = 0; k < 2; ++k) {
    kinds[k].size = sizeof kinds[k];
    kinds[k].flags = ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT;
    kinds[k].offset_alignment = kinds[k].base_alignment = 1;
    kinds[k].granularity = 1;
    kinds[k].heap_bytes = 1000 + k;
#if HAS_1_1
    kinds[k].ANYHAL_OWN(1_1, bandwidth) = 70 + k;
#endif
  }
  for (uint32_t i = 0; i < 3 && i < capacity; ++i) {
    infos[i].id = 10 + i;
    snprintf(infos[i].name, sizeof infos[i].name, "aged %u", (unsigned)i);
    infos[i].kinds = kinds;
    infos[i].kind_count = 2;
    infos[i].timestamp_hz = 100 + i;
#if HAS_1_1
    ANYHAL_WRITE(&infos[i], anyhal_device_info, 1_1, core_count, 7 + i);
#endif
  }
  return ANYHAL_STATUS_OK;
}

static anyhal_status device_open(anyhal_self* self, uint64_t id, const anyhal_setting* options,
                                 uint32_t option_count, anyhal_device** out_device,
                                 uint64_t* out_address_block, anyhal_error* error) {
  (void)id, (void)options, (void)option_count, (void)error;
  *out_device = (anyhal_device*)self;
  *out_address_block = 0;
  return ANYHAL_STATUS_OK;
}

static anyhal_status memory_alloc(anyhal_device* device, const anyhal_memory_request* request,
                                  anyhal_memory_block* out_block, anyhal_error* error) {
  (void)device, (void)error;
  out_block->memory = 5;
  out_block->bytes = request->bytes;
#if HAS_1_1
  ANYHAL_WRITE(out_block, anyhal_memory_block, 1_1, physical, 55);
#endif
  return ANYHAL_STATUS_OK;
}

/* The numbers of a verdict say what was read: where each operand's dtype is, and the newer words.
 */
static anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc,
                              anyhal_verdict* verdict, anyhal_error* error) {
  (void)device, (void)error;
  verdict->support = ANYHAL_SUPPORT_YES;
  for (uint32_t i = 0; i < desc->operand_count; ++i)
    verdict->workspace_bytes = verdict->workspace_bytes * 100 + desc->operands[i].dtype;
  verdict->hidden_bytes = verdict->baked_bytes = verdict->cost_ns = ABSENT;
#if HAS_1_1
  const anyhal_tensor_desc* last = &desc->operands[desc->operand_count - 1];
  verdict->hidden_bytes = ANYHAL_READ(desc, anyhal_op_desc, 1_1, deadline_ns, ABSENT);
  verdict->baked_bytes = ANYHAL_READ(last, anyhal_tensor_desc, 1_1, grain, ABSENT);
  uint64_t (*clock_ns)(void*) = ANYHAL_READ(services, anyhal_services, 1_1, clock_ns, NULL);
  if (clock_ns != NULL) verdict->cost_ns = clock_ns(services->context);
  ANYHAL_WRITE(verdict, anyhal_verdict, 1_1, energy, 42);
#endif
#if HAS_1_2
  ANYHAL_WRITE(verdict, anyhal_verdict, 1_2, heat, 43);
#endif
  return ANYHAL_STATUS_OK;
}

static anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc,
                                anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                anyhal_error* error) {
  static anyhal_prepared prepared;
  (void)desc, (void)error;
  prepared.size = sizeof prepared;
  prepared.workspace_bytes = 64;
  prepared.kernel = "aged";
#if HAS_1_1
  prepared.ANYHAL_OWN(1_1, code_bytes) = 4096;
#endif
  *out_plan = (anyhal_plan*)device;
  *out_prepared = &prepared;
  return ANYHAL_STATUS_OK;
}

static anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                                anyhal_error* error) {
  (void)queue, (void)plan, (void)call, (void)error;
  return ANYHAL_STATUS_OK;
}

static anyhal_status release_object(anyhal_self* self, uint32_t object_kind, uint64_t object,
                                    uint32_t flags, anyhal_error* error) {
  (void)self, (void)object_kind, (void)object, (void)flags, (void)error;
  return ANYHAL_STATUS_OK;
}

#if HAS_1_1
static anyhal_status number_26(anyhal_device* device, uint64_t* out_number, anyhal_error* error) {
  (void)device, (void)error;
  *out_number = 26;
  return ANYHAL_STATUS_OK;
}
#endif
#if HAS_2_0
static anyhal_status number_28(anyhal_device* device, uint64_t* out_number, anyhal_error* error) {
  (void)device, (void)error;
  *out_number = 28;
  return ANYHAL_STATUS_OK;
}
#endif

/* Slot 27 stays empty: an optional one that nobody wrote. */
static const anyhal_table table = {
    .size = sizeof table,
    .device_list = device_list,
    .device_open = device_open,
    .memory_alloc = memory_alloc,
    .op_query = op_query,
    .op_prepare = op_prepare,
    .op_enqueue = op_enqueue,
    .release = release_object,
#if HAS_1_1
    .ANYHAL_OWN(1_1, device_rest) = number_26,
#endif
#if HAS_2_0
    .ANYHAL_OWN(2_0, device_wake) = number_28,
#endif
};

/* With UNSTATED its table is longer than its fingerprints say. */
static struct {
  anyhal_table table;
  uint64_t garbage;
} longer;

ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error) {
  services = hello->services;
#ifdef GREEDY /* is sure of itself: never mind what the core knows */
  reply->chosen = ANYHAL_ABI_VERSION;
#else
  reply->chosen = ANYHAL_CHOOSE(hello);
#endif
  reply->abi_min = ANYHAL_ABI_FLOOR;
  reply->abi_max = ANYHAL_ABI_VERSION;
  if (reply->chosen == 0) {
    services->log(services->context, 2, "this core is not one that I know");
    return services->error_text(services->context, error, ANYHAL_STATUS_ABI_MISMATCH,
                                ANYHAL_REASON_NONE, "it does not know this core");
  }
  reply->flags = ANYHAL_REPLY_SYNCHRONOUS;
  reply->registry_version = ANYHAL_REGISTRY_VERSION;
  longer.table = table;
  longer.garbage = 1;
#ifdef UNSTATED
  longer.table.size = sizeof longer;
#endif
  reply->table = &longer.table;
  reply->self = (anyhal_self*)&kinds;
  reply->build_id = "aged";
  reply->fingerprints = anyhal_fingerprints;
  reply->fingerprint_count = ANYHAL_FINGERPRINT_COUNT;
  return ANYHAL_STATUS_OK;
}
