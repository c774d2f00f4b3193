// The objects behind the handles: instance, devices, blocks, queues, plans, modules.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_DEVICE_H_
#define BACKENDS_CUDA_DEVICE_H_

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "anyhal/ops.h"
#include "driver.h"
#include "kernels/params.h"

namespace hal::cuda {

namespace sdk = hal::sdk;

struct Self {
  const anyhal_services* services = nullptr;
  Driver driver = {};
  int driver_version = 0;
  CublasLt blas = {};
  std::string blas_missing;  // why there is none; empty when there is
  std::string kernels;       // folder of the bundle
  bool has_kernels = false;  // whether one is there
  void* nvrtc = nullptr;
  std::string nvrtc_missing;
  std::atomic<bool> forked{false};
  std::mutex mutex;  // guards devices
  bool started = false;
  std::vector<std::unique_ptr<Device>> devices;
};

struct Device {
  Self* self;
  int ordinal = 0;
  CUdevice number = 0;
  CUcontext context = nullptr;
  int architecture = 0;  // 90 for sm_90
  unsigned multiprocessors = 1;
  bool growth = false;  // virtual memory management is there
  uint64_t granularity = 0;
  int priority_least = 0, priority_greatest = 0;
  anyhal_memory_kind kinds[2] = {};
  anyhal_device_info info = {};
  cublasLtHandle blas = nullptr;
  std::map<std::string, CUmodule> modules;  // by op, loaded when first prepared
  KernelFault* faults = nullptr;            // pinned; see take_fault
  std::vector<uint32_t> free_faults;
  std::mutex mutex;  // guards the three above and the two below
  std::atomic<bool> lost{false};
  std::string loss;
  int64_t loss_code = 0;

  const Driver& driver() const { return self->driver; }
  // Throws when the device is lost or this is a forked child.
  void admit();
  void lose(CUresult code, const std::string& text);
};

enum class Origin { kAllocated, kGrown, kPinned, kRegistered, kForeign };

struct Block {
  Device* device;
  uint64_t base;
  uint64_t bytes;
  Origin origin;
  CUmemGenericAllocationHandle handle;
};

inline CUdeviceptr address_of(const anyhal_ref& ref) {
  return ref.memory == 0 ? 0 : reinterpret_cast<const Block*>(ref.memory)->base + ref.offset;
}

// A position of a queue: its event was recorded when the value was signalled.
struct Mark {
  uint64_t value;
  CUevent event;
};

// The last positions of a queue, oldest first. Older ones are waited for through a later one.
class Marks {
 public:
  static constexpr uint32_t kMost = 64;
  uint32_t count() const { return count_; }
  const Mark& at(uint32_t i) const { return ring_[(first_ + i) % kMost]; }
  void push(const Mark& mark) { ring_[(first_ + count_++) % kMost] = mark; }
  void pop() {
    first_ = (first_ + 1) % kMost;
    --count_;
  }

 private:
  std::array<Mark, kMost> ring_ = {};
  uint32_t first_ = 0, count_ = 0;
};

struct Queue {
  Device* device;
  CUstream stream = nullptr;
  uint32_t fault_slot = 0;
  std::mutex mutex;  // guards the rest: host_wait runs beside calls on the queue
  Marks marks;
  std::vector<CUevent> spare;  // at most one for each mark
  uint64_t signalled = 0, completed = 0;
  anyhal_status status = ANYHAL_STATUS_OK;
  std::string failure;
  uint64_t failed_value = 0, failed_tag = 0;
  CUevent last = nullptr;  // of a queue that failed: behind all that was put on it

  KernelFault* fault() const;
};

// Where one run of a plan happens.
struct Site {
  CUstream stream;
  const anyhal_ref* operands;
  const int64_t* extents;
  uint32_t extent_count;
  CUdeviceptr workspace;
  uint64_t tag;
  KernelFault* fault;
};

// What a fault is told to be of, in place of a call: an entry of the graph that is captured.
constexpr uint64_t kGraphEntry = uint64_t{1} << 63;
inline uint64_t entry_tag(uint32_t op, uint64_t entry) {
  return kGraphEntry | uint64_t{op} << 32 | (entry & 0xffffffffu);
}
const char* op_name(uint32_t op);

class Plan {
 public:
  explicit Plan(Device& device) : device_(device) {
    prepared.size = sizeof prepared;
    prepared.workspace_alignment = 256;
    prepared.library = "";
    prepared.kernel = "";
  }
  virtual ~Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  // Puts the work on the stream. Throws Fault.
  virtual void run(const Site& site) = 0;
  // Ends what the driver holds for it; not called when abandoned.
  virtual void end() {}
  Device& device() const { return device_; }

