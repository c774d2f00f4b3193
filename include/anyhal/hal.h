/* The application interface in C: devices, memory, ops, queues, graphs, receipts. No Python.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Read in this order: errors - devices - memory - tensors and ops - queues - graphs - explain and
 * receipts. The typed functions of the ops (hal_matmul and so on) are in hal_ops.h; how to use it
 * all is in docs/how-to/use-from-c.md.
 *
 * Comments on calls have, in this order and where they say more than the signature: effect, Units,
 * Memory, Order, Threads, Errors (code by code, with the caller's next move), Since. For all:
 *
 * Memory   handles are opaque and never pointers into memory: NULL, a handle of another kind and
 *          one that was released are refused with INVALID_ARGUMENT and reason HANDLE. What a
 *          pointer argument points to is read before return. `out_` arguments are written on
 *          success only.
 * Threads  any thread may make any call, on any handle, at any time. Of a release (hal_free,
 *          hal_queue_release, hal_graph_release) and another thread's call with that handle one is
 *          first: the call is done, or refused with reason HANDLE. What a call uses lives until it
 *          returns. A released handle never comes back. Calls on one queue take turns; calls on
 *          two run side by side, ordered by what they read and write. Records and tensors that the
 *          caller owns (hal_error, hal_tensor, arrays, host memory) belong to one thread at a time.
 *          A fork's child goes on with synchronous devices, whatever other threads were calling,
 *          except with graphs that they were recording; other devices are lost there.
 * Errors   each call returns a status and, when it fails, fills `error` (which may be NULL). Any
 *          call may answer INVALID_ARGUMENT for a NULL or impossible argument, OUT_OF_MEMORY for
 *          the host's memory, DEVICE_LOST (sticky: other devices go on) and INTERNAL (a defect;
 *          the text says whose). What fails has queued and written nothing, unless said otherwise.
 * Since    0.1, unless said otherwise. Numbers are never reused; a draft until 1.0.
 */
#ifndef ANYHAL_HAL_H_
#define ANYHAL_HAL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HAL_EXPORT __attribute__((visibility("default")))
#else
#define HAL_EXPORT
#endif

#define HAL_VERSION_MAJOR 0
#define HAL_VERSION_MINOR 1

/* Errors. */

/* The contract's statuses, by the same numbers. */
typedef enum hal_status {
  HAL_STATUS_OK = 0,
  HAL_STATUS_INVALID_ARGUMENT = 1, /* the caller's mistake */
  HAL_STATUS_UNSUPPORTED = 2,      /* not on this device; the reason says why */
  HAL_STATUS_OUT_OF_MEMORY = 3,    /* nothing happened: free something, then retry */
  HAL_STATUS_DEVICE_LOST = 4,      /* sticky for the device */
  HAL_STATUS_TIMEOUT = 5,          /* the limit passed; the work goes on */
  HAL_STATUS_NOT_FOUND = 6,        /* no such device, backend, file */
  HAL_STATUS_ABI_MISMATCH = 7,     /* versions or hashes do not fit */
  HAL_STATUS_CANCELLED = 8,
  HAL_STATUS_EXECUTION_FAILED = 9, /* accepted work failed later; what it wrote is lost */
  HAL_STATUS_INTERNAL = 10,
} hal_status;

