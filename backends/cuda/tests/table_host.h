// A host that calls a backend's table directly: one device, and what tests put on it.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_TESTS_TABLE_HOST_H_
#define BACKENDS_CUDA_TESTS_TABLE_HOST_H_

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

inline std::atomic<int> failures = 0;
#define CHECK(condition, ...)                             \
  do {                                                    \
    if (!(condition)) {                                   \
      ++failures;                                         \
      std::printf("line %d: %s: ", __LINE__, #condition); \
      std::printf(__VA_ARGS__);                           \
      std::printf("\n");                                  \
    }                                                     \
  } while (false)

constexpr uint64_t kSecond = 1000000000ull;

inline const char* given(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

// One device of the instance, and what tests put on it. Every call's status is kept.
class Host {
 public:
  explicit Host(const char* path, uint64_t id = 0) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) std::printf("%s\n", dlerror()), std::exit(2);
    auto entry = reinterpret_cast<anyhal_backend_main_fn>(dlsym(library, ANYHAL_ENTRY_SYMBOL));
    // Beside a simulated driver lies its own cuBLASLt; a real one's comes with a wheel.
    settings_[0] = {"driver", given("ANYHAL_CUDA_DRIVER")};
    settings_[1] = {"cublaslt", given("CUBLASLT")};
    anyhal_hello hello = {};
    hello.size = sizeof hello;
    hello.abi_min = hello.abi_max = ANYHAL_ABI_VERSION;
    hello.settings = settings_;
    hello.setting_count = 2;
    reply.size = sizeof reply;
    status = entry(&hello, &reply, clear());
    if (status == ANYHAL_STATUS_OK) open(id);
  }

  void open(uint64_t id) {
    uint32_t total = 0;
    uint64_t block = 0;
    t = reply.table;
    status = t->device_list(reply.self, nullptr, 0, &total, clear());
    if (status == ANYHAL_STATUS_OK)
      status = t->device_open(reply.self, id, nullptr, 0, &device, &block, clear());
    if (status != ANYHAL_STATUS_OK) device = nullptr;
  }

  anyhal_error* clear() {
    error = {};
    error.size = sizeof error;
    return &error;
  }

  anyhal_ref block(uint64_t bytes, uint32_t kind = 0, void** host = nullptr) {
    anyhal_memory_request request = {};
    request.size = sizeof request;
    request.kind = kind;
    request.bytes = bytes;
    anyhal_memory_block made = {};
    made.size = sizeof made;
    status = t->memory_alloc(device, &request, &made, clear());
    if (status != ANYHAL_STATUS_OK) {
      worst = status;
      return {0, 0};
    }
    if (host != nullptr) *host = reinterpret_cast<void*>(made.host_address);
    return {made.memory, 0};
  }

  anyhal_queue* queue() {
    anyhal_queue* made = nullptr;
    status = t->queue_create(device, nullptr, &made, clear());
    return status == ANYHAL_STATUS_OK ? made : nullptr;
  }

  anyhal_status release(uint32_t kind, uint64_t object, uint32_t flags = 0) {
    return status = t->release(reply.self, kind, object, flags, clear());
  }
  anyhal_status release(anyhal_ref ref) { return release(ANYHAL_OBJECT_MEMORY, ref.memory); }
  anyhal_status release(anyhal_queue* q) {
    return release(ANYHAL_OBJECT_QUEUE, reinterpret_cast<uint64_t>(q));
  }
  anyhal_status release(anyhal_plan* p) {
    return release(ANYHAL_OBJECT_PLAN, reinterpret_cast<uint64_t>(p));
  }
  anyhal_status close(uint32_t flags = 0) {
    return release(ANYHAL_OBJECT_DEVICE, reinterpret_cast<uint64_t>(device), flags);
  }

  // A plan over dense f32 operands; the last dims are the output's.
  anyhal_plan* plan(uint32_t op, const std::vector<std::vector<int64_t>>& dims,
                    const void* attributes = nullptr, uint32_t attributes_size = 0,
                    const anyhal_prepared** prepared = nullptr, std::vector<uint32_t> dtypes = {}) {
    std::vector<std::vector<int64_t>> strides = dims;
    std::vector<anyhal_tensor_desc> tensors(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      int64_t step = 1;
      for (size_t d = dims[i].size(); d-- > 0; step *= dims[i][d]) strides[i][d] = step;
      anyhal_tensor_desc& x = tensors[i];
      x = {};
      x.size = sizeof x;
      x.dtype = dtypes.empty() ? uint32_t{ANYHAL_DTYPE_F32} : dtypes[i];
      x.rank = static_cast<uint32_t>(dims[i].size());
      x.dims = dims[i].data();
      x.strides = strides[i].data();
      x.alignment = 256;
    }
    anyhal_op_desc desc = {};
    desc.size = sizeof desc;
    desc.op = op;
    desc.operand_count = static_cast<uint32_t>(dims.size());
    desc.input_count = desc.operand_count - 1;
    desc.operands = tensors.data();
    desc.attributes = attributes;
    desc.attributes_size = attributes_size;
    anyhal_plan* made = nullptr;
    const anyhal_prepared* found = nullptr;
    status = t->op_prepare(device, &desc, &made, &found, clear());
    if (prepared != nullptr) *prepared = found;
    return status == ANYHAL_STATUS_OK ? made : nullptr;
  }
  anyhal_plan* binary(int32_t fn, int64_t n) {
    const anyhal_attrs_binary a = {sizeof a, 0, fn, 0};
    return plan(ANYHAL_OP_BINARY, {{n}, {n}, {n}}, &a, sizeof a);
  }

  anyhal_status enqueue(anyhal_queue* q, anyhal_plan* p, std::vector<anyhal_ref> refs,
                        anyhal_ref workspace = {0, 0}, uint64_t tag = 7) {
    anyhal_call call = {};
    call.size = sizeof call;
    call.tag = tag;
    call.operands = refs.data();
    call.operand_count = static_cast<uint32_t>(refs.size());
    call.workspace = workspace;
    return status = t->op_enqueue(q, p, &call, clear());
  }
  anyhal_status copy(anyhal_queue* q, anyhal_ref to, anyhal_ref from, uint64_t bytes) {
    const anyhal_copy_region region = {to, from, bytes};
    return status = t->queue_copy(q, &region, 1, clear());
  }
  anyhal_status wait(anyhal_queue* q, uint64_t value, uint64_t limit = 20 * kSecond) {
    state = {};
    state.size = sizeof state;
    return status = t->host_wait(q, value, limit, &state, clear());
  }
  anyhal_status finish(anyhal_queue* q, uint64_t value) {
    const anyhal_status signalled = t->queue_signal(q, value, clear());
    // A failure may be met here already; the waiter learns the same, and where.
    if (wait(q, value) == ANYHAL_STATUS_OK) status = signalled;
    return status;
  }

  anyhal_reply reply = {};
  const anyhal_table* t = nullptr;
  anyhal_device* device = nullptr;
  anyhal_status status = ANYHAL_STATUS_OK;
  anyhal_status worst = ANYHAL_STATUS_OK;  // of memory_alloc
  anyhal_error error = {};
  anyhal_queue_state state = {};

 private:
  anyhal_setting settings_[2];
};

// Pinned memory of n floats, and device memory beside it.
struct Floats {
  Floats(Host& h, int64_t n, float value) : bytes(static_cast<uint64_t>(n) * 4) {
    void* pointer = nullptr;
    pinned = h.block(bytes, 1, &pointer);
    there = h.block(bytes);
    host = static_cast<float*>(pointer);
    for (int64_t i = 0; host != nullptr && i < n; ++i) host[i] = value;
  }
  void end(Host& h) {
    if (pinned.memory != 0) h.release(pinned);
    if (there.memory != 0) h.release(there);
  }
  uint64_t bytes;
  anyhal_ref pinned, there;
  float* host = nullptr;
};

#endif  // BACKENDS_CUDA_TESTS_TABLE_HOST_H_
