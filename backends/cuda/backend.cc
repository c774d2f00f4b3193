// The CUDA backend's table: devices, ops and release. The entry is in entry.cc, streams in
// queue.cc, blocks in memory.cc, kernels in ops.cc and kernels/, graphs in graph.cc.
// SPDX-License-Identifier: Apache-2.0
#include "device.h"

namespace hal::cuda {
namespace {

Self& self_of(anyhal_self* self) { return *reinterpret_cast<Self*>(self); }
Device& device_of(anyhal_device* device) { return *reinterpret_cast<Device*>(device); }

// --------------------------------------------------------------------------------- devices

int attribute(const Self& self, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(self.driver, self.driver.cuDeviceGetAttribute(&value, which, device),
        "cuDeviceGetAttribute");
  return value;
}

anyhal_memory_kind kind_of(uint32_t flags, uint32_t heap, uint64_t bytes) {
  anyhal_memory_kind kind = {};
  kind.size = sizeof kind;
  kind.flags = flags | ANYHAL_MEMORY_STABLE_ADDRESS;
  kind.heap = heap;
  kind.offset_alignment = 1;
  kind.base_alignment = 256;
  kind.granularity = 512;
  kind.heap_bytes = bytes;
  return kind;
}

// Identity and limits, without a context.
std::unique_ptr<Device> describe(Self& self, int ordinal) {
  auto device = std::make_unique<Device>();
  device->self = &self;
  device->ordinal = ordinal;
  const Driver& driver = self.driver;
  check(driver, driver.cuDeviceGet(&device->number, ordinal), "cuDeviceGet");
  const CUdevice number = device->number;
  anyhal_device_info& info = device->info;
  size_t bytes = 0;
  CUuuid uuid = {};
  check(driver, driver.cuDeviceTotalMem_v2(&bytes, number), "cuDeviceTotalMem_v2");
  check(driver, driver.cuDeviceGetUuid_v2(&uuid, number), "cuDeviceGetUuid_v2");
  check(driver, driver.cuDeviceGetName(info.name, sizeof info.name, number), "cuDeviceGetName");
  device->architecture =
      attribute(self, number, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
      attribute(self, number, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  device->multiprocessors =
      static_cast<unsigned>(attribute(self, number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  device->growth =
      attribute(self, number, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
  const int bus = attribute(self, number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  const int slot = attribute(self, number, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  const int domain = attribute(self, number, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  const bool integrated = attribute(self, number, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
  device->kinds[0] = kind_of(ANYHAL_MEMORY_DEVICE_LOCAL, 0, bytes);
  device->kinds[1] = kind_of(ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT, 1, bytes);
  info.size = sizeof info;
  info.flags = integrated ? ANYHAL_DEVICE_INTEGRATED : 0;
  if (std::strstr(info.name, "simulated") != nullptr) info.flags |= ANYHAL_DEVICE_SIMULATED;
  info.id = static_cast<uint64_t>(ordinal);
  std::memcpy(info.uuid, uuid.bytes, sizeof info.uuid);
  info.pci_domain = static_cast<uint32_t>(domain);
  info.pci_function = static_cast<uint32_t>(bus << 8 | slot << 3);
  std::snprintf(info.arch, sizeof info.arch, "sm_%d", device->architecture);
  std::snprintf(info.driver, sizeof info.driver, "CUDA %d.%d", self.driver_version / 1000,
                self.driver_version % 1000 / 10);
  info.kinds = device->kinds;
  info.kind_count = 2;
  info.queue_count_max = kFaults;
  info.preferred_alignment = 256;
  info.rank_max = kDims;
  info.recovery = ANYHAL_RECOVERY_PROCESS;
  info.tensor_bytes_max = bytes;
  return device;
}

// The driver is started by the first list, not by the load: a process that only asks which backends
// there are can still fork. The self's mutex is held.
void start(Self& self) {
  if (self.started) return;
  const CUresult code = self.driver.cuInit(0);
  if (code == CUDA_ERROR_NO_DEVICE) return;
  check(self.driver, code, "cuInit");
  int count = 0;
  check(self.driver, self.driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  std::vector<std::unique_ptr<Device>> found;
  for (int i = 0; i < count; ++i) found.push_back(describe(self, i));
  self.devices = std::move(found);
  self.started = true;
}

anyhal_status device_list(anyhal_self* handle, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error* error) {
  Self& self = self_of(handle);
  return guarded(error, [&] {
    std::unique_lock lock(self.mutex);
    start(self);
    *out_total = static_cast<uint32_t>(self.devices.size());
    for (uint32_t i = 0; i < std::min(capacity, *out_total); ++i)
      sdk::write_record(&infos[i], self.devices[i]->info);
  });
}

// All that the device holds, whatever fails on the way; the first failure.
CUresult give_back(Device& device) {
  const Driver& driver = device.driver();
  CUresult code = CUDA_SUCCESS;
  const auto keep = [&](CUresult next) { code = code == CUDA_SUCCESS ? next : code; };
  for (const auto& [op, module] : device.modules) keep(driver.cuModuleUnload(module));
  if (device.blas != nullptr) device.self->blas.cublasLtDestroy(device.blas);
  if (device.faults != nullptr) keep(driver.cuMemFreeHost(device.faults));
  return code;
}

void open(Device& device) {
  const Driver& driver = device.driver();
  check(device, driver.cuDevicePrimaryCtxRetain(&device.context, device.number),
        "cuDevicePrimaryCtxRetain");
  try {
    Current current(device);
    HAL_CUDA(device, cuCtxGetStreamPriorityRange, &device.priority_least,
             &device.priority_greatest);
    if (device.growth) {
      CUmemAllocationProp prop = {};
      prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
      size_t bytes = 0;
      HAL_CUDA(device, cuMemGetAllocationGranularity, &bytes, &prop,
               CU_MEM_ALLOC_GRANULARITY_MINIMUM);
      device.granularity = bytes;
    }
    void* faults = nullptr;
    HAL_CUDA(device, cuMemHostAlloc, &faults, kFaults * sizeof(KernelFault),
             CU_MEMHOSTALLOC_PORTABLE);
    device.faults = static_cast<KernelFault*>(faults);
    std::memset(faults, 0, kFaults * sizeof(KernelFault));
    device.free_faults.clear();
    for (uint32_t i = kFaults; i-- > 0;) device.free_faults.push_back(i);
  } catch (...) {
    driver.cuDevicePrimaryCtxRelease_v2(device.number);
    device.context = nullptr;
    throw;
  }
}

anyhal_status device_open(anyhal_self* handle, uint64_t device_id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  Self& self = self_of(handle);
  return guarded(error, [&] {
    std::unique_lock lock(self.mutex);
    start(self);
    if (device_id >= self.devices.size())
      throw Fault(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE, 0,
                  "there is no device " + std::to_string(device_id) + "; list devices first");
    Device& device = *self.devices[device_id];
    device.admit();
    open(device);
    *out_device = reinterpret_cast<anyhal_device*>(&device);
    *out_address_block = 0;  // host addresses are not the device's
  });
}

std::string notes(const Device& device) {
  std::string text = kernels_missing(device);
  if (!device.self->blas_missing.empty())
    text += std::string(text.empty() ? "" : "; ") + "cuBLASLt is not used, so products run on a " +
            "plain kernel (" + device.self->blas_missing + "); pip install nvidia-cublas-cu12";
  return text;
}

anyhal_status answer_text(void* value, uint64_t* bytes, const std::string& text,
                          anyhal_error* error) {
  const uint64_t room = *bytes;
  *bytes = text.size() + 1;
  if (value == nullptr || room < *bytes)
    return sdk::fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                     "the text has %zu bytes; ask again with as much room", text.size() + 1);
  std::memcpy(value, text.c_str(), text.size() + 1);
  return ANYHAL_STATUS_OK;
}

anyhal_status device_query(anyhal_device* handle, uint32_t key, uint64_t argument, void* value,
                           uint64_t* bytes, anyhal_error* error) {
  Device& device = device_of(handle);
  if (key == ANYHAL_QUERY_CAPABILITIES) return capabilities(*device.self, value, bytes, error);
  if (key == ANYHAL_QUERY_NOTES) return answer_text(value, bytes, notes(device), error);
  if (key == ANYHAL_QUERY_HEALTH) {
    const uint32_t health = device.lost ? ANYHAL_STATUS_DEVICE_LOST : ANYHAL_STATUS_OK;
    return sdk::answer(value, bytes, health, error);
  }
  anyhal_status status = ANYHAL_STATUS_OK;
  const anyhal_status made = guarded(error, [&] {
    if (key == ANYHAL_QUERY_FREE_BYTES && argument == 0) {
      Current current(device);
      size_t free = 0, total = 0;
      HAL_CUDA(device, cuMemGetInfo_v2, &free, &total);
      status = sdk::answer(value, bytes, static_cast<uint64_t>(free), error);
    } else if (key == ANYHAL_QUERY_EDGE && argument < device.self->devices.size()) {
      int can = argument == static_cast<uint64_t>(device.ordinal);
      if (can == 0)
        check(device.driver(),
              device.driver().cuDeviceCanAccessPeer(&can, device.number,
                                                    device.self->devices[argument]->number),
              "cuDeviceCanAccessPeer");
      status = sdk::answer(value, bytes, can != 0 ? 2u : 0u, error);
    } else {
      status = sdk::fail(error, ANYHAL_STATUS_NOT_FOUND, 0,
                         "there is no fact %u with argument %llu here; see anyhal_query_key", key,
                         static_cast<unsigned long long>(argument));
    }
  });
  return made != ANYHAL_STATUS_OK ? made : status;
}

// ------------------------------------------------------------------------------------- ops

anyhal_status op_query(anyhal_device* handle, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  return query_op(device_of(handle), desc, verdict, error);
}

anyhal_status op_prepare(anyhal_device* handle, const anyhal_op_desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  Device& device = device_of(handle);
  return guarded(error, [&] {
    Current current(device);
    auto plan = prepare_op(device, desc);
    *out_prepared = &plan->prepared;
    *out_plan = reinterpret_cast<anyhal_plan*>(plan.release());
  });
}

anyhal_status op_enqueue(anyhal_queue* queue_handle, anyhal_plan* plan_handle,
                         const anyhal_call* call, anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(queue_handle);
  auto& plan = *reinterpret_cast<Plan*>(plan_handle);
  return guarded(error, [&] {
    const auto live = require_live(queue);
    if (call->operand_count != plan.operand_count)
      throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                  "the call has another number of operands than the plan; prepare one for it");
    Current current(*queue.device);
    plan.run({queue.stream, call->operands, call->extents, call->extent_count,
              address_of(call->workspace), call->tag, queue.fault()});
  });
}

// ----------------------------------------------------------------------- life of the objects

void end_device(Device& device, bool abandon) {
  CUresult code = CUDA_SUCCESS;
  if (!abandon) {
    {
      Current current(device);
      code = give_back(device);
    }
    const CUresult released = device.driver().cuDevicePrimaryCtxRelease_v2(device.number);
    if (code == CUDA_SUCCESS) code = released;
  }
  device.modules.clear();
  device.blas = nullptr;
  device.faults = nullptr;
  device.context = nullptr;
  check(device, code, "closing the device");
}

void end_plan(Plan* plan, bool abandon) {
  std::unique_ptr<Plan> owned(plan);
  if (abandon) return;
  Current current(plan->device());
  plan->end();
}

void end_module(Module* module, bool abandon) {
  std::unique_ptr<Module> owned(module);
  if (abandon) return;
  Current current(*module->device);
  HAL_CUDA(*module->device, cuModuleUnload, module->module);
}

anyhal_status release(anyhal_self*, uint32_t object_kind, uint64_t object, uint32_t flags,
                      anyhal_error* error) {
  const bool abandon = (flags & ANYHAL_RELEASE_ABANDON) != 0;
  return guarded(error, [&] {
    switch (object_kind) {
      case ANYHAL_OBJECT_DEVICE:
        return end_device(*reinterpret_cast<Device*>(object), abandon);
      case ANYHAL_OBJECT_MEMORY:
        return end_block(reinterpret_cast<Block*>(object), abandon);
      case ANYHAL_OBJECT_QUEUE:
        return end_queue(reinterpret_cast<Queue*>(object), abandon);
      case ANYHAL_OBJECT_PLAN:
        return end_plan(reinterpret_cast<Plan*>(object), abandon);
      case ANYHAL_OBJECT_MODULE:
        return end_module(reinterpret_cast<Module*>(object), abandon);
      default:
        throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                    "objects of kind " + std::to_string(object_kind) +
                        " are not made here; check the kind");
    }
  });
}

anyhal_status native_handle(anyhal_self*, uint32_t object_kind, uint64_t object,
                            uint64_t* out_handle, uint32_t* out_type, uint32_t* out_owned,
                            anyhal_error* error) {
  return guarded(error, [&] {
    *out_type = ANYHAL_NATIVE_CUDA_STREAM;
    *out_owned = 0;
    switch (object_kind) {
      case ANYHAL_OBJECT_DEVICE:
        *out_handle = reinterpret_cast<uint64_t>(reinterpret_cast<Device*>(object)->context);
        return;
      case ANYHAL_OBJECT_MEMORY:
        *out_handle = reinterpret_cast<Block*>(object)->base;
        return;
      case ANYHAL_OBJECT_QUEUE:
        *out_handle = reinterpret_cast<uint64_t>(reinterpret_cast<Queue*>(object)->stream);
        return;
      case ANYHAL_OBJECT_MODULE:
        *out_handle = reinterpret_cast<uint64_t>(reinterpret_cast<Module*>(object)->module);
        return;
      default:
        throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_NONE, 0,
                    "there is nothing of the driver's behind this kind of object; ask for a "
                    "device, a block, a queue or a module");
    }
  });
}

anyhal_status notify(anyhal_self* handle, uint32_t event, uint64_t, uint64_t* out_bytes,
                     anyhal_error*) {
  if (out_bytes != nullptr) *out_bytes = 0;
  if (event == ANYHAL_EVENT_FORK_CHILD) self_of(handle).forked = true;
  return ANYHAL_STATUS_OK;
}

// ------------------------------------------------------------------------------------- table

anyhal_table make_table() {
  anyhal_table t = {};
  t.size = sizeof t;
  t.device_list = device_list;
  t.device_open = device_open;
  t.memory_alloc = slots::memory_alloc;
  t.op_query = op_query;
  t.op_prepare = op_prepare;
  t.op_enqueue = op_enqueue;
  t.release = release;
  t.queue_create = slots::queue_create;
  t.queue_signal = slots::queue_signal;
  t.queue_wait = slots::queue_wait;
  t.host_wait = slots::host_wait;
  t.queue_copy = slots::queue_copy;
  t.device_query = device_query;
  t.memory_import = slots::memory_import;
  t.queue_fill = slots::queue_fill;
  t.graph_prepare = slots::graph_prepare;
  t.module_load = slots::module_load;
  t.kernel_prepare = slots::kernel_prepare;
  t.queue_native = slots::queue_native;
  t.native_handle = native_handle;
  t.notify = notify;
  t.extension = slots::extension;
  return t;
}

}  // namespace

const anyhal_table& the_table() {
  static const anyhal_table table = make_table();
  return table;
}

}  // namespace hal::cuda