/* Why. Up to POLICY the contract's reasons, by the same numbers; then those of this interface. */
typedef enum hal_reason {
  HAL_REASON_NONE = 0,
  HAL_REASON_OP = 1,
  HAL_REASON_DTYPE = 2,
  HAL_REASON_LAYOUT = 3,
  HAL_REASON_RANK = 4,
  HAL_REASON_SHAPE_LIMIT = 5,
  HAL_REASON_ALIGNMENT = 6,
  HAL_REASON_ATTRIBUTE = 7,
  HAL_REASON_ARCHITECTURE = 8,
  HAL_REASON_DRIVER = 9,
  HAL_REASON_MISSING_LIBRARY = 10,
  HAL_REASON_MISSING_ARTEFACT = 11,
  HAL_REASON_WORKSPACE = 12,
  HAL_REASON_NUMERICS = 13,
  HAL_REASON_MEMORY_KIND = 14,
  HAL_REASON_CAPTURE = 15,
  HAL_REASON_POLICY = 16,
  HAL_REASON_NEEDS_POLICY = 64, /* runs only decomposed or with copies: Python's policy does that */
  HAL_REASON_HANDLE = 65,       /* NULL, another kind, or released */
  HAL_REASON_BOUNDS = 66,       /* leaves its buffer */
  HAL_REASON_ALIASING = 67,     /* operands overlap in a way that the op does not allow */
  HAL_REASON_REGISTRY = 68,     /* the registry file is missing or malformed */
  HAL_REASON_UNTRUSTED = 69,    /* others can write the file, or point a link elsewhere */
  HAL_REASON_HASH = 70,         /* the library is not the one that was registered */
  HAL_REASON_STATE = 71,        /* uncertified and not named, or quarantined */
  HAL_REASON_ENVIRONMENT = 72,  /* a variable cannot be read */
  HAL_REASON_NEEDS_PYTHON = 73, /* the backend is a Python file, which only Python runs */
} hal_reason;

/* Why a call failed: one sentence of what failed, where, why and what to do, and its type.
 *
 * Memory   owned by the caller, who need not set anything; written on failure only, always
 *          terminated, cut where the sentence is longer. Refers to nothing.
 * Since    0.1, frozen: this record never grows. */
typedef struct hal_error {
  int32_t status; /* hal_status, as returned */
  int32_t reason; /* hal_reason */
  char text[504];
} hal_error;

/* Names a status or reason in lower case ("out_of_memory"), as Python and the logs do.
 *
 * Memory   a constant; "unknown_status", "unknown_reason" for other numbers. */
HAL_EXPORT const char* hal_status_name(int32_t status);
HAL_EXPORT const char* hal_reason_name(int32_t reason);

/* Devices. */

typedef struct hal_device hal_device;
typedef struct hal_buffer hal_buffer;
typedef struct hal_queue hal_queue;
typedef struct hal_graph hal_graph;

#define HAL_NO_LIMIT UINT64_MAX

/* What a device is. `size` is set by the caller: the bytes that it has room for. */
typedef struct hal_device_info {
  uint32_t size;
  int32_t rank; /* of its backend: higher is preferred */
  uint64_t memory_bytes;
  char name[64]; /* chip:index */
  char backend[56];
  char state[24]; /* certified, self-tested, provisional, uncertified, quarantined */
  char arch[32];
  char model[64];
  uint32_t synchronous; /* 1: a call that returned is finished */
  uint32_t host_memory; /* 1: hal_buffer_address works */
} hal_device_info;

/* Reads the registry file that `anyhal devices --write-registry` left.
 *
 * Memory   path may be NULL: then ANYHAL_REGISTRY, else registry.tsv in the cache folder. In a
 *          process with more rights than its user both variables are ignored.
 * Order    opens no library. Calls that need devices do this by themselves, so it is needed only
 *          to name the file. After success it may be called again with NULL or the same path.
 * Errors   NOT_FOUND         no such file, or a folder, pipe or device; write it
 *          INVALID_ARGUMENT  reason REGISTRY: malformed, the text names the line; or another file
 *                            was read before
 *          ABI_MISMATCH      reason UNTRUSTED: others can write it
 */
HAL_EXPORT hal_status hal_registry_read(const char* path, hal_error* error);

/* The first usable device of "cuda|cpu:0", made the process's default.
 *
 * Units    names: chip or chip:index exactly as hal_device_info has it, several separated by "|",
 *          tried in that order and nothing else. NULL: the best eligible device by rank, class,
 *          state and memory.
 * Memory   *out_device (may be NULL) lives until the process ends.
 * Order    reads the backends named once into private memory, hashes that, opens and negotiates
 *          it: a library that changes afterwards is not seen. Naming a device allows an
 *          uncertified one; nothing allows a quarantined one. A first name that was passed over is
 *          one line on stderr, once, with the reason.
 * Errors   INVALID_ARGUMENT  one is empty or can be no name, such as CPU:0 or cpu:00
 *          NOT_FOUND         none of them is here; the text says for each why not
 *          ABI_MISMATCH      a named backend is registered and was refused: reason HASH (tampered
 *                            or rebuilt: write the registry again), UNTRUSTED, or its contract */
