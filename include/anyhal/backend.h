/* The contract between the anyhal core and a backend: one entry symbol, one table of slots.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Read in this order: entry (hello, reply) - devices - memory - ops (query, prepare, enqueue) -
 * queues - the rest. A synchronous backend with host memory fills seven slots. An absent optional
 * slot (NULL) means "unsupported". Nothing may throw, abort or exit across this boundary.
 *
 * Layout rules. A growing record begins with `size` (bytes the writer knows) and `flags`; a reader
 * uses only the prefix both sides know. Records only grow at their end; numbers are never reused.
 * Zero always means the old behaviour. Reserved words are zero and are checked. Comments below give,
 * where not obvious: effect, units, memory, order, threads, errors, required/since.
 */
#ifndef ANYHAL_BACKEND_H_
#define ANYHAL_BACKEND_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ version and export macros */

/* The contract is a draft: 0.N. The core loads only its own N until 1.0 is declared. */
#define ANYHAL_ABI_MAJOR 0u
#define ANYHAL_ABI_MINOR 1u
#define ANYHAL_ABI_VERSION ((ANYHAL_ABI_MAJOR << 16) | ANYHAL_ABI_MINOR)

/* Marks the one exported symbol of a backend. */
#if defined(__GNUC__)
#define ANYHAL_EXPORT __attribute__((visibility("default")))
#else
#define ANYHAL_EXPORT
#endif

/* Whether a sized record (or table) reaches as far as `field`. */
#define ANYHAL_HAS(record, type, field) \
  ((record)->size >= offsetof(type, field) + sizeof((record)->field))

/* ------------------------------------------------------------------------------- small numbers */

/* Every slot returns one of these. Only `unsupported` lets routing try something else. */
typedef enum anyhal_status {
  ANYHAL_STATUS_OK = 0,
  ANYHAL_STATUS_INVALID_ARGUMENT = 1, /* the caller's mistake; nothing was queued or written */
  ANYHAL_STATUS_UNSUPPORTED = 2,      /* not on this backend; nothing was queued or written */
  ANYHAL_STATUS_OUT_OF_MEMORY = 3,    /* from a call: nothing happened, retry is safe */
  ANYHAL_STATUS_DEVICE_LOST = 4,      /* sticky for the device; release with ABANDON */
  ANYHAL_STATUS_TIMEOUT = 5,          /* the limit given passed; the work goes on */
  ANYHAL_STATUS_NOT_FOUND = 6,        /* no such device, setting, file, extension */
  ANYHAL_STATUS_ABI_MISMATCH = 7,     /* versions, sizes or fingerprints do not fit */
  ANYHAL_STATUS_CANCELLED = 8,        /* the caller's cancel word was set */
  ANYHAL_STATUS_EXECUTION_FAILED = 9, /* accepted work failed later; its queue is dead */
  ANYHAL_STATUS_INTERNAL = 10,        /* a defect of the backend; the text says which */
} anyhal_status;

/* Element types. block_elements/block_bytes: 1 and the natural size, except the block formats of
 * GGUF files. Dims count elements, strides count blocks, the innermost blocked dim is dense. */
typedef enum anyhal_dtype {
  ANYHAL_DTYPE_NONE = 0,
  ANYHAL_DTYPE_F32 = 1,
  ANYHAL_DTYPE_F16 = 2,
  ANYHAL_DTYPE_BF16 = 3,
  ANYHAL_DTYPE_F64 = 4,
  ANYHAL_DTYPE_I64 = 5,
  ANYHAL_DTYPE_I32 = 6,
  ANYHAL_DTYPE_I16 = 7,
  ANYHAL_DTYPE_I8 = 8,
  ANYHAL_DTYPE_U64 = 9,
  ANYHAL_DTYPE_U32 = 10,
  ANYHAL_DTYPE_U16 = 11,
  ANYHAL_DTYPE_U8 = 12,
  ANYHAL_DTYPE_BOOL = 13, /* one byte, 0 or 1; readers treat any non-zero byte as true */
  ANYHAL_DTYPE_Q4_1 = 64, /* 32 elements in 20 bytes: f16 scale d, f16 minimum m, 16 bytes of
                             nibbles; byte j holds element j (low) and j + 16 (high); d*q + m */
  ANYHAL_DTYPE_Q8_0 = 65, /* 32 elements in 34 bytes: f16 scale d, 32 signed bytes; d*q */
} anyhal_dtype;

/* Objects that `release` ends. */
typedef enum anyhal_object {
  ANYHAL_OBJECT_DEVICE = 1,
  ANYHAL_OBJECT_MEMORY = 2,
  ANYHAL_OBJECT_QUEUE = 3,
  ANYHAL_OBJECT_PLAN = 4,
  ANYHAL_OBJECT_MODULE = 5,
  ANYHAL_OBJECT_GROUP = 6, /* reserved for collectives */
} anyhal_object;

