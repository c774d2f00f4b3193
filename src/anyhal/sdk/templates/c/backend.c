/* mychip: the smallest real backend. Four ops in f32, on the host, done when the call returns.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Read from the bottom up: entry, table, slots, then the reading of a description, then the ops. */
#include <anyhal/backend.h>
#include <anyhal/fingerprints.h>
#include <anyhal/ops.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANK_MAX 8
#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

typedef struct tensor {
  uint32_t rank, flags, alias_of;
  int64_t dims[RANK_MAX], strides[RANK_MAX]; /* in elements */
} tensor;

typedef struct row {
  uint32_t op, inputs;
  const char* name;
  const char* (*refused)(const anyhal_plan* plan); /* NULL = it fits */
  void (*run)(const anyhal_plan* plan, float* const* data);
} row;

struct anyhal_plan {
  const row* row;
  int32_t fn; /* of binary */
  tensor t[3];
  anyhal_prepared prepared;
};

__attribute__((format(printf, 4, 5))) static anyhal_status fail(anyhal_error* error,
                                                                anyhal_status status,
                                                                int32_t reason, const char* format,
                                                                ...) {
  if (error == NULL) return status;
  va_list arguments;
  va_start(arguments, format);
  error->reason = reason;
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  return status;
}

/* ------------------------------------------------------------------------------------------ ops */

static bool same_dims(const tensor* a, const tensor* b) {
  return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0;
}

static bool same_layout(const tensor* a, const tensor* b) {
  return same_dims(a, b) && memcmp(a->strides, b->strides, a->rank * sizeof a->strides[0]) == 0;
}

/* Calls `each` with the offsets of three operands at every position of `shape`. */
typedef void (*step)(const anyhal_plan* plan, float* const* data, const int64_t at[3]);
static void walk(const anyhal_plan* plan, uint32_t operands, uint32_t rank, const tensor* shape,
                 float* const* data, step each) {
  int64_t index[RANK_MAX] = {0}, at[3] = {0};
  for (uint32_t d = 0; d < rank; ++d)
    if (shape->dims[d] == 0) return;
  for (;;) {
    each(plan, data, at);
    uint32_t d = rank;
    while (d-- > 0) {
      for (uint32_t k = 0; k < operands; ++k) at[k] += plan->t[k].strides[d];
      if (++index[d] < shape->dims[d]) break;
      for (uint32_t k = 0; k < operands; ++k) at[k] -= plan->t[k].strides[d] * shape->dims[d];
      index[d] = 0;
    }
    if (d == UINT32_MAX) return;
  }
}

static const char* copy_refused(const anyhal_plan* plan) {
  return same_dims(&plan->t[0], &plan->t[1]) ? NULL : "input and output must have the same dims";
}
static void copy_step(const anyhal_plan* plan, float* const* data, const int64_t at[3]) {
  (void)plan;
  data[1][at[1]] = data[0][at[0]];
}
static void copy_run(const anyhal_plan* plan, float* const* data) {
  walk(plan, 2, plan->t[1].rank, &plan->t[1], data, copy_step);
}

/* A fill is a copy of one value, whose strides are all 0. */
static const char* fill_refused(const anyhal_plan* plan) {
  return plan->t[0].rank == 0 ? NULL : "the value must be 0-d";
}

static const char* binary_refused(const anyhal_plan* plan) {
  const tensor* out = &plan->t[2];
  if (!same_dims(&plan->t[0], out) || !same_dims(&plan->t[1], out))
    return "inputs and output must have the same dims";
  const bool known = plan->fn >= ANYHAL_BINARY_FN_ADD && plan->fn <= ANYHAL_BINARY_FN_DIVIDE;
  return known ? NULL : "of the functions, add, subtract, multiply and divide run here";
}
static void binary_step(const anyhal_plan* plan, float* const* data, const int64_t at[3]) {
  const float a = data[0][at[0]], b = data[1][at[1]];
  float* out = data[2] + at[2];
  switch (plan->fn) {
    case ANYHAL_BINARY_FN_ADD:
      *out = a + b;
      break;
    case ANYHAL_BINARY_FN_SUBTRACT:
      *out = a - b;
      break;
    case ANYHAL_BINARY_FN_MULTIPLY:
      *out = a * b;
      break;
    default:
      *out = a / b;
  }
}
static void binary_run(const anyhal_plan* plan, float* const* data) {
  walk(plan, 3, plan->t[2].rank, &plan->t[2], data, binary_step);
}