HAL_EXPORT hal_status hal_select_backend(const char* names, hal_device** out_device,
                                         hal_error* error);

/* The same without making it the default. */
HAL_EXPORT hal_status hal_device_find(const char* names, hal_device** out_device, hal_error* error);

/* Lists the devices of all registered backends, best first.
 *
 * Memory   writes at most `capacity` handles (devices may be NULL with 0); *out_count is how many
 *          there are.
 * Order    opens every backend; one that is refused costs only itself, see hal_explain. */
HAL_EXPORT hal_status hal_device_list(hal_device** devices, uint32_t capacity, uint32_t* out_count,
                                      hal_error* error);

/* Describes a device.
 *
 * Errors   INVALID_ARGUMENT  out_info->size is not set, or smaller than the record of 0.1 */
HAL_EXPORT hal_status hal_device_describe(hal_device* device, hal_device_info* out_info,
                                          hal_error* error);

/* Memory. */

/* What a buffer is for: pools are never mixed. */
typedef enum hal_purpose {
  HAL_PURPOSE_ACTIVATIONS = 0,
  HAL_PURPOSE_WEIGHTS = 1,
  HAL_PURPOSE_CACHE = 2,
} hal_purpose;

/* A buffer of at least `bytes` from the device's pools.
 *
 * Units    bytes; 0 is allowed. purpose: hal_purpose.
 * Memory   content is undefined. Lives until hal_free; aligned to 64 bytes at least.
 * Order    usable on every queue of the device at once. In steady state no driver call is made.
 * Errors   OUT_OF_MEMORY  after waiting for pending work and trimming; the text is the ledger */
HAL_EXPORT hal_status hal_alloc(hal_queue* queue, uint64_t bytes, int32_t purpose,
                                hal_buffer** out_buffer, hal_error* error);

/* Memory of the application's as a buffer, without a copy.
 *
 * Units    bytes.
 * Memory   address stays the caller's, who keeps it alive until `released` (may be NULL) was called
 *          with `argument`: once, after hal_free and the last use, on the thread of whatever call
 *          sees that, hal_queue_wait for everything at the latest; at once from hal_free where
 *          nothing is pending. Of a device that was lost memory is never given back.
 * Order    the caller orders its own accesses: hal_queue_wait first.
 *          A byte is in one buffer of a device at a time, since aliasing, order and freezing are
 *          known by buffer: take parts by offset, and import nothing that hal_buffer_address gave.
 * Threads  `released` may make any call. It is not called where the import failed.
 * Errors   UNSUPPORTED       ALIGNMENT or MEMORY_KIND: the device cannot work on it where it is;
 *                            nothing is copied in silence: use hal_alloc and hal_buffer_write
 *          INVALID_ARGUMENT  ALIASING: a byte is in an imported buffer that was not released yet;
 *                            BOUNDS: it leaves the address space */
HAL_EXPORT hal_status hal_buffer_import(hal_queue* queue, void* address, uint64_t bytes,
                                        void (*released)(void* argument), void* argument,
                                        hal_buffer** out_buffer, hal_error* error);

/* Ends a buffer's life in stream order.
 *
 * Memory   NULL is allowed and does nothing. The bytes are handed out again only after the work
 *          and the calls that use them; graphs that use them keep them. An address that
 *          hal_buffer_address gave is no longer good.
 * Order    never waits. */
HAL_EXPORT hal_status hal_free(hal_buffer* buffer, hal_error* error);

/* Promises that the bytes never change again, so that backends may keep packed copies (weights).
 *
 * Memory   the packed copies live with the buffer. Of imported memory the caller promises it too.
 * Errors   INVALID_ARGUMENT  CAPTURE: a graph is being captured that writes it. Later writes, ops
 * with it as output and launches of graphs that write it are refused so too */
HAL_EXPORT hal_status hal_buffer_freeze(hal_buffer* buffer, hal_error* error);

