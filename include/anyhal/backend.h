/* The contract between the anyhal core and a backend: one entry symbol, one table of slots.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Read in this order: entry (hello, reply) - devices - memory - ops (query, prepare, enqueue) -
 * queues - the rest. A synchronous backend with host memory fills seven slots. An absent optional
 * slot (NULL) means "unsupported". Nothing may throw, abort or exit across this boundary.
 *
 * Layout rules. A growing record begins with `size` (bytes the writer knows) and `flags`; a reader
 * uses only the prefix both sides know. Records only grow at their end; numbers are never reused.
 * Zero always means the old behaviour. Reserved words are zero and are checked. Unknown flag bits
 * are refused, except in anyhal_call, where they are hints. Comments on slots and on frozen records
 * give, where they say more than the code: effect, units, memory, order, threads, errors,
 * required/since.
 *
 * include/anyhal/ABI.md: what may change and when. docs/adr: why each group of slots is as it is.
 */
#ifndef ANYHAL_BACKEND_H_
#define ANYHAL_BACKEND_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version, export and field macros. */

/* A version of the contract as a number, in the preprocessor too. */
#define ANYHAL_ABI(major, minor) ((((major) + 0u) << 16) | ((minor) + 0u))

/* The contract is a draft: 0.N. A core of 0.N loads its own N only; from 1.0 on a core of major M
 * loads backends built for M and for M - 1. */
#define ANYHAL_ABI_MAJOR 0u
#define ANYHAL_ABI_MINOR 3u
#define ANYHAL_ABI_VERSION ANYHAL_ABI(ANYHAL_ABI_MAJOR, ANYHAL_ABI_MINOR)

/* The oldest core that a backend is to run on: its author's choice, made before this header is
 * included (-DANYHAL_ABI_FLOOR="ANYHAL_ABI(1, 0)"). What is newer than the floor then has no plain
 * name, so that using it unguarded does not compile; see ANYHAL_READ. */
#ifndef ANYHAL_ABI_FLOOR
#define ANYHAL_ABI_FLOOR ANYHAL_ABI_VERSION
#endif
#if ANYHAL_ABI_FLOOR > ANYHAL_ABI_VERSION || ANYHAL_ABI_FLOOR < ANYHAL_ABI(ANYHAL_ABI_MAJOR, 0)
#error "ANYHAL_ABI_FLOOR is a version of this header's major, and not above the header's own"
#endif
#if ANYHAL_ABI_MAJOR == 0 && ANYHAL_ABI_FLOOR != ANYHAL_ABI_VERSION
#error "drafts (0.N) load their own N only: leave ANYHAL_ABI_FLOOR undefined"
#endif

/* Names by age. A minor adds one block like the one below, for itself, and declares each field,
 * slot, flag and service that it brings through it: `uint64_t ANYHAL_SINCE_1_1(hint);`.
 *
 *   #if ANYHAL_ABI_FLOOR >= ANYHAL_ABI(1, 1)
 *   #define ANYHAL_SINCE_1_1(name) name
 *   #else
 *   #define ANYHAL_SINCE_1_1(name) newer_than_the_floor_##name
 *   #endif
 */

/* Marks the one exported symbol of a backend. */
#if defined(__GNUC__)
#define ANYHAL_EXPORT __attribute__((visibility("default")))
#else
#define ANYHAL_EXPORT
#endif

/* Whether a sized record (or table) reaches as far as `field`. */
#define ANYHAL_HAS(record, type, field) \
  ((record)->size >= offsetof(type, field) + sizeof((record)->field))

/* What is newer than the floor, `since` being 1_1 for 1.1. READ and WRITE ask the record of the
 * other side how far it reaches: READ gives `otherwise` where it ends earlier (NULL for a service),
 * WRITE then does nothing. OWN is the name itself, for a record that the backend owns: an older
 * core reads less of it. From the floor on the plain name does, without a test. */
#define ANYHAL_OWN(since, name) ANYHAL_SINCE_##since(name)
#define ANYHAL_READ(record, type, since, field, otherwise)                                 \
  (ANYHAL_HAS(record, type, ANYHAL_OWN(since, field)) ? (record)->ANYHAL_OWN(since, field) \
                                                      : (otherwise))
