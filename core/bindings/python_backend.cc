// A backend written in Python: a table of the contract whose slots ask an object of anyhal.sdk.
// SPDX-License-Identifier: Apache-2.0
//
// A device's calls are taken by its instance's one worker, a native thread: kernels are Python, and
// no Python runs under a lock of the core, which calls op_enqueue under one. The worker takes them
// in the order of submission, so that queues of one instance never wait for each other.
// Lock order: nobody waits for the interpreter's lock with `mutex` held.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <thread>

#include "anyhal/sdk/guard.hpp"
#include "anyhal/sdk/host.hpp"
#include "anyhal/sdk/table.hpp"
#include "core/bindings/array.hpp"
#include "core/instance.hpp"
#include "core/plan.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using hal::sdk::fail;

struct anyhal_device {
  anyhal_self* self;
  uint32_t number;
};

// In order; dead after the first call that failed.
struct anyhal_queue {
  anyhal_self* self;
  uint64_t done = 0, failed_value = 0, failed_tag = 0;
  anyhal_status status = ANYHAL_STATUS_OK;
  anyhal_error error{};
};

struct anyhal_plan {
  struct Operand {
    uint64_t bytes;  // from its first to its last
    bool absent, is_value, written;
  };
  anyhal_self* self;
  PyObject* run;  // takes a memoryview or None for each operand
  std::vector<Operand> operands;
  std::string kernel;
  anyhal_prepared prepared{};
};

namespace hal {
namespace {

struct Item {
  enum Kind { kCall, kSignal, kDrop } kind;
  anyhal_queue* queue;
  anyhal_plan* plan;
  uint64_t number;  // the call's tag, the signal's value
  anyhal_ref refs[kMaxOperands];
};

}  // namespace
}  // namespace hal

struct anyhal_self {
  nb::object chip, said;
  std::string build_id, notes, label;
  anyhal_memory_kind kind{};
  std::vector<anyhal_device_info> devices;
  std::vector<anyhal_capability> rows;
  // Guarded by `mutex`:
  std::mutex mutex;
  std::condition_variable work, moved;
  std::deque<hal::Item> todo;
  bool busy = false, running = false;
  std::thread worker;
  std::atomic<bool> ended{false};  // the interpreter ends, or has ended
};

namespace hal {
namespace {

constexpr const char* kEnded = "the Python interpreter that runs its kernels has ended";
constexpr auto kPatience = std::chrono::seconds(10);  // for kernels, when the process ends

// Instances in the order of loading; written under the interpreter's lock.
std::vector<anyhal_self*>& instances() {
  static auto* all = new std::vector<anyhal_self*>;
  return *all;
}

// What a Python exception means to the core; the error indicator is set, and is cleared.
anyhal_status take_exception(const anyhal_self& self, anyhal_status otherwise,
                             anyhal_error* error) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && trace) PyException_SetTraceback(value, trace);
  nb::object why = nb::steal(value);
  Py_XDECREF(type), Py_XDECREF(trace);
  try {
    const auto [status, reason, text] = nb::cast<std::tuple<int32_t, int32_t, std::string>>(
        self.said(why, static_cast<int32_t>(otherwise)));
    return fail(error, static_cast<anyhal_status>(status), reason, "%.239s", text.c_str());
  } catch (const std::exception&) {
    PyErr_Clear();
    return fail(error, otherwise, 0, "it raised an exception that cannot be shown; see its code");
  }
}

// Runs fn with the interpreter's lock; what it raises becomes a status.
template <class Fn>
anyhal_status in_python(const anyhal_self& self, anyhal_error* error, Fn&& fn) {
  if (self.ended)
    return fail(error, ANYHAL_STATUS_DEVICE_LOST, 0, "%s; end the work before", kEnded);
  nb::gil_scoped_acquire gil;
  t_interrupted = false;
  try {
    return fn();
  } catch (nb::python_error& raised) {
    const bool interrupt = raised.matches(PyExc_KeyboardInterrupt);
    raised.restore();
    const anyhal_status status = take_exception(self, ANYHAL_STATUS_INTERNAL, error);
    t_interrupted = interrupt;  // the user's, and no failure of the chip
    return status;
  } catch (const std::exception& other) {
    PyErr_Clear();
    return fail(error, ANYHAL_STATUS_INTERNAL, 0, "%s; correct what its Python code returns",
                other.what());
  }
}