/* a [..., M, K] x b [..., K, N] -> out [..., M, N]; transposes and broadcasts are strides. */
static const char* matmul_refused(const anyhal_plan* plan) {
  const tensor *a = &plan->t[0], *b = &plan->t[1], *out = &plan->t[2];
  const uint32_t r = out->rank;
  if (r < 2 || a->rank != r || b->rank != r) return "operands must have one rank of at least 2";
  bool fits = a->dims[r - 1] == b->dims[r - 2] && a->dims[r - 2] == out->dims[r - 2] &&
              b->dims[r - 1] == out->dims[r - 1];
  for (uint32_t d = 0; d + 2 < r; ++d)
    fits = fits && a->dims[d] == out->dims[d] && b->dims[d] == out->dims[d];
  return fits ? NULL : "the dims of the product do not agree";
}
static void matmul_step(const anyhal_plan* plan, float* const* data, const int64_t at[3]) {
  const tensor *a = &plan->t[0], *b = &plan->t[1], *out = &plan->t[2];
  const uint32_t r = out->rank;
  for (int64_t m = 0; m < out->dims[r - 2]; ++m)
    for (int64_t n = 0; n < out->dims[r - 1]; ++n) {
      const float* x = data[0] + at[0] + m * a->strides[r - 2];
      const float* y = data[1] + at[1] + n * b->strides[r - 1];
      double sum = 0;
      for (int64_t k = 0; k < a->dims[r - 1]; ++k)
        sum += (double)x[k * a->strides[r - 1]] * y[k * b->strides[r - 2]];
      data[2][at[2] + m * out->strides[r - 2] + n * out->strides[r - 1]] = (float)sum;
    }
}
static void matmul_run(const anyhal_plan* plan, float* const* data) {
  walk(plan, 3, plan->t[2].rank - 2, &plan->t[2], data, matmul_step);
}

/* The one list: it answers op_query and the capabilities, and it chooses what runs. */
static const row rows[] = {
    {ANYHAL_OP_COPY, 1, "copy", copy_refused, copy_run},
    {ANYHAL_OP_FILL, 1, "fill", fill_refused, copy_run},
    {ANYHAL_OP_BINARY, 2, "binary", binary_refused, binary_run},
    {ANYHAL_OP_MATMUL, 2, "matmul", matmul_refused, matmul_run},
};

/* ------------------------------------------------------------------------ reading a description */

static anyhal_status no(anyhal_error* error, int32_t reason, const char* why) {
  return fail(error, ANYHAL_STATUS_UNSUPPORTED, reason, "%s; use another device", why);
}

static anyhal_status read_operand(const anyhal_tensor_desc* from, bool input, tensor* to,
                                  anyhal_error* error) {
  const uint32_t known = ANYHAL_TENSOR_CONSTANT | ANYHAL_TENSOR_INLINE | ANYHAL_TENSOR_BINDING;
  if ((from->flags & ~known) != 0 || from->reserved[0] != 0 || from->reserved[1] != 0)
    return no(error, ANYHAL_REASON_ATTRIBUTE, "an operand is absent, or has a flag unknown here");
  if (from->dtype != ANYHAL_DTYPE_F32) return no(error, ANYHAL_REASON_DTYPE, "only f32 runs here");
  if (from->memory_kind != 0)
    return no(error, ANYHAL_REASON_MEMORY_KIND, "there is memory kind 0 only");
  if (from->rank > RANK_MAX) return no(error, ANYHAL_REASON_RANK, "there are at most 8 dims");
  *to = (tensor){from->rank, from->flags, from->alias_of, {0}, {0}};
  bool repeated = false, empty = false;
  for (uint32_t d = 0; d < from->rank; ++d) {
    to->dims[d] = from->dims[d], to->strides[d] = from->strides[d];
    repeated |= to->strides[d] == 0 && to->dims[d] > 1;
    empty |= to->dims[d] == 0;
  }
  if (!input && repeated && !empty)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the output repeats elements; pass one that does not");
  return ANYHAL_STATUS_OK;
}

static anyhal_status read_attributes(const anyhal_op_desc* desc, anyhal_plan* plan,
                                     anyhal_error* error) {
  anyhal_attrs_binary known = {0};
  const unsigned char* bytes = desc->attributes;
  const uint32_t size = desc->op == ANYHAL_OP_BINARY ? sizeof known : 2 * sizeof(uint32_t);
  for (uint32_t i = size; bytes != NULL && i < desc->attributes_size; ++i)
    if (bytes[i] != 0)
      return no(error, ANYHAL_REASON_ATTRIBUTE, "an attribute is newer than this backend");
  if (desc->op != ANYHAL_OP_BINARY) return ANYHAL_STATUS_OK;
  if (bytes == NULL || desc->attributes_size < sizeof known)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "the attributes are cut off; send all");
  memcpy(&known, bytes, sizeof known);
  if (known.flags != 0 || known.reserved != 0)
    return no(error, ANYHAL_REASON_ATTRIBUTE, "an attribute flag is unknown here");
  plan->fn = known.fn;
  return ANYHAL_STATUS_OK;
}