/* Why a query said no, or a refusal happened; typed so that routing and people can act on it. */
typedef enum anyhal_reason {
  ANYHAL_REASON_NONE = 0,
  ANYHAL_REASON_OP = 1,
  ANYHAL_REASON_DTYPE = 2,
  ANYHAL_REASON_LAYOUT = 3,
  ANYHAL_REASON_RANK = 4,
  ANYHAL_REASON_SHAPE_LIMIT = 5,
  ANYHAL_REASON_ALIGNMENT = 6,
  ANYHAL_REASON_ATTRIBUTE = 7,
  ANYHAL_REASON_ARCHITECTURE = 8,
  ANYHAL_REASON_DRIVER = 9,
  ANYHAL_REASON_MISSING_LIBRARY = 10,
  ANYHAL_REASON_MISSING_ARTEFACT = 11,
  ANYHAL_REASON_WORKSPACE = 12,
  ANYHAL_REASON_NUMERICS = 13,
  ANYHAL_REASON_MEMORY_KIND = 14,
  ANYHAL_REASON_CAPTURE = 15,
  ANYHAL_REASON_POLICY = 16,
} anyhal_reason;

/* A caller-owned error record. The caller sets `size` only; on failure the backend fills the rest,
 * `text` being one NUL-terminated sentence. Frozen from the first version. */
typedef struct anyhal_error {
  uint32_t size;
  int32_t reason; /* anyhal_reason */
  int64_t vendor_code;
  char text[240];
} anyhal_error;

/* Opaque objects of the backend, each a pointer of its own choosing. */
typedef struct anyhal_device anyhal_device;
typedef struct anyhal_queue anyhal_queue;
typedef struct anyhal_plan anyhal_plan;
typedef struct anyhal_module anyhal_module;

/* An operand: a block and a byte offset into it, never a bare pointer. memory 0 = absent. In the
 * device's address block (see device_open) the offset is the address. Prepared with INLINE, the 16
 * bytes hold the value itself, low bytes first. */
typedef struct anyhal_ref {
  uint64_t memory;
  uint64_t offset;
} anyhal_ref;

/* ------------------------------------------------------------------------------- host services */

/* What the core offers to a backend. Sized and append-only; `log` and `error_text` are frozen.
 * All may be called from any thread; `context` is passed back unchanged. */
typedef struct anyhal_services {
  uint32_t size;
  uint32_t flags;
  void* context;
  /* One line for people. level: 0 debug, 1 info, 2 warning, 3 error. */
  void (*log)(void* context, int32_t level, const char* text);
  /* Fills an error record (any pointer may be NULL); returns `status` for `return error_text(...)`. */
  anyhal_status (*error_text)(void* context, anyhal_error* error, anyhal_status status,
                              int32_t reason, const char* text);
  void* (*host_alloc)(void* context, uint64_t bytes, uint64_t alignment);
  void (*host_free)(void* context, void* pointer);
  /* Runs fn(argument, i) once for each i in [0, count), on up to thread_count() threads, the caller
   * among them; returns when all are done. Nested calls run inline. */
  void (*parallel_for)(void* context, uint32_t count, void (*fn)(void* argument, uint32_t index),
                       void* argument);
  uint32_t (*thread_count)(void* context);
  /* Artefact cache: get answers NOT_FOUND or copies at most *bytes and sets *bytes to the size. */
  anyhal_status (*cache_get)(void* context, const char* key, void* data, uint64_t* bytes);
  anyhal_status (*cache_put)(void* context, const char* key, const void* data, uint64_t bytes);
  /* The instance's setting of that name, or NULL. Valid while the instance lives. */
  const char* (*setting)(void* context, const char* name);
  /* A timed span of a PROFILED queue, host time in ns. */
  void (*span)(void* context, uint64_t tag, uint64_t begin_ns, uint64_t end_ns, uint32_t on_device);
  /* Bytes held outside blocks (a library's own pools), for the ledger. */
  void (*ledger_note)(void* context, const char* label, int64_t bytes);
} anyhal_services;

typedef struct anyhal_setting {
  const char* name;
  const char* value;
} anyhal_setting;

/* ---------------------------------------------------------------------------- entry: hello/reply */

/* Core to backend. Frozen. Strings and services live as long as the process. */
typedef struct anyhal_hello {
  uint32_t size;
  uint32_t flags;
  uint32_t abi_min; /* versions the core can load, as ANYHAL_ABI_VERSION */
  uint32_t abi_max;
  const anyhal_services* services;
  const char* instance_name;
  const anyhal_setting* settings;
  uint32_t setting_count;
  uint32_t reserved;
} anyhal_hello;

typedef struct anyhal_table anyhal_table;
typedef struct anyhal_self anyhal_self;

enum {
  ANYHAL_REPLY_SYNCHRONOUS = 1u,   /* op_enqueue returns when done; no queue slots, queue NULL */
  ANYHAL_REPLY_HIDDEN_MEMORY = 2u, /* allocates while enqueuing; plans state hidden_bytes */
  ANYHAL_REPLY_FAULT_ABORTS = 4u,  /* a device fault may end the process */
};