/* The host address of a buffer's first byte, on devices that compute in host memory.
 *
 * Memory   good until hal_free. The caller orders its own accesses: hal_queue_wait first.
 * Errors   UNSUPPORTED  the host cannot address it; use hal_buffer_read and hal_buffer_write */
HAL_EXPORT hal_status hal_buffer_address(hal_buffer* buffer, void** out_address, hal_error* error);

/* Copies from the host into a buffer.
 *
 * Units    bytes; 0 writes nothing. Devices whose memory holds whole tensors (cells) take only
 *          offset 0 and all bytes of the buffer.
 * Memory   `source` may change after return.
 * Order    queued; ordered with all other work on these bytes.
 * Errors   INVALID_ARGUMENT  BOUNDS: the range leaves the buffer; or the buffer is frozen; or
 *                            CAPTURE: a graph is being captured on the queue, or on another
 *                            and writes these bytes
 *          UNSUPPORTED       MEMORY_KIND: part of a cell */
HAL_EXPORT hal_status hal_buffer_write(hal_queue* queue, hal_buffer* buffer, uint64_t offset_bytes,
                                       const void* source, uint64_t bytes, hal_error* error);

/* Copies from a buffer to the host.
 *
 * Units    as hal_buffer_write; parts of cells may be read.
 * Order    waits for the work that writes these bytes; they are there on return.
 * Errors   as hal_buffer_write, and
 *          EXECUTION_FAILED  the bytes were never computed; run again from inputs still good */
HAL_EXPORT hal_status hal_buffer_read(hal_queue* queue, hal_buffer* buffer, uint64_t offset_bytes,
                                      void* destination, uint64_t bytes, hal_error* error);

/* Copies between buffers of one device or of two.
 *
 * Units    bytes. Cells: whole buffers of equal size.
 * Memory   ranges of one buffer must not overlap.
 * Order    `queue` is of the destination's device. Queued on one device; between two it goes
 *          through the host and waits for the source.
 * Errors   as hal_buffer_read */
HAL_EXPORT hal_status hal_buffer_copy(hal_queue* queue, hal_buffer* destination,
                                      uint64_t destination_offset_bytes, hal_buffer* source,
                                      uint64_t source_offset_bytes, uint64_t bytes,
                                      hal_error* error);

/* Tensors and ops. */

#define HAL_RANK_MAX 8
#define HAL_OPERANDS_MAX 24

/* The contract's element types, by the same numbers. */
typedef enum hal_dtype {
  HAL_DTYPE_F32 = 1,
  HAL_DTYPE_F16 = 2,
  HAL_DTYPE_BF16 = 3,
  HAL_DTYPE_F64 = 4,
  HAL_DTYPE_I64 = 5,
  HAL_DTYPE_I32 = 6,
  HAL_DTYPE_I16 = 7,
  HAL_DTYPE_I8 = 8,
  HAL_DTYPE_U64 = 9,
  HAL_DTYPE_U32 = 10,
  HAL_DTYPE_U16 = 11,
  HAL_DTYPE_U8 = 12,
  HAL_DTYPE_BOOL = 13,
  HAL_DTYPE_F8_E4M3FN = 14,
  HAL_DTYPE_F8_E5M2 = 15,
  HAL_DTYPE_F8_E4M3FNUZ = 16,
  HAL_DTYPE_F8_E5M2FNUZ = 17,
  HAL_DTYPE_Q4_1 = 64,
  HAL_DTYPE_Q8_0 = 65,
  HAL_DTYPE_I4 = 66,
  HAL_DTYPE_U4 = 67,
  HAL_DTYPE_Q4_0 = 68,
  HAL_DTYPE_Q4_K = 69,
  HAL_DTYPE_Q6_K = 70,
} hal_dtype;

/* A view of a buffer; plain data, filled by hand or by hal_tensor_dense.
 *
 * Units    dims count elements; strides count elements (blocks for block dtypes), 0 repeats.
 * Memory   read during the call only. */
typedef struct hal_tensor {
  hal_buffer* buffer; /* hal_explain: may be NULL */
  uint64_t offset_bytes;
  int32_t dtype; /* hal_dtype */
  int32_t rank;
  int64_t dims[HAL_RANK_MAX];
  int64_t strides[HAL_RANK_MAX];
} hal_tensor;

