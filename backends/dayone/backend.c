/* A chip on its first day: the ten core ops and nothing else, in plain C. Copy this folder.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A real chip differs in three places: device_list asks its driver, memory_alloc hands out its own
 * memory, and op_enqueue queues work instead of doing it (then the queue slots are needed, too).
 * Read from the bottom: entry, table, slots, op rows. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "anyhal/fingerprints.h"
#include "dayone.h"

/* ------------------------------------------------------------------------------- op rows, plans */

/* Sets of dtypes: bit d is dtype d, or 64 + d among the formats. */
#define UP_TO(DTYPE) ((UINT64_C(1) << ((DTYPE) + 1)) - 2)
#define NUMBERS UP_TO(ANYHAL_DTYPE_U8)
#define PLAIN UP_TO(ANYHAL_DTYPE_BOOL)
#define STORED UP_TO(ANYHAL_DTYPE_F8_E5M2FNUZ)
#define FORMATS ((UINT64_C(2) << (ANYHAL_DTYPE_Q6_K - 64)) - 1)
#define BYTES ((UINT64_C(1) << ANYHAL_DTYPE_I8) | (UINT64_C(1) << ANYHAL_DTYPE_U8))
#define PRODUCTS (UP_TO(ANYHAL_DTYPE_I32) | BYTES)

#define OP(NUMBER, NAME) ANYHAL_OP_##NUMBER, #NAME, check_##NAME, run_##NAME
static const op_row rows[] = {
    {OP(COPY, copy), 1, 0, 0, STORED, FORMATS},
    {OP(FILL, fill), 1, 0, 0, STORED, 0},
    {OP(CAST, cast), 1, sizeof(anyhal_attrs_cast), 0, STORED, FORMATS},
    {OP(UNARY, unary), 1, sizeof(anyhal_attrs_unary), 0, PLAIN, 0},
    {OP(BINARY, binary), 2, sizeof(anyhal_attrs_binary), 0, PLAIN, 0},
    {OP(WHERE, where), 3, 0, 1, STORED, 0},
    {OP(REDUCE, reduce), 1, sizeof(anyhal_attrs_reduce), 0, PLAIN, 0},
    {OP(MATMUL, matmul), 2, 0, 0, PRODUCTS, 0},
    {OP(GATHER, gather), 2, sizeof(anyhal_attrs_gather), 0, STORED, FORMATS},
    {OP(SCATTER_ADD, scatter_add), 3, sizeof(anyhal_attrs_scatter_add), 0, NUMBERS, 0},
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

anyhal_status fail(anyhal_error* error, anyhal_status status, int32_t reason, const char* format,
                   ...) {
  if (error == NULL || !ANYHAL_HAS(error, anyhal_error, text)) return status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  error->reason = reason;
  error->vendor_code = 0;
  return status;
}

/* Copies one operand. Whatever this build does not know is refused: a flag it cannot read could
 * change what the operand means. */
static refusal read_operand(const anyhal_tensor_desc* from, bool input, tensor* to) {
  const uint32_t known = ANYHAL_TENSOR_CONSTANT | ANYHAL_TENSOR_INLINE | ANYHAL_TENSOR_BINDING;
  if ((from->flags & ~known) != 0 || from->reserved[0] != 0 || from->reserved[1] != 0)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "an operand has a flag that is unknown here");
  if (from->memory_kind != 0)
    return refuse(ANYHAL_REASON_MEMORY_KIND, "this device has memory kind 0 only");
  if (from->rank > RANK_MAX) return refuse(ANYHAL_REASON_RANK, "more than 8 dims");
  if ((from->flags & ANYHAL_TENSOR_INLINE) != 0 && (from->rank != 0 || !input))
    return wrong("only an input without dims can be inline");
  const uint32_t bytes = element_bytes(from->dtype);
  if (bytes == 0) return refuse(ANYHAL_REASON_DTYPE, "an unknown dtype");
  *to = (tensor){from->dtype, from->rank, from->flags, from->alias_of, {0}, {0}};
  bool repeated = false, empty = false;
  for (uint32_t d = 0; d < from->rank; ++d) {
    to->dims[d] = from->dims[d];
    to->strides[d] = from->strides[d];
    if (to->dims[d] < 0 || to->strides[d] < 0)
      return wrong("dims and strides must not be negative");
    repeated |= to->strides[d] == 0 && to->dims[d] > 1;
    empty |= to->dims[d] == 0;
  }
  if (!input && repeated && !empty) return wrong("the output repeats elements (stride 0)");
  const uint32_t block = block_elements(from->dtype), last = from->rank - 1;
  if (block > 1 && (from->rank == 0 || to->dims[last] % block != 0 ||
                    (to->dims[last] > block && to->strides[last] != 1)))
    return refuse(ANYHAL_REASON_LAYOUT, "rows of a block format must be whole and dense");
  return fits;
}