/* Backend to core. Frozen. The core sets `size`; the backend fills the rest. */
typedef struct anyhal_reply {
  uint32_t size;
  uint32_t flags;  /* ANYHAL_REPLY_* */
  uint32_t chosen; /* within both ranges */
  uint32_t abi_min;
  uint32_t abi_max;
  uint32_t registry_version; /* ANYHAL_REGISTRY_VERSION of the ops.h it was built with */
  const anyhal_table* table;
  anyhal_self* self;            /* passed to the slots that take it; one per instance */
  const char* build_id;         /* names this build, for plan keys and certificates */
  const uint64_t* fingerprints; /* layout fingerprints, see abi.md; NULL in drafts */
  uint32_t fingerprint_count;
  uint32_t reserved;
} anyhal_reply;

/* The only symbol of a backend. Called once per instance, possibly several times per process.
 * Errors  ABI_MISMATCH  ranges do not meet; the text says both and which side to upgrade
 *         NOT_FOUND     something this instance needs is missing; the text says what
 * Zero devices is not an error. */
typedef anyhal_status (*anyhal_backend_main_fn)(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error);
#define ANYHAL_ENTRY_SYMBOL "anyhal_backend_main"

/* ------------------------------------------------------------------------------------- devices */

enum {
  ANYHAL_MEMORY_DEVICE_LOCAL = 1u,
  ANYHAL_MEMORY_HOST_VISIBLE = 2u,
  ANYHAL_MEMORY_COHERENT = 4u,
  ANYHAL_MEMORY_CELL = 8u,           /* one tensor per block; the backend re-points it */
  ANYHAL_MEMORY_PARTIAL_READ = 16u,  /* cells: queue_copy out of a part works */
  ANYHAL_MEMORY_PARTIAL_WRITE = 32u, /* cells: queue_copy into a part works */
  ANYHAL_MEMORY_STABLE_ADDRESS = 64u,
  ANYHAL_MEMORY_LAZY = 128u, /* allocation may succeed and fail at first use */
};

/* One kind of memory of a device. Linear kinds are cut up by the core; cell blocks never are. */
typedef struct anyhal_memory_kind {
  uint32_t size;
  uint32_t flags; /* ANYHAL_MEMORY_* */
  uint32_t heap;  /* kinds of one heap share its bytes */
  uint32_t offset_alignment; /* every ref's offset is a multiple of this */
  uint32_t base_alignment;   /* of the block's start */
  uint32_t reserved;
  uint64_t granularity;     /* block sizes are multiples */
  uint64_t block_bytes_max; /* 0 = no limit below heap_bytes */
  uint64_t heap_bytes;
  uint64_t blocks_max; /* 0 = any number */
} anyhal_memory_kind;

enum {
  ANYHAL_DEVICE_UNIFIED = 1u, /* shares the host's memory */
  ANYHAL_DEVICE_INTEGRATED = 2u,
  ANYHAL_DEVICE_DISPLAY_ONLY = 4u,
};

typedef enum anyhal_recovery {
  ANYHAL_RECOVERY_NONE = 0,
  ANYHAL_RECOVERY_PROCESS = 1,
  ANYHAL_RECOVERY_REOPEN = 2,
} anyhal_recovery;

typedef struct anyhal_device_info {
  uint32_t size;
  uint32_t flags; /* ANYHAL_DEVICE_* */
  uint64_t id;    /* the backend's own, passed to device_open */
  uint8_t uuid[16]; /* all zero = unknown */
  uint32_t pci_domain;
  uint32_t pci_function; /* bus << 8 | device << 3 | function; both zero = none */
  char name[64];
  char arch[32];
  char driver[64];
  const anyhal_memory_kind* kinds; /* lives with the instance */
  uint32_t kind_count;
  uint32_t queue_count_max; /* 0 = any number */
  uint32_t queue_depth;     /* calls in flight before enqueue blocks; 0 = deep enough */
  uint32_t preferred_alignment;
  uint32_t rank_max;
  uint32_t recovery;    /* anyhal_recovery */
  uint32_t own_threads; /* threads a vendor library keeps; 0 = none */
  uint32_t reserved;
  uint64_t tensor_bytes_max;
  uint64_t timestamp_hz; /* 0 = no time stamps */
} anyhal_device_info;

/* ------------------------------------------------------------------------------------- memory */

/* What a block is for: the core never mixes them, and names them in the ledger. */
typedef enum anyhal_purpose {
  ANYHAL_PURPOSE_ACTIVATIONS = 0,
  ANYHAL_PURPOSE_WEIGHTS = 1,
  ANYHAL_PURPOSE_CACHE = 2,
  ANYHAL_PURPOSE_WORKSPACE = 3,
  ANYHAL_PURPOSE_STAGING = 4,
  ANYHAL_PURPOSE_ARENA = 5,
} anyhal_purpose;