/* The row-major view of a buffer from `offset_bytes` on.
 *
 * Memory   out_bytes (may be NULL) is what such a tensor takes; buffer may be NULL, to ask for it.
 * Errors   INVALID_ARGUMENT  unknown dtype, rank above HAL_RANK_MAX, negative or impossible dims */
HAL_EXPORT hal_status hal_tensor_dense(hal_buffer* buffer, uint64_t offset_bytes, int32_t dtype,
                                       int32_t rank, const int64_t* dims, hal_tensor* out_tensor,
                                       uint64_t* out_bytes, hal_error* error);

/* The view that repeats a tensor to larger dims (stride 0), as ops want their operands.
 *
 * Errors   INVALID_ARGUMENT  a size is neither equal nor 1 */
HAL_EXPORT hal_status hal_tensor_broadcast(const hal_tensor* tensor, int32_t rank,
                                           const int64_t* dims, hal_tensor* out_tensor,
                                           hal_error* error);

/* Runs one op of the registry on the queue's device. hal_ops.h has a typed form of each.
 *
 * Shapes   operands are inputs, then outputs, in registry order (docs/reference/ops), as the
 *          contract has them: the caller gives the outputs' shapes; inputs are broadcast by stride
 *          0; axes count from the front; reduced axes stay with size 1. A NULL operand is absent.
 * Memory   all buffers are of the queue's device. An output may equal an input exactly where the
 *          op's page says so; other overlaps are refused. `attributes` is the op's record
 *          (hal_attrs_...) or NULL where it has none.
 * Order    queued behind the queue's earlier work and behind other queues' work on the same bytes.
 *          The first call of a signature prepares a plan, later ones find it.
 * Errors   INVALID_ARGUMENT  unknown op, wrong number of operands, shapes that do not fit, ALIASING
 *          UNSUPPORTED       the device has no kernel. POLICY: it has one that gave wrong answers
 *                            in the self-test, by the registry file. NEEDS_POLICY: the op could be
 *                            decomposed or its operands copied, which Python's policy does and this
 *                            interface never; else the backend's own reason
 *          OUT_OF_MEMORY     nothing was queued */
HAL_EXPORT hal_status hal_op(hal_queue* queue, uint32_t op, const hal_tensor* const* operands,
                             uint32_t input_count, uint32_t operand_count, const void* attributes,
                             uint32_t attributes_bytes, hal_error* error);

/* Queues. */

/* A new in-order queue.
 *
 * Memory   device may be NULL: the default one. Lives until hal_queue_release. */
HAL_EXPORT hal_status hal_queue_create(hal_device* device, hal_queue** out_queue, hal_error* error);

/* Ends a queue's life.
 *
 * Memory   NULL is allowed and does nothing; buffers used on it live on.
 * Order    waits for the queue's work, so that its failure is not lost.
 * Threads  another thread's call on it that comes later is refused, reason HANDLE; one that waits
 *          goes on waiting to its end.
 * Errors   INVALID_ARGUMENT  CAPTURE: a graph is being captured on it; end it first
 *          EXECUTION_FAILED  as hal_queue_wait; the queue is gone all the same */
HAL_EXPORT hal_status hal_queue_release(hal_queue* queue, hal_error* error);

/* Submits everything so far; *out_value marks that position of the queue's timeline.
 *
 * Units    values rise by calls accepted; position 0 has always been reached.
 * Order    does not wait. */
HAL_EXPORT hal_status hal_queue_signal(hal_queue* queue, uint64_t* out_value, hal_error* error);

/* Orders later work of `queue` behind a position of another queue, of any device.
 *
 * Order    on one backend the devices wait; between two, and where a backend has no such wait, the
 *          host does.
 * Errors   INVALID_ARGUMENT  the value was not submitted: signal first */
HAL_EXPORT hal_status hal_queue_wait_for(hal_queue* queue, hal_queue* source, uint64_t value,
                                         hal_error* error);

/* Whether a position was reached; does not wait. */
HAL_EXPORT hal_status hal_queue_reached(hal_queue* queue, uint64_t value, int32_t* out_reached,
                                        hal_error* error);