// ------------------------------------------------------------------------------------ the worker

// The operands of a call as memory that Python sees, taken back when the call is over.
class Views {
 public:
  Views(const anyhal_plan& plan, Item& item) : tuple_(nb::steal(PyTuple_New(size(plan)))) {
    static char nothing[16];
    for (size_t i = 0; i < plan.operands.size(); ++i) {
      const anyhal_plan::Operand& operand = plan.operands[i];
      PyObject* view = Py_None;
      if (operand.absent) {
        Py_INCREF(view);
      } else {
        char* at = operand.is_value ? reinterpret_cast<char*>(&item.refs[i])
                   : operand.bytes  ? sdk::host_address(item.refs[i])
                                    : nothing;
        view = PyMemoryView_FromMemory(at, static_cast<Py_ssize_t>(operand.bytes),
                                       operand.written ? PyBUF_WRITE : PyBUF_READ);
        if (!view) throw nb::python_error();
      }
      PyTuple_SET_ITEM(tuple_.ptr(), static_cast<Py_ssize_t>(i), view);
    }
  }
  PyObject* tuple() const { return tuple_.ptr(); }

  // Takes the memory back. False when somebody kept an operand: every array and tensor of it, and
  // every view of those, holds its memoryview.
  bool release() {
    if (kept()) PyGC_Collect();  // a cycle keeps it, perhaps, and nobody
    const bool all = !kept();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple_.ptr()); ++i) {
      PyObject* view = PyTuple_GET_ITEM(tuple_.ptr(), i);
      PyObject* done = view == Py_None ? nullptr : PyObject_CallMethod(view, "release", nullptr);
      if (!done) PyErr_Clear();
      Py_XDECREF(done);
    }
    return all;
  }

 private:
  static Py_ssize_t size(const anyhal_plan& plan) {
    return static_cast<Py_ssize_t>(plan.operands.size());
  }
  bool kept() const {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple_.ptr()); ++i) {
      PyObject* view = PyTuple_GET_ITEM(tuple_.ptr(), i);
      if (view != Py_None && Py_REFCNT(view) > 1) return true;
    }
    return false;
  }
  nb::object tuple_;
};

anyhal_status run_kernel(Item& item, anyhal_error* error) {
  const anyhal_plan& plan = *item.plan;
  const anyhal_self& self = *plan.self;
  try {
    Views views(plan, item);
    nb::object result = nb::steal(PyObject_CallObject(plan.run, views.tuple()));
    const anyhal_status status = result.is_valid()
                                     ? ANYHAL_STATUS_OK
                                     : take_exception(self, ANYHAL_STATUS_EXECUTION_FAILED, error);
    result = nb::object();
    if (views.release() || status != ANYHAL_STATUS_OK) return status;
    return fail(error, ANYHAL_STATUS_EXECUTION_FAILED, 0,
                "the kernel %s kept an operand after its call; copy what it keeps",
                plan.kernel.c_str());
  } catch (nb::python_error& raised) {
    raised.restore();
    return take_exception(self, ANYHAL_STATUS_EXECUTION_FAILED, error);
  }
}

// What needs the interpreter: a call, or the end of a plan.
void perform(Item& item, bool skip, anyhal_status& status, anyhal_error* error) {
  if (item.kind == Item::kDrop) {
    Py_DECREF(item.plan->run);
    delete item.plan;
  } else if (!skip) {
    status = run_kernel(item, error);
  }
}