typedef struct anyhal_memory_request {
  uint32_t size;
  uint32_t flags;
  uint32_t kind; /* index into device_info.kinds */
  uint32_t purpose;
  uint64_t bytes;
  uint64_t alignment;
  uint64_t reserved[2];
} anyhal_memory_request;

typedef struct anyhal_memory_block {
  uint32_t size;
  uint32_t flags;
  uint64_t memory; /* the handle for refs; never 0 */
  uint64_t bytes;
  uint64_t device_address; /* 0 = none */
  uint64_t host_address;   /* 0 = none or not stable */
  uint64_t reserved[2];
} anyhal_memory_block;

typedef enum anyhal_import_type {
  ANYHAL_IMPORT_HOST_POINTER = 1,
  ANYHAL_IMPORT_ADDRESS = 2,
  ANYHAL_IMPORT_DMA_BUF = 3,
} anyhal_import_type;

typedef struct anyhal_memory_import {
  uint32_t size;
  uint32_t flags;
  uint32_t type; /* anyhal_import_type */
  uint32_t kind;
  uint64_t handle; /* pointer, address or file descriptor */
  uint64_t offset;
  uint64_t bytes;
  uint64_t reserved[2];
} anyhal_memory_import;

/* ---------------------------------------------------------------------------------------- ops */

enum {
  ANYHAL_TENSOR_CONSTANT = 1u, /* never written while a plan uses it; content_id is its identity */
  ANYHAL_TENSOR_INLINE = 2u,   /* 0-d; the call's ref holds the value */
  ANYHAL_TENSOR_ABSENT = 4u,
  ANYHAL_TENSOR_BINDING = 8u, /* of a graph: may change at launch */
};

/* Everything about an operand but where it is. dims and strides have `rank` entries and live for
 * the call only. Strides are in elements (blocks for block dtypes), zero or positive. */
typedef struct anyhal_tensor_desc {
  uint32_t size;
  uint32_t flags; /* ANYHAL_TENSOR_* */
  uint32_t dtype;
  uint32_t rank;
  const int64_t* dims;
  const int64_t* strides;
  const int64_t* dims_max; /* with dynamic_mask; NULL otherwise */
  uint32_t dynamic_mask;   /* dims offered as free up to dims_max; 0 = exact */
  uint32_t alignment;      /* power of two that the address is known to have */
  uint32_t memory_kind;
  uint32_t alias_of; /* operand number + 1 whose bytes this one equals exactly; 0 = no overlap */
  uint64_t block_bytes; /* cells only: bytes of the block and where the view starts in it */
  uint64_t base_offset;
  int64_t value_min; /* integer operands: bounds known at prepare; both 0 = unknown */
  int64_t value_max;
  uint64_t content_id;  /* CONSTANT: same id, same bytes; 0 = unknown */
  anyhal_ref content;   /* CONSTANT: readable at prepare when memory is not 0 */
  uint64_t reserved[2];
} anyhal_tensor_desc;

/* numerics[0..5]; zero is the registry's strict default. */
typedef enum anyhal_numerics {
  ANYHAL_NUMERICS_ACCUMULATE = 0,  /* 0 strict: f32 for f32 and below, f64, i32/i64 for ints */
  ANYHAL_NUMERICS_ROUNDING = 1,    /* 0 nearest even */
  ANYHAL_NUMERICS_DENORMALS = 2,   /* 0 preserved */
  ANYHAL_NUMERICS_DETERMINISM = 3, /* 0 run to run */
  ANYHAL_NUMERICS_MATH = 4,        /* 0 none of the relaxed modes */
  ANYHAL_NUMERICS_RESERVED = 5,
} anyhal_numerics;

/* An operation as it would run: ids and attribute records are those of ops.h. Operands are inputs,
 * then outputs, in registry order. The record and what it points to live for the call only. */
typedef struct anyhal_op_desc {
  uint32_t size;
  uint32_t flags;
  uint32_t op;
  uint32_t op_version;
  uint32_t input_count;
  uint32_t operand_count;
  const anyhal_tensor_desc* operands;
  const void* attributes; /* anyhal_attrs_<op>, size first */
  uint32_t attributes_size;
  uint32_t numerics[6];
  uint32_t reserved32;
  uint64_t workspace_limit;        /* 0 = no limit */
  const volatile uint32_t* cancel; /* NULL, or polled by long prepares; non-zero = stop */
  uint64_t reserved[2];
} anyhal_op_desc;

typedef enum anyhal_support {
  ANYHAL_SUPPORT_NO = 0,
  ANYHAL_SUPPORT_YES = 1,
  ANYHAL_SUPPORT_PREPARE_KNOWS = 2, /* only a compile can tell */
} anyhal_support;

enum {
  ANYHAL_VERDICT_CAPTURE_SAFE = 1u,
  ANYHAL_VERDICT_DETERMINISTIC = 2u,
  ANYHAL_VERDICT_SERIAL = 4u, /* one call at a time per plan */
  ANYHAL_VERDICT_BOUND_SENSITIVE = 8u,
  ANYHAL_VERDICT_BAKES_CONSTANTS = 16u,
};