/* Waits for a position, or for everything so far (value HAL_NO_LIMIT).
 *
 * Units    limit_ns: nanoseconds, HAL_NO_LIMIT for ever.
 * Errors   TIMEOUT           not reached yet; the work goes on
 *          EXECUTION_FAILED  some of that work failed; what it and later calls wrote is lost
 *          INVALID_ARGUMENT  the value was not submitted */
HAL_EXPORT hal_status hal_queue_wait(hal_queue* queue, uint64_t value, uint64_t limit_ns,
                                     hal_error* error);

/* Native work: what the library does not offer, with the vendor's own means. */

typedef enum hal_native_type {
  HAL_NATIVE_HOST = 1, /* the calling thread */
  HAL_NATIVE_CUDA_STREAM = 2,
  HAL_NATIVE_HIP_STREAM = 3,
  HAL_NATIVE_CL_QUEUE = 4,
  HAL_NATIVE_VK_COMMAND_BUFFER = 5,
} hal_native_type;

/* What a callback gets. */
typedef struct hal_native {
  uint32_t size;
  uint32_t type;            /* hal_native_type */
  uint64_t handle;          /* of the vendor's queue; 0 for the host */
  const uint64_t* operands; /* the buffers' addresses or vendor's handles, as they were named */
  uint32_t operand_count;
  uint32_t reserved;
} hal_native;

/* Returns 0, or a hal_status that hal_queue_native then returns; another number counts as
 * EXECUTION_FAILED. */
typedef int32_t (*hal_native_fn)(void* argument, const hal_native* native);

enum { HAL_ACCESS_READ = 1, HAL_ACCESS_WRITE = 2 };

/* Puts work of the caller's own among the queue's calls.
 *
 * Memory   `buffers` are all that the work touches and `access` (HAL_ACCESS_...) how; at most
 *          HAL_OPERANDS_MAX.
 * Order    the callback runs once, before return. It queues its work on the queue that it is shown
 *          and does not wait; on the host it is the work itself. Behind the queue's earlier calls
 *          and other queues' work on the same bytes, before later ones. It must return: left by
 *          longjmp it leaves the queue locked for ever (a C++ exception becomes INTERNAL).
 * Threads  other threads' calls on the queue wait; the callback may make calls.
 * Errors   UNSUPPORTED       the backend has no queue to show
 *          INVALID_ARGUMENT  a frozen buffer written; another device's; or CAPTURE
 *          what the callback returns */
HAL_EXPORT hal_status hal_queue_native(hal_queue* queue, hal_native_fn callback, void* argument,
                                       hal_buffer* const* buffers, const uint32_t* access,
                                       uint32_t count, hal_error* error);

/* The vendor's handle behind an object. `size` is set by the caller. */
typedef struct hal_native_handle {
  uint32_t size;
  uint32_t type; /* the backend's own number, hal_native_type for queues */
  uint64_t handle;
  uint64_t offset_bytes; /* of a buffer, in the memory behind `handle` */
  uint32_t owned; /* 1: the caller ends it by the vendor's means; 0: it lives with the object */
  uint32_t reserved;
} hal_native_handle;

/* Shows it for a device, queue or buffer.
 *
 * Order    none: hal_queue_native orders. A queue that failed gets another handle.
 * Errors   UNSUPPORTED  nothing is behind this kind of object */
HAL_EXPORT hal_status hal_native_handle_of(const void* object, hal_native_handle* out_handle,
                                           hal_error* error);

/* Kernels of the application's own. */

typedef struct hal_module hal_module;
typedef struct hal_kernel hal_kernel;

/* What a module's code is. Numbers below 64 are the contract's. */
typedef enum hal_format {
  HAL_FORMAT_PTX = 1,
  HAL_FORMAT_CUBIN = 2,
  HAL_FORMAT_HSACO = 3,
  HAL_FORMAT_SPIRV = 4,
  HAL_FORMAT_OPENCL_C = 5,
  HAL_FORMAT_VENDOR = 6,
  HAL_FORMAT_HOST_LIBRARY = 64,  /* a shared library's absolute path, without the final NUL */
  HAL_FORMAT_HOST_FUNCTION = 65, /* the eight bytes of a hal_host_kernel_fn */
} hal_format;