void work(anyhal_self* self) {
  const PyGILState_STATE first = PyGILState_Ensure();
  PyThreadState* thread = PyEval_SaveThread();
  std::unique_lock lock(self->mutex);
  while (true) {
    self->busy = false;
    self->moved.notify_all();
    self->work.wait(lock, [&] { return self->ended || !self->todo.empty(); });
    if (self->ended) break;
    Item item = self->todo.front();
    self->todo.pop_front();
    self->busy = true;
    anyhal_queue* queue = item.queue;
    const bool dead = queue && queue->status != ANYHAL_STATUS_OK;
    if (item.kind == Item::kSignal) {
      if (!dead) queue->done = item.number;
      if (dead && !queue->failed_value) queue->failed_value = item.number;
      continue;
    }
    lock.unlock();
    anyhal_status status = ANYHAL_STATUS_OK;
    ErrorRecord error;
    PyEval_RestoreThread(thread);
    perform(item, dead, status, error);
    thread = PyEval_SaveThread();
    lock.lock();
    if (status == ANYHAL_STATUS_OK) continue;
    const bool told = status == ANYHAL_STATUS_INVALID_ARGUMENT ||
                      status == ANYHAL_STATUS_OUT_OF_MEMORY || status == ANYHAL_STATUS_DEVICE_LOST;
    queue->status = told ? status : ANYHAL_STATUS_EXECUTION_FAILED;  // what a wait may answer
    queue->error = error.record, queue->failed_tag = item.number;
  }
  lock.unlock();
  PyEval_RestoreThread(thread);
  PyGILState_Release(first);
}

anyhal_status submit(anyhal_self& self, const Item& item) {
  {
    std::lock_guard lock(self.mutex);
    self.todo.push_back(item);
  }
  self.work.notify_one();
  return ANYHAL_STATUS_OK;
}

// ---------------------------------------------------------------------------- devices and memory

anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error*) {
  *out_total = static_cast<uint32_t>(self->devices.size());
  for (uint32_t i = 0; i < capacity && i < *out_total; ++i)
    sdk::write_record(reinterpret_cast<anyhal_device_info*>(reinterpret_cast<char*>(infos) +
                                                            uint64_t{i} * infos->size),
                      self->devices[i]);
  return ANYHAL_STATUS_OK;
}

anyhal_status device_open(anyhal_self* self, uint64_t id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  if (id >= self->devices.size())
    return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "there is no device %llu; list devices first",
                static_cast<unsigned long long>(id));
  return sdk::guard(error, [&] {
    auto device = std::make_unique<anyhal_device>(anyhal_device{self, static_cast<uint32_t>(id)});
    std::lock_guard lock(self->mutex);
    if (!self->running) self->worker = std::thread(work, self);
    self->running = true;
    *out_device = device.release();
    *out_address_block = sdk::kAddressBlock;
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  if (request->kind != 0 || request->flags != 0)
    return fail(error, ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                "memory kind %u is unknown; use kind 0", request->kind);
  const uint64_t alignment = request->alignment > 64 ? request->alignment : 64;
  const uint64_t bytes = (request->bytes / alignment + 1) * alignment;
  void* memory = bytes < request->bytes ? nullptr : std::aligned_alloc(alignment, bytes);
  if (memory == nullptr)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "the host has no block of %llu bytes; free arrays",
                static_cast<unsigned long long>(request->bytes));
  anyhal_memory_block block = {};
  block.memory = block.device_address = block.host_address = reinterpret_cast<uintptr_t>(memory);
  block.bytes = request->bytes;
  sdk::write_record(out_block, block);
  return ANYHAL_STATUS_OK;
}

anyhal_status device_query(anyhal_device* device, uint32_t key, uint64_t, void* value,
                           uint64_t* bytes, anyhal_error* error) {
  const anyhal_self& self = *device->self;
  const auto text = [&](const void* from, uint64_t size) {
    const uint64_t room = *bytes;
    *bytes = size;
    if (room < size || (!value && size))
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "the answer has %llu bytes",
                  static_cast<unsigned long long>(size));
    if (size) std::memcpy(value, from, size);
    return ANYHAL_STATUS_OK;
  };
  switch (key) {
    case ANYHAL_QUERY_FREE_BYTES:
      return sdk::answer(value, bytes, sdk::host_bytes_free(), error);
    case ANYHAL_QUERY_HEALTH:
      return sdk::answer(
          value, bytes, uint32_t(self.ended ? ANYHAL_STATUS_DEVICE_LOST : ANYHAL_STATUS_OK), error);
    case ANYHAL_QUERY_CAPABILITIES:
      return text(self.rows.data(), self.rows.size() * sizeof(anyhal_capability));
    case ANYHAL_QUERY_NOTES:
      return text(self.notes.c_str(), self.notes.size() + 1);
  }
  return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "key %u is unknown here; use one of backend.h",
              key);
}