  anyhal_prepared prepared = {};
  uint32_t operand_count = 0;
  uint32_t op = 0;  // of a graph: none

 protected:
  Device& device_;
};

struct Module {
  Device* device;
  CUmodule module;
};

// Faults of kernels lie in pinned memory that the device writes: one for each queue.
constexpr uint32_t kFaults = 256;
uint32_t take_fault(Device& device);
void give_fault(Device& device, uint32_t slot);

// kernels.cc: the kernel of an op on this device. Throws with reason missing_artefact or driver.
CUfunction kernel_of(Device& device, const char* op, const char* entry);
// Loads PTX or a cubin; what the driver's compiler says of bad PTX is part of the failure.
CUmodule load_module(Device& device, const std::string& image);
// Why the device has no kernels; empty when it has.
std::string kernels_missing(const Device& device);

// ops.cc
anyhal_status query_op(Device& device, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error);
std::unique_ptr<Plan> prepare_op(Device& device, const anyhal_op_desc* desc);
anyhal_status capabilities(const Self& self, void* value, uint64_t* bytes, anyhal_error* error);
// product.cc
bool library_takes(const anyhal_op_desc& desc);
std::unique_ptr<Plan> prepare_product(Device& device, const anyhal_op_desc& desc);

const anyhal_table& the_table();

namespace slots {
anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request*, anyhal_memory_block*,
                           anyhal_error*);
anyhal_status memory_import(anyhal_device*, const anyhal_memory_import*, anyhal_memory_block*,
                            anyhal_error*);
anyhal_status queue_copy(anyhal_queue*, const anyhal_copy_region*, uint32_t, anyhal_error*);
anyhal_status queue_fill(anyhal_queue*, anyhal_ref, uint64_t, const void*, uint32_t, anyhal_error*);
anyhal_status queue_create(anyhal_device*, const anyhal_queue_options*, anyhal_queue**,
                           anyhal_error*);
anyhal_status queue_signal(anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status queue_wait(anyhal_queue*, anyhal_queue*, uint64_t, anyhal_error*);
anyhal_status host_wait(anyhal_queue*, uint64_t, uint64_t, anyhal_queue_state*, anyhal_error*);
anyhal_status queue_native(anyhal_queue*, anyhal_native_fn, void*, const anyhal_native_operand*,
                           uint32_t, anyhal_error*);
anyhal_status extension(anyhal_self*, const char*, uint32_t, const void**, anyhal_error*);
anyhal_status graph_prepare(anyhal_device*, const anyhal_graph_desc*, anyhal_plan**,
                            const anyhal_prepared**, uint32_t*, anyhal_error*);
anyhal_status module_load(anyhal_device*, const anyhal_payload*, anyhal_module**, anyhal_error*);
anyhal_status kernel_prepare(anyhal_module*, const char*, const anyhal_signature*, anyhal_plan**,
                             const anyhal_prepared**, anyhal_error*);
}  // namespace slots

// What release ends; the driver is not touched when the object is abandoned.
void end_block(Block* block, bool abandon);
void end_queue(Queue* queue, bool abandon);

// Copies and fills, for queues and for graphs.
void copy(Device& device, CUstream stream, const anyhal_ref& to, const anyhal_ref& from,
          uint64_t bytes);
void fill(Device& device, CUstream stream, const anyhal_ref& to, uint64_t bytes,
          const void* pattern, uint32_t pattern_bytes);
// Throws when the queue is dead or dying. Held while work is put on it, so that none comes behind
// the last event of a queue that fails meanwhile.
std::unique_lock<std::mutex> require_live(Queue& queue);

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_DEVICE_H_
