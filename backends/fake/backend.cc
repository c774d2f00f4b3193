// Entry of the fake backend: reads the script, fills the table as the script wants it.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "anyhal/fingerprints.h"
#include "device.hh"

namespace hal::fake {

anyhal_status fail(anyhal_status status, int32_t reason, const char* text, anyhal_error* error) {
  if (error != nullptr && error->size >= sizeof(anyhal_error)) {
    error->reason = reason;
    error->vendor_code = 0;
    std::snprintf(error->text, sizeof error->text, "%s", text);
  }
  return status;
}

anyhal_status fail(const Fault& fault, anyhal_error* error) {
  return fail(fault.status, fault.reason, fault.text.c_str(), error);
}

void violation(Instance& instance, const std::string& text) {
  ++instance.violations;
  if (instance.violation_text.empty()) instance.violation_text = text;
  const std::string line = "the core broke the contract: " + text;
  if (instance.services != nullptr && ANYHAL_HAS(instance.services, anyhal_services, log))
    instance.services->log(instance.services->context, 3, line.c_str());
  throw Fault{ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, line};
}

namespace {

[[noreturn]] void lose(Device& device, const std::string& where) {
  device.lost = true;
  device.loss = "device " + std::to_string(device.number) + " was lost at " + where;
  throw Fault{ANYHAL_STATUS_DEVICE_LOST, ANYHAL_REASON_NONE, device.loss};
}

void play_failures(Instance& instance, Device* device, uint32_t slot) {
  for (const auto& failure : instance.script.failures) {
    if (failure.slot != slot) continue;
    if (failure.device >= 0 && (device == nullptr || device->number != uint32_t(failure.device)))
      continue;
    const uint64_t call =
        failure.device >= 0 ? instance.device_calls[device->number][slot] : instance.calls[slot];
    if (failure.call != 0 && call != failure.call && !(failure.onward && call > failure.call))
      continue;
    const std::string where = std::string(slot_name(slot)) + " call " + std::to_string(call);
    if (failure.status == ANYHAL_STATUS_DEVICE_LOST && device != nullptr) lose(*device, where);
    throw Fault{failure.status, ANYHAL_REASON_NONE, "scripted failure of " + where};
  }
}

}  // namespace

void admit(Instance& instance, Device* device, uint32_t slot) {
  if (instance.forked)
    throw Fault{ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE,
                "called in a forked child; only release with ABANDON is allowed"};
  ++instance.calls[slot];
  if (device != nullptr) ++instance.device_calls[device->number][slot];
  if (device != nullptr && device->lost)
    throw Fault{ANYHAL_STATUS_DEVICE_LOST, ANYHAL_REASON_NONE, device->loss};
  play_failures(instance, device, slot);
}

void require_alive(Instance& instance, const Object* object, anyhal_object kind) {
  static constexpr const char* kinds[] = {"?", "device", "memory", "queue", "plan", "module"};
  if (object == nullptr || object->kind != kind)
    violation(instance, std::string("a handle is no ") + kinds[kind]);
  if (!object->alive) violation(instance, std::string(kinds[kind]) + " used after its release");
}

namespace {

void fill_table(Instance& instance) {
  anyhal_table& t = instance.table;
  t.size = sizeof t;
  t.device_list = slots::device_list;
  t.device_open = slots::device_open;
  t.memory_alloc = slots::memory_alloc;
  t.op_query = slots::op_query;
  t.op_prepare = slots::op_prepare;
  t.op_enqueue = slots::op_enqueue;
  t.release = slots::release;
  t.queue_copy = slots::queue_copy;
  t.device_query = slots::device_query;
  t.memory_map = slots::memory_map;
  t.memory_import = slots::memory_import;
  t.constant_pack = slots::constant_pack;
  t.queue_fill = slots::queue_fill;
  t.graph_prepare = slots::graph_prepare;
  t.module_load = slots::module_load;
  t.kernel_prepare = slots::kernel_prepare;
  t.queue_native = slots::queue_native;
  t.native_handle = slots::native_handle;
  t.notify = slots::notify;
  t.extension = slots::extension;
  if (instance.script.async) {
    t.queue_create = slots::queue_create;
    t.queue_signal = slots::queue_signal;
    t.queue_wait = slots::queue_wait;
    t.host_wait = slots::host_wait;
    t.queue_notify = slots::queue_notify;
  }
  // All slots have one size and follow each other, which the layout table of tests/abi pins down.
  auto* first = reinterpret_cast<unsigned char*>(&t) + offsetof(anyhal_table, device_list);
  for (uint32_t slot : instance.script.absent)
    if (slot != 0) std::memset(first + (slot - 1) * sizeof(void*), 0, sizeof(void*));
}

std::string script_text(const anyhal_hello& hello) {
  const anyhal_services& core = *hello.services;
  if (const char* script = core.setting(core.context, "script")) return script;
  const char* environment = std::getenv("ANYHAL_FAKE");
  return environment == nullptr ? "" : environment;
}

anyhal_memory_kind device_kind(const Script& script, const DeviceScript& device) {
  anyhal_memory_kind kind = {};
  kind.size = sizeof kind;
  kind.flags = ANYHAL_MEMORY_DEVICE_LOCAL;
  if (script.cell) {
    kind.flags |= ANYHAL_MEMORY_CELL | script.partial;
  } else if (script.async) {
    kind.flags |= ANYHAL_MEMORY_STABLE_ADDRESS;
  } else {
    kind.flags |=
        ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS;
  }
  kind.offset_alignment = device.offset_alignment;
  kind.base_alignment = 64;
  kind.granularity = 1;
  kind.block_bytes_max = device.block_max;
  kind.heap_bytes = device.heap;
  kind.blocks_max = device.blocks_max;
  return kind;
}

anyhal_memory_kind staging_kind(const DeviceScript& device) {
  anyhal_memory_kind kind = {};
  kind.size = sizeof kind;
  kind.flags = ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS;
  kind.heap = 1;
  kind.offset_alignment = 1;
  kind.base_alignment = 64;
  kind.granularity = 1;
  kind.heap_bytes = device.heap;
  return kind;
}

void make_devices(Instance& instance) {
  const auto& scripts = instance.script.devices;
  for (const auto& script : scripts) {
    instance.kinds.push_back(device_kind(instance.script, script));
    instance.kinds.push_back(staging_kind(script));
  }
  for (uint32_t number = 0; number < scripts.size(); ++number) {
    auto device = std::make_unique<Device>();
    device->kind = ANYHAL_OBJECT_DEVICE;
    device->alive = false;
    device->instance = &instance;
    device->number = number;
    device->device = device.get();
    instance.devices.push_back(std::move(device));
    instance.device_calls.emplace_back(kSlotCount + 1, 0);
  }
}

void check_hello(const anyhal_hello& hello) {
  if (hello.abi_min > ANYHAL_ABI_VERSION || hello.abi_max < ANYHAL_ABI_VERSION) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "this backend speaks contract %u.%u, the core %u.%u to %u.%u; upgrade the %s",
                  ANYHAL_ABI_MAJOR, ANYHAL_ABI_MINOR, hello.abi_min >> 16, hello.abi_min & 0xffff,
                  hello.abi_max >> 16, hello.abi_max & 0xffff,
                  hello.abi_min > ANYHAL_ABI_VERSION ? "backend" : "core");
    throw Fault{ANYHAL_STATUS_ABI_MISMATCH, ANYHAL_REASON_NONE, text};
  }
  if (hello.flags != 0 || hello.reserved != 0)
    throw Fault{ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
                "the hello record has unknown flags or a reserved word that is not zero"};
}