// ----------------------------------------------------------------------------------- operations

nb::tuple operand_records(const anyhal_op_desc& desc) {
  nb::list found;
  for (uint32_t i = 0; i < desc.operand_count; ++i) {
    const anyhal_tensor_desc& t = sdk::operand(desc, i);
    const std::vector<int64_t> dims(t.dims, t.dims + t.rank);
    const std::vector<int64_t> strides(t.strides, t.strides + t.rank);
    found.append(nb::make_tuple(sdk::absent(t) ? 0u : t.dtype, nb::tuple(nb::cast(dims)),
                                nb::tuple(nb::cast(strides)), t.alias_of));
  }
  return nb::tuple(found);
}

nb::tuple ask(const anyhal_device& device, const anyhal_op_desc& desc) {
  const nb::bytes record(static_cast<const char*>(desc.attributes),
                         desc.attributes ? desc.attributes_size : 0);
  return nb::make_tuple(device.number, desc.op, desc.input_count, operand_records(desc), record);
}

// The one reading of a description, for op_query and op_prepare: what no row need look at first.
sdk::Answer readable(const anyhal_op_desc& desc) {
  const sdk::Answer record = sdk::OpTable::check_record(desc);
  if (!record.yes()) return record;
  for (uint32_t i = 0; i < 6; ++i)
    if (desc.numerics[i] &&
        !(i == ANYHAL_NUMERICS_DETERMINISM && desc.numerics[i] == ANYHAL_DETERMINISM_NONE))
      return sdk::no(ANYHAL_REASON_NUMERICS,
                     "results here are strict and the same from run to run, no more");
  return sdk::yes();
}

// None from Python is yes; else (reason, operand, text).
anyhal_status judge(const anyhal_device& device, const anyhal_op_desc& desc, int32_t* reason,
                    int32_t* operand, anyhal_error* error) {
  const sdk::Answer answer = readable(desc);
  *reason = answer.reason, *operand = answer.operand;
  if (!answer.yes())
    return fail(error, answer.status, answer.reason, "%s; use another device", answer.why);
  return in_python(*device.self, error, [&] {
    nb::object no = device.self->chip.attr("_refusal")(*ask(device, desc));
    if (no.is_none()) return ANYHAL_STATUS_OK;
    const auto [why, which, text] = nb::cast<std::tuple<int32_t, int32_t, std::string>>(no);
    *reason = why, *operand = which;
    return fail(error, ANYHAL_STATUS_UNSUPPORTED, why, "%.239s", text.c_str());
  });
}

anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  int32_t reason = ANYHAL_REASON_NONE, operand = -1;
  const anyhal_status status = judge(*device, *desc, &reason, &operand, error);
  if (status != ANYHAL_STATUS_OK && status != ANYHAL_STATUS_UNSUPPORTED) return status;
  verdict->support = status == ANYHAL_STATUS_OK ? ANYHAL_SUPPORT_YES : ANYHAL_SUPPORT_NO;
  verdict->reason = status == ANYHAL_STATUS_OK || reason ? reason : int32_t(ANYHAL_REASON_OP);
  verdict->reason_operand = operand;
  verdict->flags = ANYHAL_VERDICT_CAPTURE_SAFE | ANYHAL_VERDICT_DETERMINISTIC;
  return ANYHAL_STATUS_OK;
}

