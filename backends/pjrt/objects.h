// What the contract's handles are here.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_OBJECTS_H_
#define ANYHAL_BACKENDS_PJRT_OBJECTS_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugin.h"
#include "program.h"

namespace hal::pjrt {

// One block. A cell is a place for a device buffer; a staging block is host memory.
struct Block {
  const Plugin* plugin = nullptr;
  uint64_t bytes = 0;
  void* host = nullptr;           // staging
  api::Buffer* buffer = nullptr;  // cell; null: nothing was written yet
  bool lost = false;              // what was in it went with a run that failed
};

inline Block* block_of(const anyhal_ref& ref) { return reinterpret_cast<Block*>(ref.memory); }

// The buffer of a cell that is about to be read; what was never written reads as zeros. Throws.
api::Buffer* filled(Block& cell);

// An operand with positions, which must lie in 0..bound-1.
struct Checked {
  size_t operand;  // its number in the call
  uint32_t dtype;
  int64_t bound;
  std::vector<int64_t> dims, strides;
  uint64_t first;  // byte in the block
};

// A prepared op or graph: a program, and which operand goes where. Immutable.
struct Plan {
  struct Parameter {
    size_t operand;
    bool donated;
  };
  struct Result {
    size_t operand;
    int64_t parameter;  // the one whose memory it takes, or -1
  };
  Plugin* plugin = nullptr;
  Executable program;
  std::vector<Parameter> parameters;
  std::vector<Result> results;
  std::vector<Checked> checked;
  bool conditions = false;  // one more result: bytes that must all be 1
  bool empty = false;       // nothing to compute
  bool donates = false;
  struct Expected {
    uint64_t block_bytes, offset;
    bool present;
  };
  std::vector<Expected> operands;
  std::vector<Block*> constants;              // of a graph: operands that follow the call's own
  std::vector<std::unique_ptr<Block>> baked;  // those of them that prepare has computed
  std::string kernel;
  anyhal_prepared prepared = {};
  ~Plan();
};

// A call on its way, a copy, or a mark that queue_signal left.
struct Flight {
  api::Event* event = nullptr;
  char what[48] = {};  // for people
  uint64_t tag = 0;
  uint64_t value = 0;  // mark
  api::Buffer* conditions = nullptr;
  // Handles that nothing names any more. Most calls replace one result.
  api::Buffer* gone = nullptr;
  std::vector<api::Buffer*> more;

  void name(const std::string& text) { what[text.copy(what, sizeof what - 1)] = '\0'; }
  void drop(api::Buffer* buffer) {
    if (buffer == nullptr) return;
    if (gone == nullptr)
      gone = buffer;
    else
      more.push_back(buffer);
  }
};

// First in, first out; grows to the most that were ever on their way and allocates no more.
class Flights {
 public:
  bool empty() const { return count_ == 0; }
  Flight& front() { return ring_[first_]; }
  Flight& at(size_t i) { return ring_[(first_ + i) % ring_.size()]; }
  size_t size() const { return count_; }
  void push(Flight&& flight) {
    if (count_ == ring_.size()) grow();
    at(count_++) = std::move(flight);
  }
  void pop() {
    first_ = (first_ + 1) % ring_.size();
    --count_;
  }

 private:
  void grow() {
    std::vector<Flight> larger(ring_.empty() ? 64 : 2 * ring_.size());
    for (size_t i = 0; i < count_; ++i) larger[i] = std::move(at(i));
    ring_ = std::move(larger);
    first_ = 0;
  }
  std::vector<Flight> ring_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace hal::pjrt

struct anyhal_device {
  anyhal_self* self;
  hal::pjrt::Plugin* plugin;
};

struct anyhal_queue {
  explicit anyhal_queue(anyhal_device* on) : device(on), plugin(on->plugin) {}
  anyhal_device* device;
  hal::pjrt::Plugin* plugin;
  std::mutex mutex;  // host_wait may come beside a call
  hal::pjrt::Flights flights;
  uint64_t signalled = 0, completed = 0;
  anyhal_status status = ANYHAL_STATUS_OK;
  uint64_t failed_value = 0, failed_tag = 0;
  std::string failure;
  // Lists of the call in progress; calls on one queue come one at a time.
  std::vector<hal::pjrt::api::Buffer*> arguments, outputs;
  std::vector<int64_t> kept;
};

struct anyhal_self {
  const anyhal_services* services = nullptr;
  std::vector<std::unique_ptr<hal::pjrt::Plugin>> plugins;
  std::vector<anyhal_memory_kind> kinds;  // cells and staging
  std::string build_id;
  std::string failed;                       // why the first plugin that could not be used was not
  bool graphs = true, custom_calls = true;  // settings
  std::mutex mutex;
};

namespace hal::pjrt {

// Lets go of what a flight held.
void drop_all(const Plugin& plugin, Flight& flight);
// Refuses what a forked child, a lost device or a dead queue refuses. A dead queue that `drains`
// says so when nothing of it is on its way any more: the core then reuses its memory. Throws.
void require_live(const anyhal_device* device);
void require_live(anyhal_queue* queue, bool drains = true);
// Adds a flight and lets go of those that have landed. The queue's mutex is held by neither.
void take_off(anyhal_queue& queue, Flight&& flight);
// Runs a prepared plan on the buffers behind the refs.
void run_plan(anyhal_queue& queue, const Plan& plan, const anyhal_call& call);

// The slots, by file.
namespace slots {
// memory.cc
anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request*, anyhal_memory_block*,
                           anyhal_error*);
anyhal_status queue_copy(anyhal_queue*, const anyhal_copy_region*, uint32_t, anyhal_error*);
// queue.cc
anyhal_status queue_create(anyhal_device*, const anyhal_queue_options*, anyhal_queue**,
                           anyhal_error*);
anyhal_status queue_signal(anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status queue_wait(anyhal_queue*, anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status host_wait(anyhal_queue*, uint64_t, uint64_t, anyhal_queue_state*, anyhal_error*);
// plan.cc
anyhal_status op_query(anyhal_device*, const anyhal_op_desc*, anyhal_verdict*, anyhal_error*);
anyhal_status op_prepare(anyhal_device*, const anyhal_op_desc*, anyhal_plan**,
                         const anyhal_prepared**, anyhal_error*);
anyhal_status op_enqueue(anyhal_queue*, anyhal_plan*, const anyhal_call*, anyhal_error*);
// graph.cc
anyhal_status graph_prepare(anyhal_device*, const anyhal_graph_desc*, anyhal_plan**,
                            const anyhal_prepared**, uint32_t*, anyhal_error*);
}  // namespace slots

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_OBJECTS_H_
