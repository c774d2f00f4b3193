// What stands behind the handles of this backend, and the one way from vendor codes to statuses.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_OPENCL_OBJECTS_H_
#define BACKENDS_OPENCL_OBJECTS_H_

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyhal/sdk/table.hpp"
#include "opencl_api.h"

namespace hal::opencl {

constexpr uint32_t kQueues = 32;  // a plan keeps kernel objects for each
constexpr size_t kRecent = 512;   // room for the events of commands between two signals, at first
constexpr uint32_t kDeviceKind = 0, kStagingKind = 1;

// A device as its platform lists it.
struct Found {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  std::string platform_name, name, vendor, version, driver, extensions;
  cl_bitfield type = 0, single = 0, twice = 0;  // floating-point abilities of f32 and f64
  uint64_t global_bytes = 0, block_bytes = 0, local_bytes = 0;
  uint32_t base_alignment = 0, units = 0;
  size_t group_size = 0;
  bool unified = false;
  std::string refusal;  // why it cannot be used; empty = it can
  anyhal_memory_kind kinds[2] = {};
  anyhal_device_info info = {};

  bool doubles() const { return twice != 0; }
};

}  // namespace hal::opencl

namespace hal::opencl {
struct QueueState;
}

struct anyhal_self {
  const anyhal_services* services = nullptr;
  hal::opencl::Api api = {};
  std::string problem;  // why there is nothing to list
  bool broken = false;  // something is installed that does not work, other than nothing
  std::vector<std::string> missing;  // platforms without a device, drivers that cannot be opened
  std::vector<std::unique_ptr<hal::opencl::Found>> found;
  bool out_of_order = false;
  int listed_in = 0;             // the process that listed
  bool threads_to_list = false;  // drivers started threads for that; a forked process has none
};

struct anyhal_device {
  anyhal_self* self = nullptr;
  const hal::opencl::Found* facts = nullptr;
  hal::opencl::cl_context context = nullptr;
  hal::opencl::cl_command_queue mapper = nullptr;  // maps staging blocks; nothing else runs on it
  std::mutex programs_lock;
  std::map<std::string, hal::opencl::cl_program> programs;  // by options and source name
  std::mutex loss_lock;
  std::atomic<bool> lost{false};  // for ever, with the first reason
  int32_t lost_code = 0;
  std::string lost_text;
  std::atomic<uint64_t> used_bytes{0};
  std::atomic<uint64_t> blocks{0}, plans{0}, events{0}, builds{0}, cached_builds{0};
  std::mutex queues_lock;
  std::vector<uint32_t> free_numbers;
};