std::vector<anyhal_plan::Operand> layout(const anyhal_op_desc& desc) {
  std::vector<anyhal_plan::Operand> found;
  for (uint32_t i = 0; i < desc.operand_count; ++i) {
    const anyhal_tensor_desc& t = sdk::operand(desc, i);
    if (sdk::absent(t)) {
      found.push_back({0, true, false, false});
      continue;
    }
    int64_t last = 0;
    for (uint32_t d = 0; d < t.rank; ++d) last += (t.dims[d] - 1) * t.strides[d];
    const uint64_t elements = sdk::element_count(t) ? static_cast<uint64_t>(last) + 1 : 0;
    found.push_back({elements * sdk::dtype_facts(t.dtype).block_bytes, false,
                     (t.flags & ANYHAL_TENSOR_INLINE) != 0, i >= desc.input_count});
  }
  return found;
}

anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  int32_t reason = 0, operand = -1;
  const anyhal_status status = judge(*device, *desc, &reason, &operand, error);
  if (status != ANYHAL_STATUS_OK) return status;
  return in_python(*device->self, error, [&] {
    nb::object run = device->self->chip.attr("_prepare")(*ask(*device, *desc));
    auto plan = std::make_unique<anyhal_plan>();
    plan->self = device->self;
    plan->operands = layout(*desc);
    plan->kernel = nb::cast<std::string>(run.attr("name"));
    plan->prepared.size = sizeof(plan->prepared);
    plan->prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    plan->prepared.workspace_alignment = 64;
    plan->prepared.kernel = plan->kernel.c_str();
    plan->prepared.library = device->self->label.c_str();
    plan->run = run.release().ptr();
    *out_prepared = &plan->prepared;
    *out_plan = plan.release();
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                         anyhal_error* error) {
  anyhal_self& self = *queue->self;
  if (call->operand_count != plan->operands.size() || call->operand_count > kMaxOperands)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the call has %u operands and the plan %u; prepare a plan for this call",
                call->operand_count, static_cast<uint32_t>(plan->operands.size()));
  if (self.ended)
    return fail(error, ANYHAL_STATUS_DEVICE_LOST, 0, "%s; end the work before", kEnded);
  Item item{Item::kCall, queue, plan, call->tag, {}};
  std::copy(call->operands, call->operands + call->operand_count, item.refs);
  {
    std::lock_guard lock(self.mutex);
    if (queue->status != ANYHAL_STATUS_OK)
      return fail(error, ANYHAL_STATUS_EXECUTION_FAILED, 0, "%.239s", queue->error.text);
    self.todo.push_back(item);
  }
  self.work.notify_one();
  return ANYHAL_STATUS_OK;
}

// ---------------------------------------------------------------------------------------- queues