/* A kernel on a device that computes in host memory.
 *
 * Units    arrays: each one's first byte. values: as a struct of them would lie. The grid's parts
 *          run on several threads at once.
 * Errors   0: done; anything else: it failed, and what it was to write does not count. */
typedef int32_t (*hal_host_kernel_fn)(void* const* arrays, const void* values, uint32_t part,
                                      uint32_t parts);

/* Loads code on a device. It runs with the process's rights: load what you trust.
 *
 * Units    format: hal_format. architecture: what binary code was built for ("sm_90"), or NULL.
 * Memory   device may be NULL: the default one. `code` may go after return; a function's own code
 *          stays as long as its kernels. *out_module lives until hal_module_release.
 * Errors   UNSUPPORTED       reason ARCHITECTURE: not this format, or built for another device;
 *                            OP: the device loads no code
 *          NOT_FOUND         nothing is at that path
 *          INVALID_ARGUMENT  a relative path; an address that is NULL; a source with errors */
HAL_EXPORT hal_status hal_module_load(hal_device* device, int32_t format, const void* code,
                                      uint64_t code_bytes, const char* architecture,
                                      hal_module** out_module, hal_error* error);

/* Ends a module's life; its kernels live on. NULL is allowed and does nothing. */
HAL_EXPORT hal_status hal_module_release(hal_module* module, hal_error* error);

/* A parameter of a kernel: a buffer, or a value. */
typedef struct hal_parameter {
  uint32_t access; /* HAL_ACCESS_... of a buffer; 0: a value */
  uint32_t bytes;  /* of a value: 1, 2, 4 or 8; 0 for a buffer */
} hal_parameter;

/* How a kernel is called: buffers first, then values. `size` is set by the caller. */
typedef struct hal_signature {
  uint32_t size;
  uint32_t parameter_count; /* at most HAL_OPERANDS_MAX */
  const hal_parameter* parameters;
  uint32_t grid[3]; /* blocks; on a host device the product is the number of parts. 0 counts as 1 */
  uint32_t block[3]; /* items of a block. 0 counts as 1 */
  uint32_t shared_bytes;
  uint32_t reserved;
} hal_signature;

/* Makes a function of a module callable.
 *
 * Memory   *out_kernel lives until hal_kernel_release and keeps the module's code.
 * Errors   NOT_FOUND         the module has no such function
 *          INVALID_ARGUMENT  a value before a buffer; sizes that make no sense; a signature that is
 *                            visibly not the function's */
HAL_EXPORT hal_status hal_kernel_prepare(hal_module* module, const char* entry,
                                         const hal_signature* signature, hal_kernel** out_kernel,
                                         hal_error* error);

typedef struct hal_argument {
  hal_buffer* buffer; /* NULL for a value */
  uint64_t bits;      /* of a buffer: the offset in bytes; else the value's bytes, low ones first */
} hal_argument;

/* Runs a kernel among a queue's calls; between hal_graph_begin and hal_graph_end it is recorded.
 *
 * Memory   what the kernel does outside its buffers is its own affair. A buffer that is written is
 *          no other argument of the call.
 * Order    as an op's.
 * Errors   INVALID_ARGUMENT  a wrong number or kind of arguments, a frozen buffer written, another
 *                            device's; reason BOUNDS, ALIASING or HANDLE
 *          EXECUTION_FAILED  the function said so, or something that it reads was lost */
HAL_EXPORT hal_status hal_kernel_launch(hal_queue* queue, hal_kernel* kernel,
                                        const hal_argument* arguments, uint32_t argument_count,
                                        hal_error* error);

/* Ends a kernel's life; queued and recorded runs go on. NULL is allowed and does nothing. */
HAL_EXPORT hal_status hal_kernel_release(hal_kernel* kernel, hal_error* error);

/* Finds a named table of functions that a device's backend offers beyond this interface.
 *
 * Units    since: the lowest version that serves; from 1.
 * Memory   the table begins with its size and its version, 32 bits each, and lives as long as the
 *          process. *out_device is what its functions take as their device.
 * Errors   UNSUPPORTED  no such name or version; the text says which there are */
