// OpenCL devices: the entry, the table of slots, devices and what ends objects.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "objects.h"

namespace hal::opencl {
namespace {

using sdk::fail;

anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error* error) {
  *out_total = static_cast<uint32_t>(self->found.size());
  if (self->found.empty())
    return fail(error, self->broken ? ANYHAL_STATUS_UNSUPPORTED : ANYHAL_STATUS_NOT_FOUND,
                ANYHAL_REASON_DRIVER, "%s", self->problem.c_str());
  for (uint32_t i = 0; i < std::min(capacity, *out_total); ++i)
    sdk::write_record(&infos[i], self->found[i]->info);
  return ANYHAL_STATUS_OK;
}

void open_context(Device& device) {
  const Api& api = device.self->api;
  const cl_device_id id = device.facts->device;
  cl_int code = kSuccess;
  device.context = api.CreateContext(nullptr, 1, &id, nullptr, nullptr, &code);
  check(device, code, "clCreateContext");
  device.mapper = api.CreateCommandQueue(device.context, id, 0, &code);
  check(device, code, "clCreateCommandQueue");
  for (uint32_t i = kQueues; i-- > 0;) device.free_numbers.push_back(i);
}

void close_device(Device* device, bool abandon) {
  const Api& api = device->self->api;
  if (!abandon) {
    for (auto& [key, program] : device->programs)

      if (program != nullptr)
        gave_back(*device->self, api.ReleaseProgram(program), "clReleaseProgram");
    if (device->mapper != nullptr) {
      if (!device->lost) api.Finish(device->mapper);
      gave_back(*device->self, api.ReleaseCommandQueue(device->mapper), "clReleaseCommandQueue");
    }
    if (device->context != nullptr)
      gave_back(*device->self, api.ReleaseContext(device->context), "clReleaseContext");
  }
  delete device;
}

// Of this process; 0 where the system does not tell.
size_t thread_count() {
  std::error_code error;
  size_t count = 0;
  for ([[maybe_unused]] const auto& one :
       std::filesystem::directory_iterator("/proc/self/task", error))
    ++count;
  return count;
}

anyhal_status device_open(anyhal_self* self, uint64_t device_id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  return sdk::guard(error, [&] {
    if (device_id >= self->found.size())
      throw Failure(ANYHAL_STATUS_NOT_FOUND, 0, "there is no device %llu; list devices first",
                    static_cast<unsigned long long>(device_id));
    const Found& facts = *self->found[device_id];
    if (self->threads_to_list && self->listed_in != getpid())
      throw Failure(ANYHAL_STATUS_DEVICE_LOST, 0,
                    "an OpenCL driver had started threads when this process was forked, and would "
                    "wait for them here; load anyhal after the fork");
    if (!facts.refusal.empty())
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER, "%s", facts.refusal.c_str());
    auto device = std::make_unique<Device>();
    device->self = self;
    device->facts = &facts;
    try {
      open_context(*device);
    } catch (...) {
      close_device(device.release(), false);
      throw;
    }
    *out_device = device.release();
    *out_address_block = 0;  // memory is the device's; no host address means anything to it
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  return query_op(*device, desc, verdict, error);
}

anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  Plan* plan = nullptr;
  const anyhal_status status = prepare_op(*device, desc, &plan, error);
  if (status != ANYHAL_STATUS_OK) return status;
  *out_plan = reinterpret_cast<anyhal_plan*>(plan);
  *out_prepared = &plan->prepared;
  return ANYHAL_STATUS_OK;
}

anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                         anyhal_error* error) {
  return enqueue_plan(*reinterpret_cast<Queue*>(queue), *reinterpret_cast<Plan*>(plan), *call,
                      error);
}

anyhal_status release(anyhal_self*, uint32_t object_kind, uint64_t object, uint32_t flags,
                      anyhal_error* error) {
  const bool abandon = (flags & ANYHAL_RELEASE_ABANDON) != 0;
  switch (object_kind) {
    case ANYHAL_OBJECT_DEVICE:
      close_device(reinterpret_cast<Device*>(object), abandon);
      break;
    case ANYHAL_OBJECT_MEMORY:
      slots::release_block(reinterpret_cast<Block*>(object), abandon);
      break;
    case ANYHAL_OBJECT_QUEUE:
      slots::release_queue(reinterpret_cast<Queue*>(object), abandon);
      break;
    case ANYHAL_OBJECT_PLAN:
      release_plan(reinterpret_cast<Plan*>(object), abandon);
      break;
    case ANYHAL_OBJECT_MODULE:
      slots::release_module(object, abandon);
      break;
    default:
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "it makes no objects of kind %u; check the kind", object_kind);
  }
  return ANYHAL_STATUS_OK;
}

anyhal_status answer_text(void* value, uint64_t* bytes, const std::string& text,
                          anyhal_error* error) {
  const uint64_t room = *bytes;
  *bytes = text.size() + 1;
  if (value == nullptr || room < *bytes)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "the text has %llu bytes; ask with those",
                static_cast<unsigned long long>(*bytes));
  std::copy_n(text.c_str(), *bytes, static_cast<char*>(value));
  return ANYHAL_STATUS_OK;
}