/* Layout a backend wants for an operand before it says yes; the core copies, visibly. */
typedef enum anyhal_layout {
  ANYHAL_LAYOUT_ANY = 0,
  ANYHAL_LAYOUT_DENSE = 1,
  ANYHAL_LAYOUT_DENSE_INNER = 2,
} anyhal_layout;

typedef struct anyhal_want {
  uint32_t layout; /* anyhal_layout */
  uint32_t alignment;
} anyhal_want;

#define ANYHAL_WANTS_MAX 16u

/* The answer to op_query. The caller sets size and zeroes the rest; `wants` points to the caller's
 * ANYHAL_WANTS_MAX records or is NULL. */
typedef struct anyhal_verdict {
  uint32_t size;
  uint32_t flags;   /* ANYHAL_VERDICT_* */
  uint32_t support; /* anyhal_support */
  int32_t reason;   /* anyhal_reason, when NO */
  int32_t reason_operand; /* -1 = none in particular */
  uint32_t compile_ms;
  uint64_t workspace_bytes;
  uint64_t hidden_bytes;
  uint64_t baked_bytes;
  uint64_t cost_ns; /* estimate of one run; 0 = unknown */
  anyhal_want* wants;
  uint32_t want_count;
  uint32_t dynamic_operands;
  uint64_t reserved[2];
} anyhal_verdict;

/* A packed copy of a constant that a plan wants in the constant's place. Plans with equal keys
 * share the copy. */
typedef struct anyhal_pack {
  uint32_t operand;
  uint32_t kind; /* memory kind of the packed block */
  uint32_t alignment;
  uint32_t key_size;
  uint64_t bytes;
  const void* key; /* layout key; lives with the plan */
} anyhal_pack;

enum {
  ANYHAL_PREPARED_CAPTURE_SAFE = 1u,
  ANYHAL_PREPARED_SERIAL = 2u,
  ANYHAL_PREPARED_REBIND = 4u,      /* graph plans: any refs at launch */
  ANYHAL_PREPARED_PINS_MEMORY = 8u, /* no memory_alloc on the device while the plan lives */
};

/* What prepare found; owned by the backend, lives with the plan. */
typedef struct anyhal_prepared {
  uint32_t size;
  uint32_t flags; /* ANYHAL_PREPARED_* */
  uint64_t workspace_bytes;
  uint32_t workspace_alignment;
  uint32_t pack_count;
  const anyhal_pack* packs;
  uint64_t hidden_bytes;
  uint64_t baked_bytes;
  const char* kernel;  /* for receipts */
  const char* library; /* for receipts; "" = the backend's own code */
  uint64_t reserved[2];
} anyhal_prepared;

enum {
  ANYHAL_CALL_INDEPENDENT = 1u, /* conflicts with nothing since the last call without this hint */
  ANYHAL_CALL_START_NOW = 2u,
};

/* One run of a plan; one cache line. Arrays are read before op_enqueue returns. */
typedef struct anyhal_call {
  uint32_t size;
  uint32_t flags; /* ANYHAL_CALL_*, hints only */
  uint64_t tag;
  const anyhal_ref* operands;
  const int64_t* extents; /* values of accepted dynamic dims, operand by operand */
  uint32_t operand_count;
  uint32_t extent_count;
  anyhal_ref workspace;
  uint64_t reserved;
} anyhal_call;

/* ------------------------------------------------------------------------------------- queues */

enum { ANYHAL_QUEUE_PROFILED = 1u };

typedef struct anyhal_queue_options {
  uint32_t size;
  uint32_t flags; /* ANYHAL_QUEUE_* */
  int32_t priority;
  uint32_t reserved;
} anyhal_queue_options;

/* What host_wait reports. */
typedef struct anyhal_queue_state {
  uint32_t size;
  uint32_t flags;
  uint32_t status; /* anyhal_status of the queue's work so far */
  uint32_t reserved;
  uint64_t completed;    /* highest signalled value reached */
  uint64_t failed_value; /* first value that will never be reached; 0 = none */
  uint64_t failed_tag;   /* tag of the call that failed */
} anyhal_queue_state;

typedef struct anyhal_copy_region {
  anyhal_ref destination;
  anyhal_ref source;
  uint64_t bytes;
} anyhal_copy_region;

typedef void (*anyhal_notify_fn)(void* argument, anyhal_status status);

typedef enum anyhal_native_type {
  ANYHAL_NATIVE_HOST = 1,
  ANYHAL_NATIVE_CUDA_STREAM = 2,
  ANYHAL_NATIVE_HIP_STREAM = 3,
  ANYHAL_NATIVE_CL_QUEUE = 4,
  ANYHAL_NATIVE_VK_COMMAND_BUFFER = 5,
} anyhal_native_type;

