// The way past the ops: users' modules and kernels, the vendor's handles, named extensions.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernel.hpp"

#include "core/answers.hpp"

namespace hal {

Module* load_module(Device& device, const anyhal_payload& payload) {
  device.require_alive();
  auto* module = new Module;
  module->device = &device;
  ErrorRecord error;
  const anyhal_status status =
      device.table->module_load(device.handle, &payload, &module->handle, error);
  if (status == ANYHAL_STATUS_OK) return module;
  delete module;
  if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record);
  const std::string what = "loading a module on " + device.name;
  if (status == ANYHAL_STATUS_UNSUPPORTED && !error.record.text[0])
    throw Error(status, what + ": its backend loads no code of users; use another device",
                ANYHAL_REASON_OP);
  raise(status, error.record, what, *device.instance);
}

void release(Module* module) {
  if (!module || module->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Device& device = *module->device;
  ErrorRecord error;
  device.table->release(device.instance->reply.self, ANYHAL_OBJECT_MODULE,
                        reinterpret_cast<uint64_t>(module->handle),
                        device.lost ? uint32_t(ANYHAL_RELEASE_ABANDON) : 0u, error);
  if (module->deleter) module->deleter(module->owner);
  delete module;
}

namespace {

// Each value at the next multiple of its size behind the addresses.
std::vector<anyhal_parameter> places_of(const KernelSignature& signature) {
  std::vector<anyhal_parameter> places;
  uint32_t at = uint32_t(signature.access.size()) * 8;
  for (uint32_t bytes : signature.bytes) {
    at = (at + bytes - 1) / bytes * bytes;
    places.push_back({at, bytes});
    at += bytes;
  }
  return places;
}

}  // namespace

Plan* prepare_kernel(Module& module, const std::string& entry, const KernelSignature& signature) {
  Device& device = *module.device;
  device.require_alive();
  const std::string what = "preparing the kernel '" + entry + "' on " + device.name;
  const size_t count = signature.access.size() + signature.bytes.size();
  if (count > kMaxOperands)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                what + ": it has " + std::to_string(count) + " parameters and at most " +
                    std::to_string(kMaxOperands) + " are possible; put values into an array");
  const std::vector<anyhal_parameter> places = places_of(signature);
  anyhal_signature s{};
  s.size = sizeof(s);
  s.operand_count = uint32_t(count), s.parameter_count = uint32_t(places.size());
  s.parameters = places.data();
  for (int d = 0; d < 3; ++d) s.grid[d] = signature.grid[d], s.block[d] = signature.block[d];
  s.shared_bytes = signature.shared_bytes;
  anyhal_plan* handle = nullptr;
  const anyhal_prepared* prepared = nullptr;
  ErrorRecord error;
  const anyhal_status status =
      device.table->kernel_prepare(module.handle, entry.c_str(), &s, &handle, &prepared, error);
  if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record);
  check(status, error, what, *device.instance);
  check_prepared(device, handle, prepared, 0, what);  // a user's kernel has nothing to pack
  device.counters.plans_prepared.fetch_add(1, std::memory_order_relaxed);
  auto* plan = new Plan;
  module.retain();
  plan->device = &device, plan->module = &module;
  plan->handle = handle, plan->enqueue = device.table->op_enqueue;
  plan->operand_count = uint32_t(count);
  for (size_t i = 0; i < signature.access.size(); ++i) {
    plan->reads |= uint32_t((signature.access[i] & ANYHAL_ACCESS_READ) != 0) << i;
    plan->writes |= uint32_t((signature.access[i] & ANYHAL_ACCESS_WRITE) != 0) << i;
  }
  plan->workspace_bytes = prepared->workspace_bytes;
  plan->capture_safe = prepared->flags & ANYHAL_PREPARED_CAPTURE_SAFE;
  plan->op_name = plan->kernel = entry, plan->called = "kernel '" + entry + "'";
  plan->state = "user's", plan->release_gil = true;
  return track_plan(plan);
}

namespace {

NativeHandle show(Device& device, uint32_t kind, uint64_t object, const char* what) {
  NativeHandle out;
  ErrorRecord error;
  check(device.table->native_handle(device.instance->reply.self, kind, object, &out.handle,
                                    &out.type, &out.owned, error),
        error, std::string("asking for the vendor's handle of ") + what + " " + device.name,
        *device.instance);
  return out;
}

}  // namespace

NativeHandle native_handle(Device& device) {
  device.require_alive();
  return show(device, ANYHAL_OBJECT_DEVICE, reinterpret_cast<uint64_t>(device.handle),
              "the device");
}

NativeHandle native_handle(Queue& queue) {
  Device& device = *queue.device;
  device.require_alive();
  if (device.synchronous)
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "a queue of " + device.name +
                    " is the calling thread and has no vendor's handle; call what you want called");
  return show(device, ANYHAL_OBJECT_QUEUE, reinterpret_cast<uint64_t>(queue.handle), "a queue of");
}

NativeHandle native_handle(const Operand& memory) {
  Device& device = *memory.buffer->device;
  device.require_alive();
  if (device.synchronous && device.host_memory)
    return {host_address(memory), 0, ANYHAL_NATIVE_HOST, 0};
  const anyhal_ref ref = ref_of(device, memory);
  NativeHandle out = show(device, ANYHAL_OBJECT_MEMORY, ref.memory, "memory of");
  out.offset = ref.offset;
  return out;
}

const void* find_extension(Device& device, const std::string& name, uint32_t since) {
  device.require_alive();
  const void* table = nullptr;
  ErrorRecord error;
  const anyhal_status status =
      device.table->extension(device.instance->reply.self, name.c_str(), since, &table, error);
  const std::string what = "asking " + device.name + " for the extension '" + name + "' " +
                           std::to_string(since) + " or later";
  if (status == ANYHAL_STATUS_NOT_FOUND)
    raise(ANYHAL_STATUS_UNSUPPORTED, error.record, what, *device.instance);
  if (status == ANYHAL_STATUS_UNSUPPORTED)
    throw Error(status, what + ": its backend has no extensions; use another device",
                ANYHAL_REASON_OP);
  check(status, error, what, *device.instance);
  return table;
}

}  // namespace hal