std::string notes_of(const anyhal_self& self, const Found& facts) {
  std::string notes;
  for (const std::string& what : self.missing) notes += "not used: " + what + "; ";
  if (!facts.doubles()) notes += "it has no f64; ";
  if ((facts.single & kFpDenorm) == 0) notes += "it flushes f32 denormals to zero; ";
  return notes;
}

// Counters, by number: live blocks, plans, events; programs built, programs from the cache.
anyhal_status counter_of(const Device& device, uint64_t number, void* value, uint64_t* bytes,
                         anyhal_error* error) {
  const std::atomic<uint64_t>* const counters[] = {&device.blocks, &device.plans, &device.events,
                                                   &device.builds, &device.cached_builds};
  if (number < sizeof(counters) / sizeof(counters[0]))
    return sdk::answer(value, bytes, counters[number]->load(), error);
  return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "there is no counter %llu; 0 to 4 are",
              static_cast<unsigned long long>(number));
}

anyhal_status device_query(anyhal_device* device, uint32_t key, uint64_t argument, void* value,
                           uint64_t* bytes, anyhal_error* error) {
  const Found& facts = *device->facts;
  switch (key) {
    case ANYHAL_QUERY_FREE_BYTES: {
      const uint64_t used = device->used_bytes.load();
      return sdk::answer(value, bytes, facts.global_bytes - std::min(used, facts.global_bytes),
                         error);
    }
    case ANYHAL_QUERY_EDGE:
      return sdk::answer(value, bytes, argument == facts.info.id ? 2u : 0u, error);
    case ANYHAL_QUERY_HEALTH:
      return sdk::answer(value, bytes,
                         uint32_t{device->lost ? ANYHAL_STATUS_DEVICE_LOST : ANYHAL_STATUS_OK},
                         error);
    case ANYHAL_QUERY_COUNTER:
      return counter_of(*device, argument, value, bytes, error);
    case ANYHAL_QUERY_CAPABILITIES:
      return capabilities_of(*device, value, bytes, error);
    case ANYHAL_QUERY_NOTES:
      return answer_text(value, bytes, notes_of(*device->self, facts), error);
  }
  return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "key %u is unknown here; use one of backend.h",
              key);
}

anyhal_status native_handle(anyhal_self*, uint32_t object_kind, uint64_t object,
                            uint64_t* out_handle, uint32_t* out_type, uint32_t* out_owned,
                            anyhal_error* error) {
  switch (object_kind) {
    case ANYHAL_OBJECT_DEVICE:
      *out_handle = reinterpret_cast<uintptr_t>(reinterpret_cast<Device*>(object)->context);
      break;
    case ANYHAL_OBJECT_MEMORY:
      *out_handle = reinterpret_cast<uintptr_t>(reinterpret_cast<Block*>(object)->memory);
      break;
    case ANYHAL_OBJECT_QUEUE:
      *out_handle = reinterpret_cast<uintptr_t>(reinterpret_cast<Queue*>(object)->handle);
      break;
    default:
      return fail(error, ANYHAL_STATUS_UNSUPPORTED, 0,
                  "nothing of OpenCL stands behind objects of kind %u", object_kind);
  }
  *out_type = ANYHAL_NATIVE_CL_QUEUE;
  *out_owned = 0;
  return ANYHAL_STATUS_OK;
}

const anyhal_table kTable = [] {
  anyhal_table table = {};  // slots that stay NULL are unsupported
  table.size = sizeof(table);
  table.device_list = device_list;
  table.device_open = device_open;
  table.memory_alloc = slots::memory_alloc;
  table.op_query = op_query;
  table.op_prepare = op_prepare;
  table.op_enqueue = op_enqueue;
  table.release = release;
  table.queue_create = slots::queue_create;
  table.queue_signal = slots::queue_signal;
  table.queue_wait = slots::queue_wait;
  table.host_wait = slots::host_wait;
  table.queue_copy = slots::queue_copy;
  table.device_query = device_query;
  table.queue_fill = slots::queue_fill;
  table.queue_notify = slots::queue_notify;
  table.module_load = slots::module_load;
  table.kernel_prepare = slots::kernel_prepare;
  table.queue_native = slots::queue_native;
  table.native_handle = native_handle;
  table.extension = slots::extension;
  return table;
}();

const char* setting_of(const anyhal_hello& hello, const char* name, const char* otherwise) {
  const char* value = hello.services->setting(hello.services->context, name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace
}  // namespace hal::opencl

extern "C" ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello,
                                                           anyhal_reply* reply,
                                                           anyhal_error* error) {
  using namespace hal::opencl;
  anyhal_status status = hal::sdk::agree(*hello, *reply, error);
  if (status != ANYHAL_STATUS_OK) return status;
  return hal::sdk::guard(error, [&] {
    auto self = std::make_unique<anyhal_self>();
    self->services = hello->services;
    self->out_of_order = std::string(setting_of(*hello, "out_of_order", "0")) == "1";
    const size_t threads = thread_count();
    find_devices(*self, setting_of(*hello, "opencl_library", "libOpenCL.so.1"));
    self->listed_in = getpid();
    static std::atomic<bool> started{false};  // by the drivers of any instance
    if (thread_count() > threads) started = true;
    self->threads_to_list = started;
    reply->flags = 0;
    reply->table = &kTable;
    reply->self = self.release();
    reply->build_id = "opencl 0.1, " __VERSION__;
    return ANYHAL_STATUS_OK;
  });
}