typedef struct anyhal_native_queue {
  uint32_t size;
  uint32_t type; /* anyhal_native_type */
  uint64_t handle;
  const uint64_t* operands; /* resolved addresses or vendor handles */
  uint32_t operand_count;
  uint32_t reserved;
} anyhal_native_queue;

typedef anyhal_status (*anyhal_native_fn)(void* argument, const anyhal_native_queue* queue);

enum { ANYHAL_ACCESS_READ = 1u, ANYHAL_ACCESS_WRITE = 2u };

typedef struct anyhal_native_operand {
  anyhal_ref ref;
  uint32_t access; /* ANYHAL_ACCESS_* */
  uint32_t reserved;
} anyhal_native_operand;

/* ----------------------------------------------------------------------------- graphs, kernels */

typedef enum anyhal_value_kind {
  ANYHAL_VALUE_BINDING = 1,
  ANYHAL_VALUE_FIXED = 2,
  ANYHAL_VALUE_INTERMEDIATE = 3,
} anyhal_value_kind;

typedef struct anyhal_graph_value {
  uint32_t size;
  uint32_t flags;
  uint32_t kind; /* anyhal_value_kind */
  uint32_t binding;
  const anyhal_tensor_desc* desc;
  anyhal_ref ref;
} anyhal_graph_value;

typedef enum anyhal_entry_kind {
  ANYHAL_ENTRY_OP = 1,
  ANYHAL_ENTRY_COPY = 2,
  ANYHAL_ENTRY_FILL = 3,
  ANYHAL_ENTRY_NATIVE = 4,
} anyhal_entry_kind;

typedef struct anyhal_graph_entry {
  uint32_t size;
  uint32_t flags;
  uint32_t kind; /* anyhal_entry_kind */
  uint32_t value_count;
  const anyhal_op_desc* op;
  anyhal_plan* plan;
  const uint32_t* values;  /* value numbers, operand by operand */
  const uint32_t* follows; /* entry numbers that must come before */
  uint32_t follow_count;
  uint32_t reserved;
  uint64_t tag;
  uint64_t bytes;
  void* data; /* fill pattern or native argument */
  anyhal_native_fn callback;
} anyhal_graph_entry;

typedef enum anyhal_graph_mode {
  ANYHAL_GRAPH_RECORD = 1,
  ANYHAL_GRAPH_COMPILE = 2,
} anyhal_graph_mode;

typedef struct anyhal_graph_desc {
  uint32_t size;
  uint32_t flags;
  uint32_t mode; /* anyhal_graph_mode */
  uint32_t value_count;
  uint32_t entry_count;
  uint32_t binding_count;
  const anyhal_graph_value* values;
  const anyhal_graph_entry* entries;
  uint64_t reserved[2];
} anyhal_graph_desc;

typedef enum anyhal_payload_format {
  ANYHAL_PAYLOAD_PTX = 1,
  ANYHAL_PAYLOAD_CUBIN = 2,
  ANYHAL_PAYLOAD_HSACO = 3,
  ANYHAL_PAYLOAD_SPIRV = 4,
  ANYHAL_PAYLOAD_OPENCL_C = 5,
  ANYHAL_PAYLOAD_VENDOR = 6,
} anyhal_payload_format;

typedef struct anyhal_payload {
  uint32_t size;
  uint32_t flags;
  uint32_t format; /* anyhal_payload_format */
  uint32_t reserved;
  const void* bytes;
  uint64_t byte_count;
  const char* architecture;
} anyhal_payload;

typedef struct anyhal_parameter {
  uint32_t offset;
  uint32_t bytes;
} anyhal_parameter;

typedef enum anyhal_grid_rule {
  ANYHAL_GRID_FIXED = 0,
  ANYHAL_GRID_EXTENTS = 1, /* the call's extents give the grid */
} anyhal_grid_rule;

typedef struct anyhal_signature {
  uint32_t size;
  uint32_t flags;
  uint32_t operand_count;
  uint32_t parameter_count;
  const anyhal_parameter* parameters;
  uint32_t block[3];
  uint32_t grid_rule; /* anyhal_grid_rule */
  uint32_t grid[3];
  uint32_t shared_bytes;
  uint32_t warps;
  uint32_t reserved;
} anyhal_signature;

/* -------------------------------------------------------------------------------- query, events */

/* Keys of device_query. The value is written to `value`, at most `*bytes`; *bytes becomes its size
 * (also when it did not fit, with INVALID_ARGUMENT). */
typedef enum anyhal_query_key {
  ANYHAL_QUERY_FREE_BYTES = 1,   /* argument: heap; u64 */
  ANYHAL_QUERY_EDGE = 2,         /* argument: other device id; u32: 0 none, 1 import, 2 native */
  ANYHAL_QUERY_HEALTH = 3,       /* u32 status */
  ANYHAL_QUERY_COUNTER = 4,      /* argument: backend's own counter number; u64 */
  ANYHAL_QUERY_CAPABILITIES = 5, /* anyhal_capability[] */
  ANYHAL_QUERY_NOTES = 6,        /* text: what limits this device now (a missing library, ...) */
} anyhal_query_key;