HAL_EXPORT hal_status hal_extension(hal_device* device, const char* name, uint32_t since,
                                    const void** out_table, void** out_device, hal_error* error);

/* Graphs. */

/* Begins a recording: ops on the queue are checked, prepared and recorded instead of run.
 *
 * Threads  other queues go on; what the recorded ops write they do not read or write through the
 *          host before hal_graph_end.
 * Memory   *out_graph lives until hal_graph_release. The graph keeps the buffers it uses.
 * Errors   INVALID_ARGUMENT  CAPTURE: one is being captured on this queue already */
HAL_EXPORT hal_status hal_graph_begin(hal_queue* queue, hal_graph** out_graph, hal_error* error);

/* Ends the recording; the queue runs calls again.
 *
 * Errors   INVALID_ARGUMENT  it was ended before, or nothing was recorded (it is ended then) */
HAL_EXPORT hal_status hal_graph_end(hal_graph* graph, hal_error* error);

/* Runs all recorded ops, in order, on the queue of the recording.
 *
 * Order    as the ops one by one. May be launched any number of times.
 * Errors   INVALID_ARGUMENT  CAPTURE: not ended yet; or the queue was released */
HAL_EXPORT hal_status hal_graph_launch(hal_graph* graph, hal_error* error);

/* Ends a graph's life; one that is still being captured is abandoned and the queue usable.
 *
 * Memory   NULL is allowed and does nothing. Waits for launched work.
 * Threads  another thread's launch that comes later is refused, reason HANDLE. */
HAL_EXPORT hal_status hal_graph_release(hal_graph* graph, hal_error* error);

/* Explain and receipts. */

/* Where a call would run. `size` is set by the caller. */
typedef struct hal_decision {
  uint32_t size;
  int32_t reason;     /* hal_reason of the refusal, when device is NULL */
  hal_device* device; /* NULL: nothing may run it */
  uint64_t cost_ns;   /* the backend's estimate; 0 = unknown */
} hal_decision;

/* Says where a call would run and why, without running it.
 *
 * Shapes   as hal_op. Buffers may be NULL: then the call is asked of every device, best first, and
 *          the first that accepts is the choice. With buffers their device is the only candidate.
 * Memory   `text` gets one line for the choice and one per candidate and refused backend, cut to
 *          text_bytes and terminated; *out_text_bytes (may be NULL) is what the whole text takes.
 *          text may be NULL with 0.
 * Errors   as hal_op, except UNSUPPORTED: that is an answer, with device NULL */
HAL_EXPORT hal_status hal_explain(uint32_t op, const hal_tensor* const* operands,
                                  uint32_t input_count, uint32_t operand_count,
                                  const void* attributes, uint32_t attributes_bytes,
                                  hal_decision* out_decision, char* text, uint64_t text_bytes,
                                  uint64_t* out_text_bytes, hal_error* error);

/* What ran: one call of one plan. */
typedef struct hal_receipt {
  uint64_t sequence; /* counts all receipts of the process; a gap means that some were lost */
  uint64_t time_ns;  /* host time around the call: the work itself on a synchronous device */
  uint32_t op;
  int32_t status; /* of the call's acceptance */
  char device[64];
  char state[24];
  char kernel[72];
  char library[64]; /* "" = the backend's own code */
  char call[128];   /* "matmul f32[4,8] f32[8,16] -> f32[4,16]" */
} hal_receipt;

/* Turns receipts on or off for the process. Off (the start) they cost nothing. */
HAL_EXPORT hal_status hal_receipts_enable(int32_t on, hal_error* error);

/* Reads the last receipts, oldest first; at most 4096 are kept.
 *
 * Memory   writes at most `capacity` records, the newest ones; *out_count is how many it wrote.
 *          receipt_bytes is sizeof(hal_receipt). receipts may be NULL with capacity 0: *out_count
 *          is then how many there are. */
HAL_EXPORT hal_status hal_receipts_read(hal_receipt* receipts, uint32_t capacity,
                                        uint32_t receipt_bytes, uint32_t* out_count,
                                        hal_error* error);

#ifdef __cplusplus
}
#endif

#endif /* ANYHAL_HAL_H_ */
