// A tiny host for the known answers: opens a backend, runs one op on arrays, counts failures.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_ABI_KNOWN_ANSWERS_H_
#define TESTS_ABI_KNOWN_ANSWERS_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

inline int failures = 0;
inline int checks = 0;

#define CHECK(condition, ...)                                     \
  do {                                                            \
    ++checks;                                                     \
    if (!(condition)) {                                           \
      ++failures;                                                 \
      std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                   \
      std::printf("\n");                                          \
    }                                                             \
  } while (false)

// An operand: a typed view of bytes that the test keeps.
struct Operand {
  uint32_t dtype = 0;
  std::vector<int64_t> dims, strides;
  void* data = nullptr;
  uint32_t alias_of = 0;
  uint32_t flags = 0;

  Operand step(std::vector<int64_t> new_strides) const {
    Operand o = *this;
    o.strides = std::move(new_strides);
    return o;
  }
  Operand alias(uint32_t input) const {
    Operand o = *this;
    o.alias_of = input + 1;
    return o;
  }
};

inline Operand absent() {
  Operand o;
  o.flags = ANYHAL_TENSOR_ABSENT;
  return o;
}

template <class T>
constexpr uint32_t dtype_number() {
  if (std::is_same_v<T, float>) return ANYHAL_DTYPE_F32;
  if (std::is_same_v<T, double>) return ANYHAL_DTYPE_F64;
  if (std::is_same_v<T, int64_t>) return ANYHAL_DTYPE_I64;
  if (std::is_same_v<T, int32_t>) return ANYHAL_DTYPE_I32;
  if (std::is_same_v<T, int8_t>) return ANYHAL_DTYPE_I8;
  if (std::is_same_v<T, uint8_t>) return ANYHAL_DTYPE_U8;
  if (std::is_same_v<T, bool>) return ANYHAL_DTYPE_BOOL;
  if (std::is_same_v<T, uint16_t>) return ANYHAL_DTYPE_F16;
  return ANYHAL_DTYPE_NONE;
}

// A dense array and its operand.
template <class T>
struct Array {
  std::vector<T> values;
  std::vector<int64_t> dims;

  Array(std::vector<int64_t> d, std::vector<T> v) : values(std::move(v)), dims(std::move(d)) {
    values.reserve(1);  // an address even when empty
  }
  static Array full(std::vector<int64_t> d, T value) {
    int64_t count = 1;
    for (int64_t n : d) count *= n;
    return Array(d, std::vector<T>(static_cast<size_t>(count), value));
  }
  operator Operand() {
    Operand o;
    o.dtype = dtype_number<T>();
    o.dims = dims;
    o.strides.resize(dims.size());
    int64_t stride = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      o.strides[d] = stride;
      stride *= dims[d] > 0 ? dims[d] : 1;
    }
    o.data = values.data();
    return o;
  }
  Operand op() { return *this; }
};

struct Result {
  anyhal_status status = ANYHAL_STATUS_OK;
  anyhal_verdict verdict = {};
  std::string text;
  bool ran() const { return status == ANYHAL_STATUS_OK && verdict.support == ANYHAL_SUPPORT_YES; }
};

constexpr int kNotHere = 77;  // exit status: a backend that this host does not drive; says why