#define ANYHAL_WRITE(record, type, since, field, value)       \
  (ANYHAL_HAS(record, type, ANYHAL_OWN(since, field))         \
       ? (void)((record)->ANYHAL_OWN(since, field) = (value)) \
       : (void)0)

/* Statuses, dtypes, reasons, operands. */

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

/* Element types. block_elements/block_bytes: 1 and the natural size, except for packed integers and
 * the block formats of GGUF files. Dims count elements, strides count blocks, the innermost blocked
 * dim is dense and holds whole blocks. */
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
  /* 8-bit floats as in OCP OFP8. e4m3fn: bias 7, up to 448, NaN 0x7f and 0xff, no infinity; e5m2:
   * bias 15, up to 57344. The fnuz forms have no infinity, no -0 and one NaN, 0x80; e4m3fnuz: bias
   * 8, up to 240; e5m2fnuz: bias 16, up to 57344. */
  ANYHAL_DTYPE_F8_E4M3FN = 14,
  ANYHAL_DTYPE_F8_E5M2 = 15,
  ANYHAL_DTYPE_F8_E4M3FNUZ = 16,
  ANYHAL_DTYPE_F8_E5M2FNUZ = 17,
  ANYHAL_DTYPE_Q4_1 = 64, /* 32 elements in 20 bytes: f16 scale d, f16 minimum m, 16 bytes of
                             nibbles; byte j holds element j (low) and j + 16 (high); d*q + m */
  ANYHAL_DTYPE_Q8_0 = 65, /* 32 elements in 34 bytes: f16 scale d, 32 signed bytes; d*q */
  ANYHAL_DTYPE_I4 = 66,   /* 2 elements in a byte, the first in the low nibble; two's complement */
  ANYHAL_DTYPE_U4 = 67,   /* the same, 0 to 15 */
  ANYHAL_DTYPE_Q4_0 = 68, /* 32 elements in 18 bytes: f16 scale d, nibbles as q4_1; d*(q - 8) */
  /* 256 elements in 144 bytes: f16 d, f16 m, 12 bytes with a 6-bit scale s and minimum t for each
   * of 8 groups of 32, 128 bytes of nibbles; 32 bytes hold two groups (low, then high); d*s*q - m*t
   */
  ANYHAL_DTYPE_Q4_K = 69,
  /* 256 elements in 210 bytes: 128 bytes of low nibbles, 64 bytes of the upper two bits, 16 signed
   * bytes s, each for 16 elements, f16 d; d*s*(q - 32) */
  ANYHAL_DTYPE_Q6_K = 70,
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

/* Why a call failed.
 *
 * Units    vendor_code: the vendor library's own number, 0 = none.
 * Memory   owned by the caller, who sets `size` and nothing else; may be NULL. Written only on
 *          failure: reason, vendor code and NUL-terminated text: why, and what to do. What failed
 *          and where come before it from the core ("add (binary) on mychip:0: "), which alone knows
 *          the device's name and the function called; a text that begins so itself has that
 *          dropped. Nothing in it refers to an object, so it may outlive the device.
 * Since    0.1, frozen: this record never grows. */
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

/* Host services. */

/* What the core offers to a backend.
 *
 * Memory   lives as long as the process; strings passed in are copied before return.
 * Threads  any thread, also one of a vendor library; none takes a lock a slot's caller holds.
 * Errors   host_alloc answers NULL; nothing here throws or ends the process.
 * Since    0.1; append-only, so test with ANYHAL_HAS. `log` and `error_text` are frozen.
 *
 * `context` is the first argument of each, passed back unchanged. */
