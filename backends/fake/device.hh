// The objects behind the fake backend's handles, and the guard that every slot goes through.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_FAKE_DEVICE_HH_
#define ANYHAL_BACKENDS_FAKE_DEVICE_HH_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/kernels.hh"
#include "script.hh"

namespace hal::fake {

struct Instance;
struct Device;

// Ended objects stay behind as tombstones, so that a use after release is a status and not a crash.
struct Object {
  anyhal_object kind;
  bool alive = true;
  Device* device = nullptr;
  int64_t pending = 0;  // queued work that names this object
};

// The bytes are poisoned with 0xff (NaN in every float type) when made and when given up.
struct Block : Object {
  uint64_t bytes = 0;
  uint32_t kind_index = 0;
  bool cell = false, foreign = false, everything = false;
  uint8_t* data = nullptr;  // null: an empty cell
};

struct Operand {
  Block* block = nullptr;
  uint64_t offset = 0;
  uint64_t inline_value[2] = {};
};

struct Plan : Object {
  enum Type { kOp, kGraph, kKernel } type = kOp;
  Description op;
  std::vector<uint32_t> descriptor_flags;
  std::vector<uint64_t> base_offsets, block_bytes;
  std::vector<int32_t> alias_of;
  uint64_t workspace = 0;
  std::vector<uint8_t> pack_key;
  anyhal_pack pack = {};
  anyhal_prepared prepared = {};
  struct Step;
  std::vector<Step> steps;  // of a graph
  struct Private {
    Operand operand;
    uint64_t bytes;
  };
  std::vector<Private> intermediates;  // of a compiled one: places that hold nothing afterwards
  std::vector<anyhal_ref> fixed;
  uint32_t binding_count = 0;
  uint64_t runs = 0;
  std::vector<Operand> before, first;  // operands of the last run and of the first (bad.cc)
  bool clears = false;                 // its output, before it reads (bad.cc)
  uint8_t scalar_bytes[8] = {};
  Block scalar;  // the number that was operand 1 of the first run (bad.cc)
};

struct Region {
  Operand destination, source;
  uint64_t bytes = 0;
};

struct Queue;

// One queued call.
struct Item {
  enum Type { kRun, kCopy, kFill, kPack, kSignal, kWait } type = kRun;
  uint64_t tag = 0;
  Plan* plan = nullptr;
  std::vector<Operand> operands;
  std::vector<Region> regions;
  Operand workspace;  // of a run
  uint8_t pattern[4] = {};
  const void* pattern_from = nullptr;  // read late (bad.cc)
  uint32_t pattern_bytes = 0;
  uint64_t value = 0;       // signal and wait
  Queue* source = nullptr;  // wait
  int64_t done_ns = -1;     // -1: not submitted
  anyhal_status fails = ANYHAL_STATUS_OK;
};

struct Plan::Step {
  Item item;
  std::vector<int32_t> bindings;  // per operand: number of the binding, or -1 for fixed
};

struct Queue : Object {
  std::deque<Item> items;
  uint32_t flags = 0;
  uint64_t signalled = 0, completed = 0;
  int64_t busy_until_ns = 0;
  anyhal_status status = ANYHAL_STATUS_OK;
  uint64_t failed_value = 0, failed_tag = 0;
  std::string failure;
  int64_t waiters = 0;  // queued waits of others for this queue
};

struct Module : Object {};

struct Device : Object {
  Instance* instance = nullptr;
  uint32_t number = 0;
  bool lost = false, opened = false;
  std::string loss;
  uint64_t live_bytes[2] = {};  // by kind, each with a heap of its own
  std::unique_ptr<Block> address_block;
  std::vector<Queue*> queues;
};

struct Instance {
  std::mutex mutex;
  const anyhal_services* services = nullptr;
  std::string name;
  Script script;
  anyhal_table table = {};
  std::vector<anyhal_memory_kind> kinds;  // two for each device
  uint64_t calls[kSlotCount + 1] = {};
  std::vector<std::vector<uint64_t>> device_calls;  // by device number, then slot
  uint64_t live[ANYHAL_OBJECT_GROUP + 1] = {};
  uint64_t executed = 0, violations = 0;
  uint64_t stream_waits = 0, last_stream = 0;  // of foreign streams
  uint64_t moods = 0;                          // answers of ops that answer now so, now otherwise
  std::vector<std::string> forgotten;          // what refusals leave behind
  std::string violation_text;
  bool forked = false;
  uint32_t number = 0;    // of this library's instances, from 1
  uint64_t refusals = 0;  // of op_prepare
  uint64_t answers = 0;   // what it can do, so often
  bool refused_memory = false, preparing = false;
  static void leak(size_t bytes);
  std::vector<Description> seen;  // what plans were made of (bad.cc)
  std::vector<std::unique_ptr<Device>> devices;
  std::deque<std::unique_ptr<Object, void (*)(Object*)>> graves;  // the latest dead stay
};

// A broken rule of the contract: counted, logged, answered with INVALID_ARGUMENT.
[[noreturn]] void violation(Instance& instance, const std::string& text);

// Counts the call, plays a scripted failure, refuses what a lost device or a forked child refuses.
void admit(Instance& instance, Device* device, uint32_t slot);

// Writes a fault into the caller's record.
anyhal_status fail(anyhal_status status, int32_t reason, const char* text, anyhal_error* error);
anyhal_status fail(const Fault& fault, anyhal_error* error);

// The object behind a handle, if it is alive and of that kind.
void require_alive(Instance& instance, const Object* object, anyhal_object kind);

// Runs a slot's body under the instance's lock; nothing is thrown past it.
template <class Body>
anyhal_status guarded(Instance& instance, Device* device, uint32_t slot, anyhal_error* error,
                      Body body) {
  try {
    std::unique_lock lock(instance.mutex);
    admit(instance, device, slot);
    body(lock);
    return ANYHAL_STATUS_OK;
  } catch (const Fault& fault) {
    return fail(fault, error);
  } catch (const std::bad_alloc&) {
    return fail(ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_NONE, "the host is out of memory",
                error);  // a Fault would want memory for its text
  } catch (const std::exception& failure) {
    return fail(ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE, failure.what(), error);
  }
}

constexpr size_t kTombstones = 64;

// Ended objects beyond the latest are forgotten.
void bury(Instance& instance);

template <class T>
T* adopt(Instance& instance, std::unique_ptr<T> object, anyhal_object kind, Device* device) {
  object->kind = kind;
  object->device = device;
  ++instance.live[kind];
  bury(instance);
  T* raw = object.release();
  instance.graves.emplace_back(raw, [](Object* o) { delete static_cast<T*>(o); });
  return raw;
}

// Whether the script plays a bad behaviour.
inline bool is_bad(const Instance& instance, Bad one) { return instance.script.is(one); }

// bad.cc: what bad behaviours do at the usual places, if the script asks for any.
void bad_before_run(Device& device, Plan& plan, std::vector<Operand>& operands,
                    const Operand& workspace);
void bad_after_run(Device& device, Plan& plan, const std::vector<Operand>& operands);
bool bad_skips(Plan& plan, const std::vector<Operand>& operands);
void bad_plan(Instance& instance, Plan& plan);
void bad_prepare(Instance& instance, std::unique_lock<std::mutex>& lock);
Queue& bad_queue(Queue& queue);
bool bad_block(Device& device, uint32_t purpose, Block& block);
void bad_entry(Instance& instance);
void bad_fork(const Instance& instance);

// memory.cc
Operand resolve(Device& device, const anyhal_ref& ref, uint64_t bytes, const char* what);
uint8_t* bytes_of(const Operand& operand);
void store_whole(Block& block, const uint8_t* bytes);
void make_cell(Block& block);
void empty_block(Block& block);
void check_part(Device& device, const Operand& operand, uint64_t bytes, bool writes);

// queue.cc
void enqueue(Queue& queue, Item item);
void run_now(Queue& queue);
void execute(Device& device, Item& item);
int64_t now_ns();

// plan.cc
void run_plan(Device& device, Plan& plan, std::vector<Operand> operands, const Operand& workspace);
std::vector<Operand> operands_of(Device& device, Plan& plan, const anyhal_call& call);

uint64_t span_of(const anyhal_tensor_desc& desc);  // bytes from the first to the last element

// verdict.cc
void judge(const Device& device, const anyhal_op_desc& desc, anyhal_verdict& verdict,
           std::string& why);
std::vector<anyhal_capability> capabilities(const Script& script, const DeviceScript& device);

// foreign.cc
const void* foreign_table();

// The slots, by the file they are in.
namespace slots {
// device.cc
anyhal_status device_list(anyhal_self*, anyhal_device_info*, uint32_t, uint32_t*, anyhal_error*);
anyhal_status device_open(anyhal_self*, uint64_t, const anyhal_setting*, uint32_t, anyhal_device**,
                          uint64_t*, anyhal_error*);
anyhal_status release(anyhal_self*, uint32_t, uint64_t, uint32_t, anyhal_error*);
anyhal_status device_query(anyhal_device*, uint32_t, uint64_t, void*, uint64_t*, anyhal_error*);
anyhal_status native_handle(anyhal_self*, uint32_t, uint64_t, uint64_t*, uint32_t*, uint32_t*,
                            anyhal_error*);
anyhal_status notify(anyhal_self*, uint32_t, uint64_t, uint64_t*, anyhal_error*);
anyhal_status extension(anyhal_self*, const char*, uint32_t, const void**, anyhal_error*);
// memory.cc
anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request*, anyhal_memory_block*,
                           anyhal_error*);
anyhal_status memory_import(anyhal_device*, const anyhal_memory_import*, anyhal_memory_block*,
                            anyhal_error*);
anyhal_status memory_map(anyhal_device*, anyhal_ref, uint64_t, uint32_t, void**, anyhal_error*);
anyhal_status queue_copy(anyhal_queue*, const anyhal_copy_region*, uint32_t, anyhal_error*);
anyhal_status queue_fill(anyhal_queue*, anyhal_ref, uint64_t, const void*, uint32_t, anyhal_error*);
// plan.cc
anyhal_status op_query(anyhal_device*, const anyhal_op_desc*, anyhal_verdict*, anyhal_error*);
anyhal_status op_prepare(anyhal_device*, const anyhal_op_desc*, anyhal_plan**,
                         const anyhal_prepared**, anyhal_error*);
anyhal_status op_enqueue(anyhal_queue*, anyhal_plan*, const anyhal_call*, anyhal_error*);
anyhal_status constant_pack(anyhal_queue*, anyhal_plan*, uint32_t, anyhal_ref, anyhal_ref,
                            anyhal_error*);
// graph.cc
anyhal_status graph_prepare(anyhal_device*, const anyhal_graph_desc*, anyhal_plan**,
                            const anyhal_prepared**, uint32_t*, anyhal_error*);
anyhal_status module_load(anyhal_device*, const anyhal_payload*, anyhal_module**, anyhal_error*);
anyhal_status kernel_prepare(anyhal_module*, const char*, const anyhal_signature*, anyhal_plan**,
                             const anyhal_prepared**, anyhal_error*);
// queue.cc
anyhal_status queue_create(anyhal_device*, const anyhal_queue_options*, anyhal_queue**,
                           anyhal_error*);
anyhal_status queue_signal(anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status queue_wait(anyhal_queue*, anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status host_wait(anyhal_queue*, uint64_t, uint64_t, anyhal_queue_state*, anyhal_error*);
anyhal_status queue_notify(anyhal_queue*, uint64_t, anyhal_notify_fn, void*, anyhal_error*);
anyhal_status queue_native(anyhal_queue*, anyhal_native_fn, void*, const anyhal_native_operand*,
                           uint32_t, anyhal_error*);
}  // namespace slots

}  // namespace hal::fake

#endif  // ANYHAL_BACKENDS_FAKE_DEVICE_HH_