enum {
  ANYHAL_CAPABILITY_STRIDED = 1u,
  ANYHAL_CAPABILITY_CAPTURE_SAFE = 2u,
  ANYHAL_CAPABILITY_FLUSHES_DENORMALS = 4u,
};

/* One row of what a device can run: op, the dtypes its main operand may have, limits, numerics.
 * The same rows answer op_query and select the kernel, so they cannot disagree. */
typedef struct anyhal_capability {
  uint32_t op;
  uint32_t flags; /* ANYHAL_CAPABILITY_* */
  uint64_t dtypes[2]; /* bit d of word d / 64 = anyhal_dtype d */
  uint32_t rank_max;
  uint32_t accumulate; /* 0 strict, as numerics */
  uint32_t rounding;
  uint32_t determinism; /* 0 run to run, 1 none, 2 batch invariant, 3 cross-device */
  uint64_t dim_max;     /* 0 = no limit */
} anyhal_capability;

typedef enum anyhal_event {
  ANYHAL_EVENT_FORK_CHILD = 1,
  ANYHAL_EVENT_EXIT = 2,
  ANYHAL_EVENT_TRIM = 3,
  ANYHAL_EVENT_IDLE = 4,
} anyhal_event;

enum { ANYHAL_RELEASE_ABANDON = 1u }; /* forget it without touching the driver */
enum { ANYHAL_MAP_READ = 1u, ANYHAL_MAP_WRITE = 2u, ANYHAL_MAP_END = 4u };
#define ANYHAL_NO_LIMIT UINT64_MAX

/* --------------------------------------------------------------------------------------- table */

/* The 25 slots. [R] required; [Ra] required unless SYNCHRONOUS; [Rc] required unless all memory
 * kinds are linear, host-visible and coherent; [O] optional. The core serialises calls per queue;
 * everything else may overlap with anything. Each slot fills `error` when it fails. */
struct anyhal_table {
  uint32_t size;
  uint32_t flags;

  /* 1 [R] Lists what is there, without making contexts where the stack allows.
   * Memory  writes at most `capacity` records (the core sets each record's size), *out_total is the
   *         number that exists; zero devices is OK. */
  anyhal_status (*device_list)(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                               uint32_t* out_total, anyhal_error* error);

  /* 2 [R] Makes a device usable.
   * Memory  *out_address_block is a handle with base 0 where the device can use host addresses as
   *         they are ({address block, pointer} names foreign memory), else 0.
   * Errors  NOT_FOUND no such id; DEVICE_LOST; OUT_OF_MEMORY. */
  anyhal_status (*device_open)(anyhal_self* self, uint64_t device_id, const anyhal_setting* options,
                               uint32_t option_count, anyhal_device** out_device,
                               uint64_t* out_address_block, anyhal_error* error);

  /* 3 [R] One block of memory. May call the driver; the core calls it only to grow its pools.
   * Errors  OUT_OF_MEMORY nothing changed, the core trims and retries. */
  anyhal_status (*memory_alloc)(anyhal_device* device, const anyhal_memory_request* request,
                                anyhal_memory_block* out_block, anyhal_error* error);

  /* 4 [R] Would you run exactly this? Pure, no allocation, under 10 us. A "no" is OK with
   *       verdict.support NO and a typed reason, not an error status. */
  anyhal_status (*op_query)(anyhal_device* device, const anyhal_op_desc* desc,
                            anyhal_verdict* verdict, anyhal_error* error);

  /* 5 [R] Everything slow, once. The plan is immutable, shared by queues and threads (unless it
   *       says SERIAL) and holds no per-call state.
   * Errors  UNSUPPORTED with a reason; OUT_OF_MEMORY; CANCELLED. */
  anyhal_status (*op_prepare)(anyhal_device* device, const anyhal_op_desc* desc,
                              anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                              anyhal_error* error);

  /* 6 [R] Runs a plan: op, graph or kernel.
   * Order   queued behind the queue's earlier calls; done on return when SYNCHRONOUS.
   * Rules   from the second call on no heap allocation, no driver allocation, no compile, no search,
   *         no lock another queue can hold. A refused call wrote nothing.
   * Errors  INVALID_ARGUMENT for values that only the call knows (an index out of range);
   *         OUT_OF_MEMORY before acceptance; DEVICE_LOST; EXECUTION_FAILED when synchronous. */
  anyhal_status (*op_enqueue)(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                              anyhal_error* error);

  /* 7 [R] Ends any object. Never blocks; nothing pending uses it, or the device is lost (ABANDON). */
  anyhal_status (*release)(anyhal_self* self, uint32_t object_kind, uint64_t object, uint32_t flags,
                           anyhal_error* error);