class Host {
 public:
  explicit Host(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::printf("cannot open %s: %s\n", path, dlerror());
      std::exit(2);
    }
    entry_ = reinterpret_cast<anyhal_backend_main_fn>(dlsym(library, ANYHAL_ENTRY_SYMBOL));
    services_.size = sizeof(services_);
    services_.parallel_for = [](void*, uint32_t count, void (*fn)(void*, uint32_t),
                                void* argument) {
      for (uint32_t i = 0; i < count; ++i) fn(argument, i);
    };
    services_.thread_count = [](void*) { return 3u; };  // shares are cut, then run in turn
    services_.setting = [](void*, const char*) -> const char* { return nullptr; };
    services_.log = [](void*, int32_t, const char*) {};
    const anyhal_status status = hello(ANYHAL_ABI_VERSION, ANYHAL_ABI_VERSION);
    if (status == ANYHAL_STATUS_NOT_FOUND) leave(error.text);
    CHECK(status == ANYHAL_STATUS_OK, "%s", error.text);
    if ((reply.flags & ANYHAL_REPLY_SYNCHRONOUS) == 0) leave("it has queues");
    table = reply.table;
    CHECK(table->device_open(reply.self, 0, nullptr, 0, &device, &address_block, &error) ==
              ANYHAL_STATUS_OK,
          "%s", error.text);
  }

  anyhal_status hello(uint32_t abi_min, uint32_t abi_max) {
    anyhal_hello hello = {};
    hello.size = sizeof(hello);
    hello.abi_min = abi_min;
    hello.abi_max = abi_max;
    hello.services = &services_;
    hello.instance_name = "known answers";
    reply = {};
    reply.size = sizeof(reply);
    clear();
    return entry_(&hello, &reply, &error);
  }

  // Describes the op to `use`, which gets the description.
  template <class Use>
  void describe(uint32_t op, const std::vector<Operand>& operands, const void* attributes,
                uint32_t attributes_size, Use use) {
    std::vector<anyhal_tensor_desc> tensors(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      anyhal_tensor_desc& t = tensors[i];
      t = {};
      t.size = sizeof(t);
      t.flags = operands[i].flags;
      t.dtype = operands[i].dtype;
      t.rank = static_cast<uint32_t>(operands[i].dims.size());
      t.dims = operands[i].dims.data();
      t.strides = operands[i].strides.data();
      t.alias_of = operands[i].alias_of;
    }
    anyhal_op_desc desc = {};
    desc.size = sizeof(desc);
    desc.op = op;
    desc.operand_count = static_cast<uint32_t>(operands.size());
    desc.input_count = desc.operand_count - outputs;
    desc.operands = tensors.data();
    desc.attributes = attributes;
    desc.attributes_size = attributes_size;
    use(desc, tensors);
  }

  Result query(const anyhal_op_desc& desc) {
    Result result;
    result.verdict.size = sizeof(result.verdict);
    clear();
    result.status = table->op_query(device, &desc, &result.verdict, &error);
    result.text = error.text;
    return result;
  }

  // Query, prepare, enqueue, release; what query says and what prepare does must agree.
  Result run(uint32_t op, const std::vector<Operand>& operands, const void* attributes = nullptr,
             uint32_t attributes_size = 0) {
    Result result;
    describe(op, operands, attributes, attributes_size, [&](anyhal_op_desc& desc, auto&) {
      result = query(desc);
      anyhal_plan* plan = nullptr;
      const anyhal_prepared* prepared = nullptr;
      clear();
      anyhal_status status = table->op_prepare(device, &desc, &plan, &prepared, &error);
      CHECK((status == ANYHAL_STATUS_OK) == result.ran(), "op %u: query and prepare disagree: %s",
            op, error.text);
      if (status != ANYHAL_STATUS_OK) return;
      result.status = enqueue(plan, *prepared, operands);
      result.text = error.text;
      table->release(reply.self, ANYHAL_OBJECT_PLAN, reinterpret_cast<uintptr_t>(plan), 0, &error);
    });
    return result;
  }

  template <class Attributes>
  Result run(uint32_t op, const std::vector<Operand>& operands, Attributes attributes) {
    attributes.size = sizeof(attributes);
    outputs = op == ANYHAL_OP_ATTENTION ? 2 : 1;
    return run(op, operands, &attributes, sizeof(attributes));
  }

  uint32_t outputs = 1;  // how many operands at the end are outputs
  anyhal_error error = {};
  anyhal_reply reply = {};
  const anyhal_table* table = nullptr;
  anyhal_device* device = nullptr;
  uint64_t address_block = 0;

 private:
  // A driver that is not installed, or a device whose own tests have its known answers.
  [[noreturn]] static void leave(const char* why) {
    std::printf("%s\n", why);
    std::exit(kNotHere);
  }

  void clear() {
    error = {};
    error.size = sizeof(error);
  }

  anyhal_status enqueue(anyhal_plan* plan, const anyhal_prepared& prepared,
                        const std::vector<Operand>& operands) {
    std::vector<anyhal_ref> refs(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].data == nullptr) continue;
      if ((operands[i].flags & ANYHAL_TENSOR_INLINE) != 0) {
        std::memcpy(&refs[i], operands[i].data, sizeof(float));
      } else {
        refs[i] = {address_block, reinterpret_cast<uintptr_t>(operands[i].data)};
      }
    }
    std::vector<unsigned char> workspace(prepared.workspace_bytes + 64, 0xff);
    anyhal_call call = {};
    call.size = sizeof(call);
    call.operands = refs.data();
    call.operand_count = static_cast<uint32_t>(refs.size());
    call.workspace = {address_block,
                      (reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64};
    clear();
    return table->op_enqueue(nullptr, plan, &call, &error);
  }

  anyhal_services services_ = {};
  anyhal_backend_main_fn entry_ = nullptr;
};

#endif  // TESTS_ABI_KNOWN_ANSWERS_H_