/* In place is fine where element i of the output needs nothing but element i of that input, or, for
 * scatter_add, of the first. The layouts must then be equal. */
static refusal check_alias(const anyhal_plan* plan) {
  const tensor* out = &plan->t[plan->operands - 1];
  if (out->alias_of == 0) return fits;
  const uint32_t op = plan->row->op, i = out->alias_of - 1;
  const bool elementwise = op == ANYHAL_OP_COPY || op == ANYHAL_OP_UNARY ||
                           op == ANYHAL_OP_BINARY || op == ANYHAL_OP_WHERE;
  const bool allowed = elementwise || (op == ANYHAL_OP_SCATTER_ADD && i == 0);
  if (!allowed || i + 1 >= plan->operands || plan->t[i].dtype != out->dtype ||
      !same_dims(&plan->t[i], out) ||
      memcmp(plan->t[i].strides, out->strides, out->rank * sizeof out->strides[0]) != 0)
    return refuse(ANYHAL_REASON_LAYOUT, "the output may not be the same memory as an input");
  return fits;
}

static refusal read_attributes(const anyhal_op_desc* desc, anyhal_plan* plan) {
  union {
    uint32_t words[2]; /* size, flags */
    anyhal_attrs_unary fn;
    anyhal_attrs_reduce reduce;
    anyhal_attrs_gather axis;
    anyhal_attrs_cast overflow;
  } a = {{0, 0}};
  const unsigned char* bytes = desc->attributes;
  for (uint32_t i = plan->row->attributes_size; bytes != NULL && i < desc->attributes_size; ++i) {
    if (bytes[i] != 0 && i >= sizeof a.words)
      return refuse(ANYHAL_REASON_ATTRIBUTE, "an attribute is newer than this backend");
  }
  if (plan->row->attributes_size == 0) return fits;
  if (bytes == NULL && plan->row->op == ANYHAL_OP_CAST) return fits; /* its record came later */
  if (bytes == NULL || desc->attributes_size < plan->row->attributes_size)
    return wrong("the attribute record is missing or too short");
  memcpy(&a, bytes, plan->row->attributes_size);
  /* The records begin alike: size, flags, one number, a reserved word. */
  if (a.words[1] != 0 || a.fn.reserved != 0)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "an attribute flag is unknown here");
  plan->fn = a.fn.fn;
  plan->axes = plan->row->op == ANYHAL_OP_REDUCE ? a.reduce.axes : (uint64_t)(uint32_t)a.axis.axis;
  return fits;
}

/* The one reading of a description: op_query and op_prepare both come here, so they cannot
 * disagree. */