anyhal_status queue_create(anyhal_device* device, const anyhal_queue_options*,
                           anyhal_queue** out_queue, anyhal_error* error) {
  return sdk::guard(error, [&] {
    *out_queue = new anyhal_queue{.self = device->self};
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status queue_signal(anyhal_queue* queue, uint64_t value, anyhal_error* error) {
  anyhal_self& self = *queue->self;
  {
    std::lock_guard lock(self.mutex);
    if (queue->status != ANYHAL_STATUS_OK) {
      if (!queue->failed_value) queue->failed_value = value;
      return fail(error, ANYHAL_STATUS_EXECUTION_FAILED, 0, "%.239s", queue->error.text);
    }
  }
  return submit(self, {Item::kSignal, queue, nullptr, value, {}});
}

anyhal_status queue_wait(anyhal_queue*, anyhal_queue*, uint64_t, anyhal_error*) {
  return ANYHAL_STATUS_OK;  // the one worker keeps the order of submission
}

anyhal_status host_wait(anyhal_queue* queue, uint64_t value, uint64_t limit_ns,
                        anyhal_queue_state* state, anyhal_error* error) {
  anyhal_self& self = *queue->self;
  // A value between two signals means the later one: past a failed one, none is reached.
  const auto failed = [&] { return queue->failed_value && queue->done < value; };
  const auto over = [&] { return queue->done >= value || failed() || self.ended; };
  const auto wait = [&](std::unique_lock<std::mutex>& lock) {
    if (limit_ns > uint64_t{1} << 62)
      self.moved.wait(lock, over);
    else
      self.moved.wait_for(lock, std::chrono::nanoseconds(limit_ns), over);
  };
  if (limit_ns && std::this_thread::get_id() == self.worker.get_id())
    return fail(error, ANYHAL_STATUS_INTERNAL, 0,
                "a kernel waits for its own device, which would never end; compute without it");
  // Whoever waits with the interpreter's lock keeps the kernels from it.
  if (limit_ns && !self.ended && PyGILState_Check()) {
    nb::gil_scoped_release nogil;
    std::unique_lock lock(self.mutex);
    wait(lock);
  } else if (limit_ns) {
    std::unique_lock lock(self.mutex);
    wait(lock);
  }
  std::lock_guard lock(self.mutex);
  anyhal_queue_state now = {};
  now.status = static_cast<uint32_t>(queue->status);
  now.completed = queue->done;
  now.failed_value = queue->failed_value, now.failed_tag = queue->failed_tag;
  sdk::write_record(state, now);
  if (queue->done >= value) return ANYHAL_STATUS_OK;
  if (failed()) return fail(error, queue->status, queue->error.reason, "%s", queue->error.text);
  if (self.ended)
    return fail(error, ANYHAL_STATUS_DEVICE_LOST, 0, "%s; end the work before", kEnded);
  return fail(error, ANYHAL_STATUS_TIMEOUT, 0, "the value is not reached yet; wait again");
}

// -------------------------------------------------------------------------------- life and death

anyhal_status release(anyhal_self* self, uint32_t object_kind, uint64_t object, uint32_t flags,
                      anyhal_error* error) {
  const bool abandon = flags & ANYHAL_RELEASE_ABANDON;
  switch (object_kind) {
    case ANYHAL_OBJECT_DEVICE:
      delete reinterpret_cast<anyhal_device*>(object);
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_MEMORY:
      std::free(reinterpret_cast<void*>(object));
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_QUEUE:
      if (!abandon) delete reinterpret_cast<anyhal_queue*>(object);
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_PLAN:
      // Its kernel is a Python object: the worker drops it, unless there is none any more.
      if (abandon || self->ended) return ANYHAL_STATUS_OK;
      return submit(*self, {Item::kDrop, nullptr, reinterpret_cast<anyhal_plan*>(object), 0, {}});
  }
  return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
              "it makes no objects of kind %u; check the kind", object_kind);
}

anyhal_status notify(anyhal_self* self, uint32_t event, uint64_t, uint64_t* out_bytes,
                     anyhal_error*) {
  if (out_bytes) *out_bytes = 0;
  if (event != ANYHAL_EVENT_FORK_CHILD) return ANYHAL_STATUS_OK;
  // The worker is the parent's, and may have held these. A device that is opened here gets its own.
  new (&self->mutex) std::mutex;
  new (&self->work) std::condition_variable;
  new (&self->moved) std::condition_variable;
  new (&self->todo) std::deque<Item>;
  new (&self->worker) std::thread;
  self->busy = self->running = false;
  return ANYHAL_STATUS_OK;
}

const anyhal_table kTable = [] {
  anyhal_table table = {};
  table.size = sizeof(table);
  table.device_list = device_list;
  table.device_open = device_open;
  table.memory_alloc = memory_alloc;
  table.op_query = op_query;
  table.op_prepare = op_prepare;
  table.op_enqueue = op_enqueue;
  table.release = release;
  table.queue_create = queue_create;
  table.queue_signal = queue_signal;
  table.queue_wait = queue_wait;
  table.host_wait = host_wait;
  table.device_query = device_query;
  table.notify = notify;
  return table;
}();

// ----------------------------------------------------------------------------------------- entry

// What the entry, whose arguments are the contract's, is to make an instance of.
struct Making {
  nb::object make, said;
  std::string path;
};
thread_local Making* t_making = nullptr;

void list(anyhal_self& self, nb::handle rows) {
  self.kind = sdk::host_memory_kind();
  for (nb::handle row : rows) {
    anyhal_device_info info = {};
    const auto [name, arch, driver, simulated] =
        nb::cast<std::tuple<std::string, std::string, std::string, bool>>(row);
    std::snprintf(info.name, sizeof(info.name), "%s", name.c_str());
    std::snprintf(info.arch, sizeof(info.arch), "%s", arch.c_str());
    std::snprintf(info.driver, sizeof(info.driver), "%s", driver.c_str());
    info.flags = ANYHAL_DEVICE_UNIFIED | (simulated ? uint32_t(ANYHAL_DEVICE_SIMULATED) : 0u);
    info.id = self.devices.size();
    info.kinds = &self.kind;
    info.kind_count = 1;
    info.preferred_alignment = 64;
    info.rank_max = sdk::kRankMax;
    info.recovery = ANYHAL_RECOVERY_PROCESS;
    self.devices.push_back(info);
  }
}

void declare(anyhal_self& self, nb::handle rows) {
  for (nb::handle row : rows) {
    anyhal_capability one = {};
    const auto [op, dtypes] = nb::cast<std::pair<uint32_t, std::vector<uint32_t>>>(row);
    one.op = op;
    one.flags = ANYHAL_CAPABILITY_STRIDED | ANYHAL_CAPABILITY_CAPTURE_SAFE;
    for (uint32_t d : dtypes) one.dtypes[d / 64 % 2] |= uint64_t{1} << d % 64;
    one.rank_max = sdk::kRankMax;
    self.rows.push_back(one);
  }
}

anyhal_status python_main(const anyhal_hello* hello, anyhal_reply* reply, anyhal_error* error) {
  const anyhal_status agreed = sdk::agree(*hello, *reply, error);
  if (agreed != ANYHAL_STATUS_OK) return agreed;
  nb::gil_scoped_acquire gil;
  auto self = std::make_unique<anyhal_self>();
  self->said = t_making->said;
  const anyhal_status made = in_python(*self, error, [&] {
    nb::dict given;
    for (uint32_t i = 0; i < hello->setting_count; ++i)
      given[hello->settings[i].name] = hello->settings[i].value;
    self->chip = t_making->make(given);
    list(*self, self->chip.attr("_devices")());
    declare(*self, self->chip.attr("_capabilities")());
    self->notes = nb::cast<std::string>(self->chip.attr("_notes")());
    self->build_id = nb::cast<std::string>(self->chip.attr("_build_id"));
    for (nb::handle asked : self->chip.attr("_asked"))  // else the core warns of them
      hello->services->setting(hello->services->context, nb::cast<std::string>(asked).c_str());
    return ANYHAL_STATUS_OK;
  });
  if (made != ANYHAL_STATUS_OK) return made;
  self->label = t_making->path.substr(t_making->path.rfind('/') + 1);
  reply->table = &kTable;
  reply->build_id = self->build_id.c_str();
  instances().push_back(self.get());
  reply->self = self.release();
  return ANYHAL_STATUS_OK;
}

// The interpreter is about to end: what was handed over is finished, within limits, and nothing
// more is taken.
void end_python() {
  const auto all = instances();
  nb::gil_scoped_release nogil;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (anyhal_self* self : all) {
    std::unique_lock lock(self->mutex);
    if (self->ended || !self->running) {
      self->ended = true;
      continue;
    }
    const bool idle =
        self->moved.wait_until(lock, until, [&] { return self->todo.empty() && !self->busy; });
    self->ended = true;
    lock.unlock();
    self->work.notify_all(), self->moved.notify_all();
    if (idle)
      self->worker.join();
    else
      self->worker.detach();  // in a kernel that does not return
  }
}

}  // namespace

void bind_python_backends(nb::module_& m) {
  m.def(
      "load_python",
      [](const std::string& path, const std::string& name,
         std::vector<std::pair<std::string, std::string>> settings, nb::object make,
         nb::object said) {
        Making making{std::move(make), std::move(said), path};
        struct Set {
          explicit Set(Making* m) { t_making = m; }
          ~Set() { t_making = nullptr; }
        } set(&making);
        nb::gil_scoped_release nogil;
        return load_instance(path, name, std::move(settings), {}, python_main);
      },
      "path"_a, "name"_a, "settings"_a, "make"_a, "said"_a, nb::rv_policy::reference);
  m.def("end_python", &end_python);
}

}  // namespace hal