/* op_query and op_prepare both come here, so that they cannot disagree. */
static anyhal_status read_description(const anyhal_op_desc* desc, anyhal_plan* plan,
                                      anyhal_error* error) {
  memset(plan, 0, sizeof *plan);
  for (uint32_t i = 0; i < COUNT(rows); ++i)
    if (rows[i].op == desc->op) plan->row = &rows[i];
  if (plan->row == NULL) return no(error, ANYHAL_REASON_OP, "this op is not among those it has");
  if (desc->flags != 0 || desc->reserved32 != 0 || desc->reserved[0] != 0 || desc->reserved[1] != 0)
    return no(error, ANYHAL_REASON_ATTRIBUTE, "a flag of the op is unknown here");
  for (int i = 0; i < 6; ++i)
    if (desc->numerics[i] != 0 &&
        !(i == ANYHAL_NUMERICS_DETERMINISM && desc->numerics[i] == ANYHAL_DETERMINISM_NONE))
      return no(error, ANYHAL_REASON_NUMERICS, "results are strict and the same from run to run");
  if (desc->input_count != plan->row->inputs || desc->operand_count != plan->row->inputs + 1)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "the number of operands is wrong");
  for (uint32_t i = 0; i < desc->operand_count; ++i) {
    /* Records may be longer than this build knows: the first one's size is their distance. */
    const char* at = (const char*)desc->operands + (size_t)i * desc->operands->size;
    const anyhal_status bad =
        read_operand((const anyhal_tensor_desc*)at, i < desc->input_count, &plan->t[i], error);
    if (bad != ANYHAL_STATUS_OK) return bad;
  }
  const anyhal_status bad = read_attributes(desc, plan, error);
  if (bad != ANYHAL_STATUS_OK) return bad;
  const tensor* out = &plan->t[desc->input_count];
  const bool in_place = out->alias_of != 0 && desc->op == ANYHAL_OP_BINARY && out->alias_of <= 2 &&
                        same_layout(&plan->t[out->alias_of - 1], out);
  if (out->alias_of != 0 && !in_place)
    return no(error, ANYHAL_REASON_LAYOUT, "the output may not be the memory of this input");
  const char* why = plan->row->refused(plan);
  if (why != NULL) return no(error, ANYHAL_REASON_ATTRIBUTE, why);
  plan->prepared.size = sizeof plan->prepared;
  plan->prepared.workspace_alignment = 64;
  plan->prepared.kernel = plan->row->name;
  plan->prepared.library = "";
  return ANYHAL_STATUS_OK;
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
  anyhal_device_info info = {.size = infos->size,
                             .flags = ANYHAL_DEVICE_UNIFIED,
                             .name = "mychip",
                             .arch = "mychip1",
                             .kinds = &self->kind,
                             .kind_count = 1,
                             .preferred_alignment = 64,
                             .rank_max = RANK_MAX,
                             .recovery = ANYHAL_RECOVERY_REOPEN};
  /* The caller's record may be older and shorter: write what it has room for. */
  memcpy(infos, &info, infos->size < sizeof info ? infos->size : sizeof info);
  return ANYHAL_STATUS_OK;
}

static anyhal_status device_open(anyhal_self* self, uint64_t device_id,
                                 const anyhal_setting* options, uint32_t option_count,
                                 anyhal_device** out_device, uint64_t* out_address_block,
                                 anyhal_error* error) {
  (void)options, (void)option_count;
  if (device_id != 0)
    return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "there is device 0 only; list devices first");
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
    return no(error, ANYHAL_REASON_MEMORY_KIND, "there is memory kind 0 only");
  void* memory = bytes < request->bytes ? NULL : aligned_alloc(alignment, bytes);
  if (memory == NULL)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0, "the host has no such block; free arrays");
  out_block->memory = out_block->device_address = out_block->host_address = (uintptr_t)memory;
  out_block->bytes = request->bytes;
  return ANYHAL_STATUS_OK;
}

static anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc,
                              anyhal_verdict* verdict, anyhal_error* error) {
  (void)device;
  anyhal_plan plan;
  anyhal_error own = {.size = sizeof own};
  const anyhal_status bad = read_description(desc, &plan, &own);
  if (error != NULL && bad != ANYHAL_STATUS_OK)
    fail(error, bad, own.reason, "%s", own.text); /* the words; a "no" is still an answer */
  if (bad != ANYHAL_STATUS_OK && bad != ANYHAL_STATUS_UNSUPPORTED) return bad;
  verdict->support = bad == ANYHAL_STATUS_OK ? ANYHAL_SUPPORT_YES : ANYHAL_SUPPORT_NO;
  verdict->reason = bad == ANYHAL_STATUS_OK ? ANYHAL_REASON_NONE : own.reason;
  verdict->reason_operand = -1;
  verdict->flags = ANYHAL_VERDICT_DETERMINISTIC;
  return ANYHAL_STATUS_OK;
}

static anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc,
                                anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                anyhal_error* error) {
  (void)device;
  anyhal_plan* plan = malloc(sizeof *plan);
  if (plan == NULL)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0, "the host is out of memory; free arrays");
  const anyhal_status bad = read_description(desc, plan, error);
  if (bad != ANYHAL_STATUS_OK) {
    free(plan);
    return bad;
  }
  *out_plan = plan;
  *out_prepared = &plan->prepared;
  return ANYHAL_STATUS_OK;
}

static anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                                anyhal_error* error) {
  (void)queue;
  float* data[3];
  if (call->operand_count != plan->row->inputs + 1)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "the number of operands is wrong");
  for (uint32_t i = 0; i < call->operand_count; ++i) {
    const anyhal_ref ref = call->operands[i];
    const bool is_value = (plan->t[i].flags & ANYHAL_TENSOR_INLINE) != 0;
    data[i] = is_value ? (float*)(uintptr_t)&call->operands[i]
                       : (float*)(uintptr_t)((ref.memory == 1 ? 0 : ref.memory) + ref.offset);
  }
  plan->row->run(plan, data);
  return ANYHAL_STATUS_OK;
}

static anyhal_status release(anyhal_self* self, uint32_t object_kind, uint64_t object,
                             uint32_t flags, anyhal_error* error) {
  (void)self, (void)flags;
  if (object_kind == ANYHAL_OBJECT_DEVICE) return ANYHAL_STATUS_OK; /* the instance, which stays */
  if (object_kind != ANYHAL_OBJECT_MEMORY && object_kind != ANYHAL_OBJECT_PLAN)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "it makes no such object");
  free((void*)(uintptr_t)object);
  return ANYHAL_STATUS_OK;
}

static anyhal_status device_query(anyhal_device* device, uint32_t key, uint64_t argument,
                                  void* value, uint64_t* bytes, anyhal_error* error) {
  (void)device, (void)argument;
  if (key != ANYHAL_QUERY_CAPABILITIES)
    return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "only the capabilities are known here");
  const uint64_t room = *bytes;
  *bytes = COUNT(rows) * sizeof(anyhal_capability);
  if (value == NULL || room < *bytes)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "there is too little room; ask again");
  anyhal_capability* out = value;
  for (uint32_t i = 0; i < COUNT(rows); ++i)
    out[i] = (anyhal_capability){.op = rows[i].op,
                                 .flags = ANYHAL_CAPABILITY_STRIDED,
                                 .dtypes = {UINT64_C(1) << ANYHAL_DTYPE_F32},
                                 .rank_max = RANK_MAX};
  return ANYHAL_STATUS_OK;
}

/* -------------------------------------------------------------------------------- table, entry */

static const anyhal_table table = {
    .size = sizeof(anyhal_table), /* slots that stay NULL are unsupported */
    .device_list = device_list,
    .device_open = device_open,
    .memory_alloc = memory_alloc,
    .op_query = op_query,
    .op_prepare = op_prepare,
    .op_enqueue = op_enqueue,
    .release = release,
    .device_query = device_query,
};

ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error) {
  if (ANYHAL_ABI_VERSION < hello->abi_min || ANYHAL_ABI_VERSION > hello->abi_max)
    return fail(error, ANYHAL_STATUS_ABI_MISMATCH, 0,
                "it is built for contract %u.%u and the core loads %u.%u to %u.%u; upgrade %s",
                ANYHAL_ABI_MAJOR, ANYHAL_ABI_MINOR, hello->abi_min >> 16, hello->abi_min & 0xffff,
                hello->abi_max >> 16, hello->abi_max & 0xffff,
                ANYHAL_ABI_VERSION < hello->abi_min ? "the backend" : "the core");
  if (hello->flags != 0 || hello->reserved != 0)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the core greets with a flag that is unknown here; upgrade the backend");
  anyhal_self* self = calloc(1, sizeof *self);
  if (self == NULL)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0, "the host is out of memory; free some");
  self->kind = (anyhal_memory_kind){
      .size = sizeof self->kind,
      .flags = ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT |
               ANYHAL_MEMORY_STABLE_ADDRESS,
      .offset_alignment = 1,
      .base_alignment = 64,
      .granularity = 1,
      .heap_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)};
  reply->flags = ANYHAL_REPLY_SYNCHRONOUS;
  reply->chosen = reply->abi_min = reply->abi_max = ANYHAL_ABI_VERSION;
  reply->registry_version = ANYHAL_REGISTRY_VERSION;
  reply->fingerprints = anyhal_fingerprints;
  reply->fingerprint_count = ANYHAL_FINGERPRINT_COUNT;
  reply->table = &table;
  reply->self = self;
  reply->build_id = "mychip 0.1, " __VERSION__;
  return ANYHAL_STATUS_OK;
}