static refusal read_description(const anyhal_op_desc* desc, anyhal_plan* plan) {
  memset(plan, 0, sizeof *plan);
  if (desc->size < sizeof *desc) return wrong("the description is shorter than this contract's");
  for (uint32_t i = 0; i < ROW_COUNT; ++i) {
    if (rows[i].op == desc->op) plan->row = &rows[i];
  }
  if (plan->row == NULL)
    return refuse(ANYHAL_REASON_OP, "a chip on its first day has the ten core ops only");
  if (desc->flags != 0 || desc->reserved32 != 0 || desc->reserved[0] != 0 || desc->reserved[1] != 0)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "a flag of the op is unknown here");
  for (int i = 0; i < 6; ++i) {
    if (desc->numerics[i] != 0 &&
        !(i == ANYHAL_NUMERICS_DETERMINISM && desc->numerics[i] == ANYHAL_DETERMINISM_NONE))
      return refuse(ANYHAL_REASON_NUMERICS,
                    "results here are strict and the same from run to run, no more");
  }
  if (desc->input_count != plan->row->inputs || desc->operand_count != plan->row->inputs + 1 ||
      desc->operands->size < sizeof(anyhal_tensor_desc))
    return wrong("the number of operands is wrong");
  plan->operands = desc->operand_count;
  for (uint32_t i = 0; i < desc->operand_count; ++i) {
    /* Records may be longer than this build knows: the first one's size is their distance. */
    const char* at = (const char*)desc->operands + (size_t)i * desc->operands->size;
    refusal bad = read_operand((const anyhal_tensor_desc*)at, i < desc->input_count, &plan->t[i]);
    bad.operand = (int32_t)i;
    if (bad.status != ANYHAL_STATUS_OK) return bad;
  }
  const uint32_t dtype = plan->t[plan->row->main].dtype;
  const uint64_t set = dtype < 64 ? plan->row->dtypes : plan->row->formats;
  if ((set >> dtype % 64 & 1) == 0) return bad_dtype();
  refusal bad = read_attributes(desc, plan);
  if (bad.status == ANYHAL_STATUS_OK) bad = plan->row->check(plan);
  if (bad.status == ANYHAL_STATUS_OK) bad = check_alias(plan);
  if (bad.status != ANYHAL_STATUS_OK) return bad;
  plan->prepared.size = sizeof plan->prepared;
  plan->prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
  plan->prepared.workspace_alignment = 64;
  if (desc->op == ANYHAL_OP_SCATTER_ADD)
    plan->prepared.workspace_bytes = scatter_add_workspace(plan);
  if (desc->workspace_limit != 0 && plan->prepared.workspace_bytes > desc->workspace_limit)
    return refuse(ANYHAL_REASON_WORKSPACE, "this needs more workspace than the call allows");
  plan->prepared.kernel = plan->row->name;
  plan->prepared.library = "";
  return fits;
}

/* The last part of a message. A hint must help: a cast mends a dtype and no layout. */
static const char* what_to_do(refusal bad) {
  if (bad.status == ANYHAL_STATUS_INVALID_ARGUMENT) return "correct the call";
  switch (bad.reason) {
    case ANYHAL_REASON_OP:
      return "allow fallback='decompose', which runs any op through those ten";
    case ANYHAL_REASON_DTYPE:
      return "cast to a dtype that the device's list has for this op";
    case ANYHAL_REASON_LAYOUT:
      return "pass a dense copy, and an output of its own";
    case ANYHAL_REASON_RANK:
      return "reshape to fewer dims";
    case ANYHAL_REASON_NUMERICS:
      return "ask for less, strict numbers that are the same from run to run";
    case ANYHAL_REASON_MEMORY_KIND:
      return "use kind 0";
    case ANYHAL_REASON_WORKSPACE:
      return "raise the limit";
    default:
      return "rebuild the backend with the header of this core";
  }
}

static anyhal_status report(refusal bad, anyhal_error* error) {
  char which[24] = "";
  if (bad.operand >= 0) snprintf(which, sizeof which, " (operand %d)", (int)bad.operand);
  return fail(error, bad.status, bad.reason, "%s%s; %s", bad.text, which, what_to_do(bad));
}

/* ---------------------------------------------------------------------------------------- slots */

struct anyhal_self {
  anyhal_memory_kind kind;
};

static anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                                 uint32_t* out_total, anyhal_error* error) {
  (void)error;
  *out_total = 1;
  if (capacity == 0) return ANYHAL_STATUS_OK;
  anyhal_device_info info;
  struct utsname host;
  memset(&info, 0, sizeof info);
  info.flags = ANYHAL_DEVICE_UNIFIED;
  snprintf(info.name, sizeof info.name, "a chip on its first day");
  snprintf(info.arch, sizeof info.arch, "%.31s", uname(&host) == 0 ? host.machine : "unknown");
  info.kinds = &self->kind;
  info.kind_count = 1;
  info.preferred_alignment = 64;
  info.rank_max = RANK_MAX;
  info.recovery = ANYHAL_RECOVERY_REOPEN;
  /* The caller's record may be older and shorter: write what it has room for. */
  info.size = infos->size;
  memcpy(infos, &info, infos->size < sizeof info ? infos->size : sizeof info);
  return ANYHAL_STATUS_OK;
}