  /* 8 [Ra] An in-order queue. */
  anyhal_status (*queue_create)(anyhal_device* device, const anyhal_queue_options* options,
                                anyhal_queue** out_queue, anyhal_error* error);

  /* 9 [Ra] Submits everything so far and marks the position with a rising value. The only promise
   *        of progress. Does not wait. */
  anyhal_status (*queue_signal)(anyhal_queue* queue, uint64_t value, anyhal_error* error);

  /* 10 [O] Orders `queue` behind a submitted position of another queue of this instance. */
  anyhal_status (*queue_wait)(anyhal_queue* queue, anyhal_queue* source, uint64_t value,
                              anyhal_error* error);

  /* 11 [Ra] Polls (limit 0) or waits for a signalled value. Honours its limit and ends in finite
   *         time on device loss.
   * Errors  TIMEOUT; DEVICE_LOST; EXECUTION_FAILED (the queue is dead, `state` says from where). */
  anyhal_status (*host_wait)(anyhal_queue* queue, uint64_t value, uint64_t limit_ns,
                             anyhal_queue_state* state, anyhal_error* error);

  /* 12 [Rc] Bytes between blocks, queued; regions do not overlap. */
  anyhal_status (*queue_copy)(anyhal_queue* queue, const anyhal_copy_region* regions,
                              uint32_t region_count, anyhal_error* error);

  /* 13 [O] Changing facts; no device work. See anyhal_query_key. */
  anyhal_status (*device_query)(anyhal_device* device, uint32_t key, uint64_t argument, void* value,
                                uint64_t* bytes, anyhal_error* error);

  /* 14 [O] Begins or ends (MAP_END) a host access to a range that the core made idle. */
  anyhal_status (*memory_map)(anyhal_device* device, anyhal_ref ref, uint64_t bytes, uint32_t flags,
                              void** out_pointer, anyhal_error* error);

  /* 15 [O] Foreign memory as a block; `release` drops the view, not the memory. */
  anyhal_status (*memory_import)(anyhal_device* device, const anyhal_memory_import* import,
                                 anyhal_memory_block* out_block, anyhal_error* error);

  /* 16 [O] Writes the packed form of a constant operand that the plan asked for. */
  anyhal_status (*constant_pack)(anyhal_queue* queue, anyhal_plan* plan, uint32_t operand,
                                 anyhal_ref source, anyhal_ref destination, anyhal_error* error);

  /* 17 [O] A repeated byte pattern of 1, 2 or 4 bytes. */
  anyhal_status (*queue_fill)(anyhal_queue* queue, anyhal_ref ref, uint64_t bytes,
                              const void* pattern, uint32_t pattern_bytes, anyhal_error* error);

  /* 18 [O] Calls fn exactly once when the submitted value is reached or has failed, on any thread. */
  anyhal_status (*queue_notify)(anyhal_queue* queue, uint64_t value, anyhal_notify_fn fn,
                                void* argument, anyhal_error* error);

  /* 19 [O] Records or compiles a list of calls into a plan. Touches no queue. *out_failing_entry
   *        names the entry that could not be taken. */
  anyhal_status (*graph_prepare)(anyhal_device* device, const anyhal_graph_desc* desc,
                                 anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                 uint32_t* out_failing_entry, anyhal_error* error);

  /* 20 [O] Device code for this architecture.
   * Errors  UNSUPPORTED with reason ARCHITECTURE, naming what it was built for and what this is. */
  anyhal_status (*module_load)(anyhal_device* device, const anyhal_payload* payload,
                               anyhal_module** out_module, anyhal_error* error);

  /* 21 [O] A kernel of a module as a plan. */
  anyhal_status (*kernel_prepare)(anyhal_module* module, const char* entry,
                                  const anyhal_signature* signature, anyhal_plan** out_plan,
                                  const anyhal_prepared** out_prepared, anyhal_error* error);

  /* 22 [O] Vendor work in queue order; the callback runs before return and must not wait. */
  anyhal_status (*queue_native)(anyhal_queue* queue, anyhal_native_fn callback, void* argument,
                                const anyhal_native_operand* operands, uint32_t operand_count,
                                anyhal_error* error);

  /* 23 [O] Looks through an object to the vendor's handle. */
  anyhal_status (*native_handle)(anyhal_self* self, uint32_t object_kind, uint64_t object,
                                 uint64_t* out_handle, uint32_t* out_type, uint32_t* out_owned,
                                 anyhal_error* error);

  /* 24 [O] Life events. *out_bytes: memory given back (TRIM). */
  anyhal_status (*notify)(anyhal_self* self, uint32_t event, uint64_t argument, uint64_t* out_bytes,
                          anyhal_error* error);

  /* 25 [O] A named table of functions, or NOT_FOUND. */
  anyhal_status (*extension)(anyhal_self* self, const char* name, uint32_t since,
                             const void** out_table, anyhal_error* error);
};

#ifdef __cplusplus
}
#endif

#endif /* ANYHAL_BACKEND_H_ */