void check_settings(const anyhal_hello& hello) {
  for (uint32_t i = 0; i < hello.setting_count; ++i) {
    const std::string name = hello.settings[i].name;
    if (name != "script" && name != "cache_dir" && name != "folder" && name != "selftest")
      throw Fault{ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE, "no setting is called " + name};
  }
}

anyhal_status start(const anyhal_hello& hello, anyhal_reply& reply, anyhal_error* error) {
  auto instance = std::make_unique<Instance>();
  instance->services = hello.services;
  instance->name = hello.instance_name != nullptr ? hello.instance_name : "";
  instance->script = parse_script(script_text(hello));
  if (!is_bad(*instance, Bad::any_version)) check_hello(hello);
  if (is_bad(*instance, Bad::strict_settings)) check_settings(hello);
  bad_entry(*instance);
  make_devices(*instance);
  fill_table(*instance);
  for (const auto& failure : instance->script.failures)
    if (failure.slot == 0)
      return fail(Fault{failure.status, ANYHAL_REASON_MISSING_LIBRARY,
                        "scripted failure of the entry: " +
                            (instance->script.note.empty() ? "libfake_vendor.so.1 is not installed"
                                                           : instance->script.note)},
                  error);
  reply.flags = instance->script.async ? 0 : ANYHAL_REPLY_SYNCHRONOUS;
  if (!is_bad(*instance, Bad::hot_malloc)) reply.flags |= ANYHAL_REPLY_HIDDEN_MEMORY;
  reply.chosen = reply.abi_min = reply.abi_max = ANYHAL_ABI_VERSION;
  reply.registry_version = ANYHAL_REGISTRY_VERSION;
  reply.fingerprints = anyhal_fingerprints;
  reply.fingerprint_count = ANYHAL_FINGERPRINT_COUNT;
  reply.table = &instance->table;
  reply.self = reinterpret_cast<anyhal_self*>(instance.get());
  reply.build_id = "fake 1";
  instance.release();  // lives as long as the process, see backend.h
  return ANYHAL_STATUS_OK;
}

}  // namespace
}  // namespace hal::fake

extern "C" ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello,
                                                           anyhal_reply* reply,
                                                           anyhal_error* error) {
  try {
    return hal::fake::start(*hello, *reply, error);
  } catch (const hal::fake::Fault& fault) {
    return hal::fake::fail(fault, error);
  } catch (const std::exception& failure) {
    return hal::fake::fail(ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE, failure.what(), error);
  }
}