static anyhal_status device_open(anyhal_self* self, uint64_t device_id,
                                 const anyhal_setting* options, uint32_t option_count,
                                 anyhal_device** out_device, uint64_t* out_address_block,
                                 anyhal_error* error) {
  (void)options, (void)option_count;
  if (device_id != 0)
    return fail(error, ANYHAL_STATUS_NOT_FOUND, 0,
                "there is no device %llu, only 0; list devices first",
                (unsigned long long)device_id);
  /* One device without state of its own: the instance stands for it. */
  *out_device = (anyhal_device*)self;
  *out_address_block = 1; /* {1, pointer} is any host memory; other handles are block addresses */
  return ANYHAL_STATUS_OK;
}

static anyhal_status memory_alloc(anyhal_device* device, const anyhal_memory_request* request,
                                  anyhal_memory_block* out_block, anyhal_error* error) {
  (void)device;
  const uint64_t alignment = request->alignment > 64 ? request->alignment : 64;
  const uint64_t bytes = (request->bytes / alignment + 1) * alignment;
  if (request->kind != 0 || request->flags != 0)
    return fail(error, ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                "kind %u is unknown; use kind 0", request->kind);
  void* memory = bytes < request->bytes ? NULL : aligned_alloc(alignment, bytes);
  if (memory == NULL)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "the host has no block of %llu bytes; free arrays",
                (unsigned long long)request->bytes);
  out_block->memory = out_block->device_address = out_block->host_address = (uintptr_t)memory;
  out_block->bytes = request->bytes;
  return ANYHAL_STATUS_OK;
}

static anyhal_status device_query(anyhal_device* device, uint32_t key, uint64_t argument,
                                  void* value, uint64_t* bytes, anyhal_error* error) {
  (void)device, (void)argument;
  if (key != ANYHAL_QUERY_CAPABILITIES)
    return fail(error, ANYHAL_STATUS_NOT_FOUND, 0,
                "only the capabilities are known here; do without");
  const uint64_t room = *bytes;
  *bytes = ROW_COUNT * sizeof(anyhal_capability);
  if (value == NULL || room < *bytes)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "there is too little room; ask again");
  anyhal_capability* to = value;
  for (uint32_t i = 0; i < ROW_COUNT; ++i)
    to[i] = (anyhal_capability){
        .op = rows[i].op,
        .flags = ANYHAL_CAPABILITY_STRIDED | ANYHAL_CAPABILITY_CAPTURE_SAFE,
        .dtypes = {rows[i].dtypes, rows[i].formats},
        .rank_max = RANK_MAX,
    };
  return ANYHAL_STATUS_OK;
}

static anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc,
                              anyhal_verdict* verdict, anyhal_error* error) {
  (void)device;
  anyhal_plan plan;
  const refusal bad = read_description(desc, &plan);
  if (bad.status == ANYHAL_STATUS_INVALID_ARGUMENT) return report(bad, error);
  verdict->support = bad.status == ANYHAL_STATUS_OK ? ANYHAL_SUPPORT_YES : ANYHAL_SUPPORT_NO;
  verdict->reason = bad.reason;
  verdict->reason_operand = bad.operand;
  verdict->flags = ANYHAL_VERDICT_CAPTURE_SAFE | ANYHAL_VERDICT_DETERMINISTIC;
  verdict->workspace_bytes = plan.prepared.workspace_bytes;
  if (bad.status != ANYHAL_STATUS_OK) report(bad, error);
  return ANYHAL_STATUS_OK; /* "no" is an answer, not an error */
}

static anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc,
                                anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                anyhal_error* error) {
  (void)device;
  anyhal_plan* plan = malloc(sizeof *plan);
  if (plan == NULL)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0, "the host is out of memory; free arrays");
  const refusal bad = read_description(desc, plan);
  if (bad.status != ANYHAL_STATUS_OK) {
    anyhal_status status = report(bad, error);
    free(plan);
    return status;
  }
  *out_plan = plan;
  *out_prepared = &plan->prepared;
  return ANYHAL_STATUS_OK;
}

/* Finding an operand is one addition: the handle of a block is its address. */
static char* resolve(anyhal_ref ref) {
  return (char*)(uintptr_t)((ref.memory == 1 ? 0 : ref.memory) + ref.offset);
}

static anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                                anyhal_error* error) {
  (void)queue;
  if (call->operand_count != plan->operands)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "%u operands for a plan of %u; prepare a plan for this call", call->operand_count,
                plan->operands);
  char* data[OPERANDS_MAX];
  for (uint32_t i = 0; i < plan->operands; ++i) {
    const bool is_value = (plan->t[i].flags & ANYHAL_TENSOR_INLINE) != 0;
    data[i] = is_value ? (char*)&call->operands[i] : resolve(call->operands[i]);
  }
  return plan->row->run(plan, data, resolve(call->workspace), error);
}

static anyhal_status release(anyhal_self* self, uint32_t object_kind, uint64_t object,
                             uint32_t flags, anyhal_error* error) {
  (void)self, (void)flags;
  switch (object_kind) {
    case ANYHAL_OBJECT_DEVICE:
      return ANYHAL_STATUS_OK; /* the instance, which stays */
    case ANYHAL_OBJECT_MEMORY:
    case ANYHAL_OBJECT_PLAN:
      free((void*)(uintptr_t)object);
      return ANYHAL_STATUS_OK;
    default:
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "it makes no objects of kind %u; check the kind", object_kind);
  }
}

/* -------------------------------------------------------------------------------- table, entry */

/* These slots are all that a synchronous chip with host memory needs; the core has the rest. */
static const anyhal_table table = {
    .size = sizeof(anyhal_table),
    .device_list = device_list,
    .device_open = device_open,
    .memory_alloc = memory_alloc,
    .op_query = op_query,
    .op_prepare = op_prepare,
    .op_enqueue = op_enqueue,
    .release = release,
    .device_query = device_query, /* what it declares; the seven others do without */
};

ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error) {
  reply->abi_min = ANYHAL_ABI_FLOOR, reply->abi_max = ANYHAL_ABI_VERSION;
  reply->chosen = ANYHAL_CHOOSE(hello);
  if (reply->chosen == 0)
    return fail(error, ANYHAL_STATUS_ABI_MISMATCH, 0,
                "it is built for contract %u.%u and the core loads %u.%u to %u.%u; "
                "upgrade %s",
                ANYHAL_ABI_MAJOR, ANYHAL_ABI_MINOR, hello->abi_min >> 16, hello->abi_min & 0xffff,
                hello->abi_max >> 16, hello->abi_max & 0xffff,
                ANYHAL_ABI_VERSION < hello->abi_min ? "the backend" : "the core");
  if (hello->flags != 0 || hello->reserved != 0)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the core greets with a flag or word that is unknown here; upgrade the backend");
  anyhal_self* self = calloc(1, sizeof *self);
  if (self == NULL)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "the host is out of memory; free some and try again");
  self->kind.size = sizeof self->kind;
  self->kind.flags = ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_HOST_VISIBLE |
                     ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS;
  self->kind.offset_alignment = 1;
  self->kind.base_alignment = 64;
  self->kind.granularity = 1;
  self->kind.heap_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  reply->flags = ANYHAL_REPLY_SYNCHRONOUS;
  reply->registry_version = ANYHAL_REGISTRY_VERSION;
  reply->fingerprints = anyhal_fingerprints;
  reply->fingerprint_count = ANYHAL_FINGERPRINT_COUNT;
  reply->table = &table;
  reply->self = self;
  reply->build_id = "dayone 0.1, " __VERSION__;
  return ANYHAL_STATUS_OK;
}