namespace hal::opencl {

using sdk::absent;
using sdk::Answer;
using sdk::Failure;
using Desc = anyhal_op_desc;
using Tensor = anyhal_tensor_desc;
using Device = anyhal_device;

struct Block {
  Device* device;
  cl_mem memory;
  uint64_t bytes;
  char* host;       // of staging blocks: mapped for as long as they live
  uint64_t serial;  // never 0, never used again
};

// A queue's report of the first index outside its range; twin of Fault in kernels/prelude.cl.
struct Fault {
  cl_int set, padding;
  uint64_t tag;
  int64_t index, limit;
};

// One command. Some drivers go on after a failed one, and complete even markers that wait for it,
// so only its own event tells.
struct Command {
  cl_event event;
  uint64_t tag;  // of its call; 0 = it has none
};

// A signalled position whose event is not known to be complete.
struct Position {
  uint64_t value;
  cl_event event;
  std::vector<Command> commands;  // before it
  std::shared_ptr<Fault> fault;   // where the device puts its report; null: no call checked indices
};

// Told once: by the driver's callback, which takes no lock of ours since the driver may hold its
// own, or by whoever finds the position decided.
struct Waiter {
  uint64_t value;
  anyhal_notify_fn fn;
  void* argument;
  std::shared_ptr<Fault> fault;
  std::atomic<bool> told{false};
};

// What is known of a queue's positions. It outlives the queue while callbacks are to come.
struct QueueState {
  std::mutex lock;
  Device* device = nullptr;      // null once the queue is released
  std::deque<Position> pending;  // in order of value
  std::vector<std::shared_ptr<Waiter>> waiters;
  std::vector<std::shared_ptr<Fault>> spare;
  uint64_t signalled = 0, completed = 0;
  std::atomic<anyhal_status> failure{ANYHAL_STATUS_OK};  // once set, the queue is dead
  uint64_t failed_value = 0, failed_tag = 0;
  int64_t vendor_code = 0;
  char text[240] = "";
  cl_command_queue unflushed = nullptr;  // the driver refused to; asked again by who waits
};

struct Queue {
  Device* device = nullptr;
  uint32_t number = 0;  // of the device's kQueues
  uint64_t serial = 0;  // never 0, never used again
  cl_command_queue handle = nullptr;
  cl_mem fault = nullptr;
  bool checks = false;  // calls since the last signal may have reported a fault
  bool out_of_order = false;
  std::vector<Command> recent;  // since the last signal
  cl_event next = nullptr;      // of the command being enqueued
  std::shared_ptr<QueueState> state;
};

// One argument of a kernel.
struct Argument {
  enum Kind { kBytes, kOperand, kValue, kWorkspace, kFault, kTag } kind = kBytes;
  uint32_t operand = 0;
  std::vector<unsigned char> bytes;
};

struct Launch {
  cl_program program = nullptr;
  std::string kernel;
  std::vector<Argument> arguments;
  cl_uint rank = 1;
  size_t global[3] = {1, 1, 1}, local[3] = {1, 1, 1};
};

// Where an operand was when its arguments were last set. A block's serial is never used again,
// unlike its address.
struct Place {
  uint64_t serial = 0, offset = 0;
};

// The kernel objects of one plan on one queue, with what was last set.
struct Kernels {
  std::vector<cl_kernel> kernels;
  std::vector<Place> places;  // by operand; the workspace last
  uint64_t tag = 0;
  uint64_t queue = 0;  // the serial of the queue whose fault report is set
};

struct Plan {
  Device* device = nullptr;
  anyhal_prepared prepared = {};
  uint32_t operand_count = 0;
  uint32_t memory_count = 0;    // the operands behind are values of a user's kernel
  std::string name;             // of that kernel
  std::vector<uint64_t> spans;  // bytes that each operand reaches; 0 = never touched
  std::vector<Launch> launches;
  bool checks = false;  // reads indices and may report a fault
  std::atomic<Kernels*> on_queue[kQueues] = {};
};

// Where the next command of a queue puts its event, and that it did.
cl_event* next_event(Queue& queue);
void keep_event(Queue& queue, uint64_t tag);

// Later calls on an out-of-order queue come after all earlier ones.
void order_after_all(Queue& queue);
// Answers EXECUTION_FAILED for a queue that is known to be dead, DEVICE_LOST for a lost device.
void require_live(const Queue& queue);

// failure.cc: the status of a refusal by the driver, and the beginning of its sentence.
anyhal_status status_of(cl_int code);
std::string answer_of(const char* what, cl_int code);
// Throws what the driver answered, unless it was success. A lost device answers its first loss.
void check(Device& device, cl_int code, const char* what);
// One line for people; level as in backend.h.
void say(const anyhal_self& self, int32_t level, const std::string& text);
// What the driver did not take back is its leak: nothing can be done but say so.
void gave_back(const anyhal_self& self, cl_int code, const char* what);
// The first loss of a device stays, whatever is seen later.
void lose(Device& device, cl_int code, const std::string& why);
std::string loss_of(Device& device);
void require_present(Device& device);

// Enqueues one command: `command` is given where to put its event.
template <class Enqueue>
void enqueue(Queue& queue, const char* what, uint64_t tag, Enqueue command) {
  check(*queue.device, command(next_event(queue)), what);
  keep_event(queue, tag);
}

// positions.cc
void drop_event(Device& device, cl_event event);
void drop_all(Device& device, const Position& position);
cl_int status_of_event(const Device& device, cl_event event);
// With the state's lock held: takes note of every position that was reached, and of the first that
// never will be.
void settle(QueueState& state);
// The same: hands what was enqueued to the device, or leaves that to who waits.
void submit(QueueState& state, cl_command_queue queue);
// The same: the first pending position at or past `value`, or null.
const Position* position_for(const QueueState& state, uint64_t value);
// The same: its event, retained; null when none is pending, or the driver refuses.
cl_event event_for(const QueueState& state, uint64_t value);
// Without it: settles and tells whom it concerns; has the driver tell.
void look(QueueState& state);
cl_int watch(const std::shared_ptr<QueueState>& state, const std::shared_ptr<Waiter>& waiter,
             cl_event event);
// Whether the position was decided before the limit.
bool wait_until_decided(QueueState& state, uint64_t value, uint64_t limit_ns);
void report(QueueState& state, anyhal_queue_state* out);

// platforms.cc, icd.cc
void find_devices(anyhal_self& self, const char* library);
std::vector<std::string> broken_drivers();
std::vector<std::string> deadly_drivers();  // which the loader would not come back from

// programs.cc; the prelude is text of kernels/prelude.cl, embedded by the build.
extern const char kPreludeSource[];
cl_program program_for(Device& device, const std::string& source, const std::string& options);
// A user's source, built as it is; the caller's to release.
cl_program user_program(Device& device, const std::string& source);

// plan.cc
anyhal_status enqueue_plan(Queue& queue, Plan& plan, const anyhal_call& call, anyhal_error* error);
void release_plan(Plan* plan, bool abandon);

// ops.cc
anyhal_status query_op(const Device& device, const Desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error);
anyhal_status prepare_op(Device& device, const Desc* desc, Plan** out_plan, anyhal_error* error);
anyhal_status capabilities_of(const Device& device, void* value, uint64_t* bytes,
                              anyhal_error* error);

// The slots, by the file they are in.
namespace slots {
// memory.cc
anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request*, anyhal_memory_block*,
                           anyhal_error*);
anyhal_status queue_copy(anyhal_queue*, const anyhal_copy_region*, uint32_t, anyhal_error*);
anyhal_status queue_fill(anyhal_queue*, anyhal_ref, uint64_t, const void*, uint32_t, anyhal_error*);
void release_block(Block* block, bool abandon);
// queue.cc
anyhal_status queue_create(anyhal_device*, const anyhal_queue_options*, anyhal_queue**,
                           anyhal_error*);
anyhal_status queue_signal(anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status queue_wait(anyhal_queue*, anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status host_wait(anyhal_queue*, uint64_t, uint64_t, anyhal_queue_state*, anyhal_error*);
anyhal_status queue_notify(anyhal_queue*, uint64_t, anyhal_notify_fn, void*, anyhal_error*);
anyhal_status queue_native(anyhal_queue*, anyhal_native_fn, void*, const anyhal_native_operand*,
                           uint32_t, anyhal_error*);
void release_queue(Queue* queue, bool abandon);
// module.cc
anyhal_status module_load(anyhal_device*, const anyhal_payload*, anyhal_module**, anyhal_error*);
anyhal_status kernel_prepare(anyhal_module*, const char*, const anyhal_signature*, anyhal_plan**,
                             const anyhal_prepared**, anyhal_error*);
anyhal_status extension(anyhal_self*, const char*, uint32_t, const void**, anyhal_error*);
void release_module(uint64_t object, bool abandon);
}  // namespace slots

}  // namespace hal::opencl

#endif  // BACKENDS_OPENCL_OBJECTS_H_