typedef struct anyhal_services {
  uint32_t size;
  uint32_t flags;
  void* context;
  /* One line for people. level: 0 debug, 1 info, 2 warning, 3 error. */
  void (*log)(void* context, int32_t level, const char* text);
  /* Fills an error record (pointers may be NULL); returns `status` for `return error_text(...)`. */
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
  /* The instance's setting of that name, or NULL. Valid while the instance lives. The core warns of
   * those that were not asked for when the devices have been listed. */
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

/* Entry: hello and reply. */

/* Core to backend: who is calling, in which versions, with which settings.
 *
 * Units    abi_min, abi_max: the versions the core can load, as ANYHAL_ABI_VERSION.
 * Memory   strings, settings and services live as long as the process; the record does not.
 * Errors   a backend refuses unknown flag bits and a non-zero `reserved` with INVALID_ARGUMENT.
 * Since    0.1, frozen: this record never grows. */
typedef struct anyhal_hello {
  uint32_t size;
  uint32_t flags;
  uint32_t abi_min;
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

/* Backend to core: the version both will speak, and the table.
 *
 * Units    abi_min, abi_max: ANYHAL_ABI_FLOOR and ANYHAL_ABI_VERSION. chosen: the highest version
 *          in both ranges, ANYHAL_CHOOSE(hello).
 * Memory   the core sets `size` and zeroes the rest. The table and the strings live as long as the
 *          process, `self` as long as the instance: for ever, since libraries are not closed.
 * Errors   the core checks it all again and refuses with ABI_MISMATCH what does not fit: a version
 *          outside either range, unknown flags, no fingerprints or ones of another layout, a short
 *          table, a required slot that is NULL.
 * Since    0.1, frozen: this record never grows. */
typedef struct anyhal_reply {
  uint32_t size;
  uint32_t flags; /* ANYHAL_REPLY_* */
  uint32_t chosen;
  uint32_t abi_min;
  uint32_t abi_max;
  uint32_t registry_version; /* ANYHAL_REGISTRY_VERSION of the ops.h it was built with */
  const anyhal_table* table;
  anyhal_self* self;            /* passed to the slots that take it; one per instance */
  const char* build_id;         /* names this build, for plan keys and certificates */
  const uint64_t* fingerprints; /* anyhal_fingerprints of the fingerprints.h it was built with */
  uint32_t fingerprint_count;   /* ANYHAL_FINGERPRINT_COUNT */
  uint32_t reserved;
} anyhal_reply;

/* The highest version that backend and core both speak, or 0: then the backend fills abi_min and
 * abi_max and answers ABI_MISMATCH. */
#define ANYHAL_CHOOSE(hello)                                                         \
  ((hello)->abi_max < ANYHAL_ABI_FLOOR || (hello)->abi_min > ANYHAL_ABI_VERSION ? 0u \
   : (hello)->abi_max < ANYHAL_ABI_VERSION ? (hello)->abi_max                        \
                                           : ANYHAL_ABI_VERSION)

/* Makes one instance of the backend. The only symbol that a backend exports.
 *
 * Memory   may allocate; the instance is never torn down, see notify(EXIT).
 * Order    opens no device and touches no hardware beyond what finding it takes.
 * Threads  one call at a time per library, several per process: one per instance.
 * Errors   ABI_MISMATCH      the ranges do not meet; the text names both and which side to upgrade
 *          NOT_FOUND         a library or setting this instance needs; the text says which
 *          INVALID_ARGUMENT  a setting whose value makes no sense; the text says which
 * Required yes. Since 0.1, frozen. Zero devices is not an error. */
typedef anyhal_status (*anyhal_backend_main_fn)(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error);
#define ANYHAL_ENTRY_SYMBOL "anyhal_backend_main"

/* Devices. */

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
  uint32_t flags;            /* ANYHAL_MEMORY_* */
  uint32_t heap;             /* kinds of one heap share its bytes */
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
  ANYHAL_DEVICE_SIMULATED = 8u, /* plays a device: its results count, its speed does not; routed to
                                 * by name alone */
};

typedef enum anyhal_recovery {
  ANYHAL_RECOVERY_NONE = 0,
  ANYHAL_RECOVERY_PROCESS = 1,
  ANYHAL_RECOVERY_REOPEN = 2,
} anyhal_recovery;

typedef struct anyhal_device_info {
  uint32_t size;
  uint32_t flags;   /* ANYHAL_DEVICE_* */
  uint64_t id;      /* the backend's own, passed to device_open */
  uint8_t uuid[16]; /* all zero = unknown */
  uint32_t pci_domain;
  uint32_t pci_function; /* bus << 8 | device << 3 | function; both zero = none */
  char name[64];
  char arch[32];
  char driver[64];
  const anyhal_memory_kind* kinds; /* lives with the instance */
  uint32_t kind_count;
  uint32_t queue_count_max; /* 0 = any number */
  uint32_t queue_depth;     /* calls in flight on a queue before enqueue blocks; 0 = deep enough */
  uint32_t preferred_alignment;
  uint32_t rank_max;
  uint32_t recovery;    /* anyhal_recovery */
  uint32_t own_threads; /* threads a vendor library keeps; 0 = none */
  uint32_t reserved;
  uint64_t tensor_bytes_max;
  uint64_t timestamp_hz; /* 0 = no time stamps */
} anyhal_device_info;

/* Memory. */

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

/* Ops. */

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
  uint32_t alias_of;    /* operand number + 1 whose bytes this one equals exactly; 0 = no overlap */
  uint64_t block_bytes; /* cells only: bytes of the block and where the view starts in it */
  uint64_t base_offset;
  int64_t value_min; /* integer operands: bounds known at prepare; both 0 = unknown */
  int64_t value_max;
  uint64_t content_id; /* CONSTANT: same id, same bytes; 0 = unknown */
  anyhal_ref content;  /* CONSTANT: readable at prepare when memory is not 0 */
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

/* numerics[ANYHAL_NUMERICS_ACCUMULATE]: the least that products may be computed with. A permission:
 * whoever has nothing faster refuses it, and the core asks again for strict. */
typedef enum anyhal_accumulate {
  ANYHAL_ACCUMULATE_STRICT = 0,
  ANYHAL_ACCUMULATE_TF32 = 1, /* f32 factors keep 10 bits of fraction */
  ANYHAL_ACCUMULATE_BF16 = 2, /* f32 factors are rounded to bf16 */
  ANYHAL_ACCUMULATE_INT8 = 3, /* factors that multiply quantised ones are rounded to 8 bits */
} anyhal_accumulate;

/* numerics[ANYHAL_NUMERICS_DETERMINISM]: a demand, met or refused with reason numerics. */
typedef enum anyhal_determinism {
  ANYHAL_DETERMINISM_RUN_TO_RUN = 0,      /* the same call gives the same bits again */
  ANYHAL_DETERMINISM_NONE = 1,            /* nothing is asked */
  ANYHAL_DETERMINISM_BATCH_INVARIANT = 2, /* a row's bits do not depend on the other rows */
  ANYHAL_DETERMINISM_CROSS_DEVICE = 3,    /* the op's reference, bit by bit */
} anyhal_determinism;

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

/* Layout that a YES asks for: the core copies the operands that have another, visibly, and asks
 * again with the copies before it prepares. */
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
  uint32_t flags;         /* ANYHAL_VERDICT_* */
  uint32_t support;       /* anyhal_support */
  int32_t reason;         /* anyhal_reason, when NO */
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
  uint32_t workspace_alignment; /* at most 256, or the memory kind's base_alignment */
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

/* Queues. */

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
  uint64_t failed_tag;   /* tag of the call that failed; 0 = not known which it was */
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

/* Graphs and kernels. */

typedef enum anyhal_value_kind {
  ANYHAL_VALUE_BINDING = 1,
  ANYHAL_VALUE_FIXED = 2,
  ANYHAL_VALUE_INTERMEDIATE = 3,
} anyhal_value_kind;

/* A place that entries name: a block from some byte on. Places in one block have refs with the same
 * `memory`; entries describe for themselves what they see there. FIXED: constants, and the absent
 * operand (memory 0). INTERMEDIATE: nothing but the list knows the block; its bytes are undefined
 * after a launch, and a compiler need not keep them in memory. BINDING: everything else; the
 * bindings that are only read have the lower numbers. */
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

/* How a kernel is called. Its parameters lie in one buffer: first the addresses of the operands
 * that are memory, 8 bytes each from offset 0; then the last parameter_count operands, which are
 * INLINE, each at its offset and of its bytes. */
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

/* Facts and events. */

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
  uint32_t flags;     /* ANYHAL_CAPABILITY_* */
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

/* The table. */

/* The 25 slots, called by the core and by nobody else.
 *
 * Each comment has, in this order and where it says more than the signature: effect, Units, Memory,
 * Order, Threads, Errors (code by code, with the core's next move), Required and since. For all:
 *
 * Memory   what a pointer argument points to is read before return and may change after it, unless
 *          the comment says otherwise; a record from the caller has its size set, and the callee
 *          writes only the prefix both sides know.
 * Threads  any thread, and beside any other call, except that calls on one queue come one at a
 *          time. A slot that changes the thread's current context restores it.
 * Errors   a slot that fails fills `error` and has done nothing: nothing queued, written,
 *          re-pointed or kept. Any slot may answer INVALID_ARGUMENT for a broken rule, DEVICE_LOST
 *          (sticky: the core marks the device, then only releases with ABANDON) and INTERNAL.
 * Required "yes"; "unless synchronous" (reply flag); "unless host memory" (every kind is linear,
 *          host-visible and coherent); or "no": absent means NULL, and the core answers
 *          UNSUPPORTED in its place. */
struct anyhal_table {
  uint32_t size; /* sizeof(anyhal_table) of the header the backend was built with */
  uint32_t flags;

  /* 1. Lists the devices of this instance, present and usable or not.
   *
   * Memory   writes at most `capacity` records, whose size the core has set; *out_total is the
   *          number that exists. What a record points to lives with the instance.
   * Order    makes no context and no connection where the stack allows; cheap enough to repeat.
   * Errors   none for zero devices: that is OK with *out_total 0
   *          NOT_FOUND  the driver itself is missing; the text says what to install
   * Required yes. Since 0.1. */
  anyhal_status (*device_list)(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                               uint32_t* out_total, anyhal_error* error);

  /* 2. Makes one device usable. The core opens a device once at a time.
   *
   * Memory   *out_device lives until release. *out_address_block is a memory handle with base 0
   *          where the device can use host addresses as they are ({address block, pointer} then
   *          names foreign memory), else 0. Neither it nor its memory is released on its own.
   * Errors   NOT_FOUND      no such id, or it went away; the core lists again
   *          OUT_OF_MEMORY  of the driver's own; the core gives up on this device for now
   *          DEVICE_LOST    it is there and does not answer
   * Required yes. Since 0.1. */
  anyhal_status (*device_open)(anyhal_self* self, uint64_t device_id, const anyhal_setting* options,
                               uint32_t option_count, anyhal_device** out_device,
                               uint64_t* out_address_block, anyhal_error* error);

  /* 3. Makes one block of memory of one kind. The core calls it only to grow its pools.
   *
   * Units    bytes, a multiple of the kind's granularity, not 0.
   * Memory   the block lives until release; its content is undefined. A cell block is empty until
   *          its first whole write, and no driver call need happen before.
   * Order    at once, ordered behind nothing. Not called while a PINS_MEMORY plan lives.
   * Errors   OUT_OF_MEMORY     nothing changed; the core trims, then tries again
   *          INVALID_ARGUMENT  no such kind, or larger than block_bytes_max
   * Required yes. Since 0.1. */
  anyhal_status (*memory_alloc)(anyhal_device* device, const anyhal_memory_request* request,
                                anyhal_memory_block* out_block, anyhal_error* error);

  /* 4. Would this device run exactly this operation?
   *
   * Memory   reads `desc`, never the operands' bytes; keeps nothing; allocates nothing.
   * Order    pure: same description, same answer, until the settings change. Under 10 us.
   * Errors   none for "no": that is OK with support NO, a typed reason and the operand it is about.
   *          UNSUPPORTED from op_prepare after a YES here is a defect of the backend.
   * Required yes. Since 0.1. */
  anyhal_status (*op_query)(anyhal_device* device, const anyhal_op_desc* desc,
                            anyhal_verdict* verdict, anyhal_error* error);

  /* 5. Does everything slow about an operation, once.
   *
   * Memory   keeps no pointer into `desc`. *out_prepared belongs to the plan and lives with it.
   *          Content of CONSTANT operands may be read here and only here.
   * Order    may take minutes; polls desc->cancel when it does. Queues no work.
   * Threads  the plan is immutable: it runs on any queue, on two at once unless it said SERIAL.
   * Errors   UNSUPPORTED    error.reason says why; routing tries something else
   *          OUT_OF_MEMORY  the core trims, then tries again
   *          CANCELLED      the cancel word was set
   * Required yes. Since 0.1. */
  anyhal_status (*op_prepare)(anyhal_device* device, const anyhal_op_desc* desc,
                              anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                              anyhal_error* error);

  /* 6. Runs a plan: op, graph or kernel.
   *
   * Memory   the arrays of `call` may be reused at once; the blocks that its refs name stay until
   *          the work is done. From the second call of a plan on: no heap or driver allocation, no
   *          compile, no search, no lock that another queue can hold.
   * Order    queued behind the queue's earlier calls; when SYNCHRONOUS, queue is NULL and the work
   *          is done on return. Conflicting calls arrive in program order.
   * Errors   INVALID_ARGUMENT  values that only the call knows (an index out of range); who learns
   *                            them later says so in host_wait
   *          OUT_OF_MEMORY     not accepted; the core trims, then tries again
   *          EXECUTION_FAILED  synchronous: this run failed; else: the queue is dead already
   * Required yes. Since 0.1. */
  anyhal_status (*op_enqueue)(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                              anyhal_error* error);

  /* 7. Ends the life of any object.
   *
   * Memory   after OK the handle names nothing. ABANDON forgets the object without touching the
   *          driver: after device loss and in a forked child.
   * Order    never blocks. No pending work uses the object, or its device is lost.
   * Errors   INVALID_ARGUMENT  not such an object, or released before
   * Required yes. Since 0.1. */
  anyhal_status (*release)(anyhal_self* self, uint32_t object_kind, uint64_t object, uint32_t flags,
                           anyhal_error* error);

  /* 8. Makes an in-order queue with its counter at 0.
   *
   * Memory   lives until release; per-call state of a vendor library belongs here, not in plans.
   * Errors   OUT_OF_MEMORY  or queue_count_max reached; the core shares a queue it has
   * Required unless synchronous. Since 0.1. */
  anyhal_status (*queue_create)(anyhal_device* device, const anyhal_queue_options* options,
                                anyhal_queue** out_queue, anyhal_error* error);

  /* 9. Submits everything queued so far and marks the position with a value.
   *
   * Units    `value` rises from call to call; the core chooses it.
   * Order    does not wait. The only promise of progress: work before it finishes without further
   *          calls, work after it may sit until the next signal.
   * Errors   EXECUTION_FAILED  the queue is dead; the core reads host_wait and makes another
   * Required unless synchronous. Since 0.1. */
  anyhal_status (*queue_signal)(anyhal_queue* queue, uint64_t value, anyhal_error* error);

  /* 10. Orders the later calls of `queue` behind a position of another queue of this instance.
   *
   * Units    a value between two signals means the later one, as in host_wait and queue_notify.
   * Order    `value` was signalled on `source` before: waiting on an unsubmitted value is a defect
   *          of the core, and some stacks would silently not wait.
   * Errors   UNSUPPORTED       no such edge between these devices; the core holds the calls back
   *          INVALID_ARGUMENT  the value was not submitted
   * Required no: absent, the core holds calls back until the source has arrived. Since 0.1. */
  anyhal_status (*queue_wait)(anyhal_queue* queue, anyhal_queue* source, uint64_t value,
                              anyhal_error* error);

  /* 11. Polls or waits for a signalled value of one queue, and reports how far the queue is.
   *
   * Units    nanoseconds; 0 polls, ANYHAL_NO_LIMIT waits for ever.
   * Memory   fills `state` whatever the status.
   * Order    submits nothing. Honours its limit, and ends in finite time when the device is lost.
   * Threads  also beside calls on the same queue.
   * Errors   TIMEOUT           not reached yet; the work goes on
   *          EXECUTION_FAILED  the queue is dead; `state` names the first value and the call
   *          OUT_OF_MEMORY     the same, for accepted work that found no memory: the in-place
   *                            operands of the failed call are lost
   *          INVALID_ARGUMENT  the same, with `state` saying so too, for values that only the
   *                            device saw (an index out of range): the failed call, or the
   *                            failed entry of a graph, wrote nothing
   * Required unless synchronous. Since 0.1. */
  anyhal_status (*host_wait)(anyhal_queue* queue, uint64_t value, uint64_t limit_ns,
                             anyhal_queue_state* state, anyhal_error* error);

  /* 12. Copies bytes between blocks of this instance.
   *
   * Units    bytes; a region of 0 bytes is allowed and moves nothing.
   * Memory   regions do not overlap. Part of a cell needs its kind's PARTIAL_READ or PARTIAL_WRITE;
   *          else the region is the whole block.
   * Order    queued; done on return, with queue NULL, when SYNCHRONOUS.
   * Errors   UNSUPPORTED  this device cannot reach that memory; the core stages through the host
   * Required unless host memory. Since 0.1. */
  anyhal_status (*queue_copy)(anyhal_queue* queue, const anyhal_copy_region* regions,
                              uint32_t region_count, anyhal_error* error);

  /* 13. Reads a changing fact.
   *
   * Units    see anyhal_query_key.
   * Memory   writes at most *bytes to `value`; *bytes becomes the size of the answer. `value` may
   *          be NULL with *bytes 0 to ask for the size.
   * Order    no device work.
   * Errors   NOT_FOUND         this backend does not know the key or the argument
   *          INVALID_ARGUMENT  too little room; *bytes says how much it takes
   * Required no. Since 0.1. */
  anyhal_status (*device_query)(anyhal_device* device, uint32_t key, uint64_t argument, void* value,
                                uint64_t* bytes, anyhal_error* error);

  /* 14. Begins (READ, WRITE or both) or ends (END) a host access to a range.
   *
   * Units    bytes from the ref's offset.
   * Memory   the pointer is good until the END with the same ref and bytes. Caches are flushed and
   *          invalidated as the flags ask.
   * Order    at once: the core has made the range idle.
   * Errors   UNSUPPORTED  not host-visible; the core copies to a kind that is
   * Required no: absent where host addresses are stable or there are none. Since 0.1. */
  anyhal_status (*memory_map)(anyhal_device* device, anyhal_ref ref, uint64_t bytes, uint32_t flags,
                              void** out_pointer, anyhal_error* error);

  /* 15. Shows foreign memory as a block.
   *
   * Memory   the owner keeps it alive until release, which drops the view and not the memory.
   * Errors   UNSUPPORTED  this type, alignment or owner cannot be imported; the core copies
   * Required no. Since 0.1. */
  anyhal_status (*memory_import)(anyhal_device* device, const anyhal_memory_import* import,
                                 anyhal_memory_block* out_block, anyhal_error* error);

  /* 16. Writes the packed form of a constant operand, as one of the plan's pack requests asked.
   *
   * Memory   `destination` has the bytes and alignment of the request and belongs to the core,
   *          which gives it to every plan with an equal key.
   * Order    queued; done on return, with queue NULL, when SYNCHRONOUS.
   * Required when a plan asks for a pack. Since 0.1. */
  anyhal_status (*constant_pack)(anyhal_queue* queue, anyhal_plan* plan, uint32_t operand,
                                 anyhal_ref source, anyhal_ref destination, anyhal_error* error);

  /* 17. Repeats a byte pattern over a range.
   *
   * Units    pattern_bytes 1, 2 or 4; `bytes` is a multiple of it.
   * Memory   the pattern is read before return.
   * Order    queued; done on return, with queue NULL, when SYNCHRONOUS.
   * Errors   UNSUPPORTED  this pattern or range; the core uses the op `fill`
   * Required no. Since 0.1. */
  anyhal_status (*queue_fill)(anyhal_queue* queue, anyhal_ref ref, uint64_t bytes,
                              const void* pattern, uint32_t pattern_bytes, anyhal_error* error);

  /* 18. Calls fn exactly once, when a signalled value is reached or has failed.
   *
   * Memory   fn and argument live until that call.
   * Order    after a failure at the latest with the next host_wait or queue_notify on the device.
   * Threads  fn runs on any thread, also on this one before return; it only posts to the core.
   * Errors   INVALID_ARGUMENT  the value was not submitted; fn will not be called
   * Required no: absent, the core polls. Since 0.1. */
  anyhal_status (*queue_notify)(anyhal_queue* queue, uint64_t value, anyhal_notify_fn fn,
                                void* argument, anyhal_error* error);

  /* 19. Records or compiles a list of calls into one plan, launched by op_enqueue.
   *
   * Memory   as op_prepare. A launch's operands are the bindings, in number order; without REBIND
   *          they equal the refs given here. Entries name no workspace: what they need is part of
   *          the graph's own workspace_bytes, which every launch gives. Entries that come one after
   *          another may share it, and launches do.
   * Order    touches no queue, so a failure spoils none.
   * Errors   UNSUPPORTED  *out_failing_entry names what could not be taken; the core tries the
   *                       other mode, then replays its own recording
   * Required no. Since 0.1. */
  anyhal_status (*graph_prepare)(anyhal_device* device, const anyhal_graph_desc* desc,
                                 anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                 uint32_t* out_failing_entry, anyhal_error* error);

  /* 20. Loads device code.
   *
   * Memory   the payload's bytes may go after return.
   * Errors   UNSUPPORTED  with reason ARCHITECTURE, naming what the code was built for and what
   *                       this device is; never runs code for a sibling on its own
   * Required no. Since 0.1. */
  anyhal_status (*module_load)(anyhal_device* device, const anyhal_payload* payload,
                               anyhal_module** out_module, anyhal_error* error);

  /* 21. Makes a plan of one kernel of a module.
   *
   * Memory   as op_prepare; the module outlives the plan. Parameters travel as INLINE operands.
   * Errors   NOT_FOUND  no such entry in the module
   * Required with module_load. Since 0.1. */
  anyhal_status (*kernel_prepare)(anyhal_module* module, const char* entry,
                                  const anyhal_signature* signature, anyhal_plan** out_plan,
                                  const anyhal_prepared** out_prepared, anyhal_error* error);

  /* 22. Lets the caller put vendor work of its own into the queue.
   *
   * Memory   `operands` names all the work touches; their addresses are resolved for the callback.
   * Order    the callback runs once, before return, and must not wait; what it queues runs in
   *          order.
   * Errors   UNSUPPORTED  no native queue to show; whatever the callback returns is passed on
   * Required no. Since 0.1. */
  anyhal_status (*queue_native)(anyhal_queue* queue, anyhal_native_fn callback, void* argument,
                                const anyhal_native_operand* operands, uint32_t operand_count,
                                anyhal_error* error);

  /* 23. Shows the vendor's handle behind an object.
   *
   * Memory   *out_owned 1: the caller ends it by the vendor's own means; 0: it lives with the
   *                     object.
   * Errors   UNSUPPORTED  nothing behind this kind of object
   * Required no. Since 0.1. */
  anyhal_status (*native_handle)(anyhal_self* self, uint32_t object_kind, uint64_t object,
                                 uint64_t* out_handle, uint32_t* out_type, uint32_t* out_owned,
                                 anyhal_error* error);

  /* 24. Tells of an event in the life of the process or the instance.
   *
   * Units    *out_bytes: memory given back to the system or the device (TRIM); else 0.
   * Order    FORK_CHILD and EXIT: no other call is running; afterwards only release with ABANDON,
   *          unless the backend re-arms itself in a child.
   * Errors   none that matters: an event not known is OK.
   * Required no. Since 0.1. */
  anyhal_status (*notify)(anyhal_self* self, uint32_t event, uint64_t argument, uint64_t* out_bytes,
                          anyhal_error* error);

  /* 25. Finds a named table of functions beyond this contract.
   *
   * Units    `since`: the lowest version of the table that serves the caller.
   * Memory   the table lives with the instance and begins with its size and version, u32 each.
   * Errors   NOT_FOUND  no such name, or only older ones
   * Required no. Since 0.1. */
  anyhal_status (*extension)(anyhal_self* self, const char* name, uint32_t since,
                             const void** out_table, anyhal_error* error);
};

#ifdef __cplusplus
}
#endif

#endif /* ANYHAL_BACKEND_H_ */
