// The application's own kernels, and extensions.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernel.hpp"

#include "core/api/call.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"

namespace hal {
namespace {

KernelSignature signature_of(const hal_signature& given, const std::string& where) {
  if (given.size < sizeof(given))
    invalid(where + ": signature->size is " + std::to_string(given.size) +
            "; set it to sizeof(hal_signature)");
  if (given.parameter_count > HAL_OPERANDS_MAX)
    invalid(where + ": " + std::to_string(given.parameter_count) + " parameters; at most " +
            std::to_string(HAL_OPERANDS_MAX) + " are possible");
  if (given.parameter_count) need(given.parameters, "signature->parameters");
  if (given.reserved) invalid(where + ": signature->reserved is not 0");
  KernelSignature s;
  for (uint32_t i = 0; i < given.parameter_count; ++i) {
    const hal_parameter& p = given.parameters[i];
    const std::string which = where + ": parameter " + std::to_string(i);
    const bool value = p.access == 0;
    const bool sized = p.bytes == 1 || p.bytes == 2 || p.bytes == 4 || p.bytes == 8;
    if (value ? !sized : p.bytes != 0 || p.access > (HAL_ACCESS_READ | HAL_ACCESS_WRITE))
      invalid(which + " has access " + std::to_string(p.access) + " and " +
              std::to_string(p.bytes) +
              " bytes; a buffer has HAL_ACCESS_... and 0, a value 0 and 1, 2, 4 or 8");
    if (!value && !s.bytes.empty()) invalid(which + " is a buffer behind a value; reorder them");
    (value ? s.bytes : s.access).push_back(value ? p.bytes : p.access);
  }
  for (int d = 0; d < 3; ++d) {
    s.grid[d] = given.grid[d] ? given.grid[d] : 1;
    s.block[d] = given.block[d] ? given.block[d] : 1;
  }
  s.shared_bytes = given.shared_bytes;
  return s;
}

// The buffers of a launch, kept while it is queued.
struct Launch {
  Operand operands[HAL_OPERANDS_MAX] = {};
  Held<Buffer> held[HAL_OPERANDS_MAX];

  void take(uint32_t i, const hal_argument& a, const Plan& plan, const std::string& where) {
    const std::string name = "arguments[" + std::to_string(i) + "]";
    if (!(plan.reads >> i & 1) && !(plan.writes >> i & 1)) {
      if (a.buffer)
        invalid(where + ": " + name + " is a buffer and the kernel takes a value there");
      operands[i].data = a.bits;
      return;
    }
    bool frozen = false;
    uint64_t room = 0;
    held[i] = hold_of<Buffer>(a.buffer, Kind::kBuffer, name.c_str(), [&](Slot& slot) {
      frozen = slot.flags & OperandWord::kFrozen, room = slot.bytes;
    });
    if (held[i]->device != plan.device)
      invalid(where + ": " + name + " is on " + held[i]->device->name);
    if (a.bits > room)
      invalid(where + ": " + name + " begins at byte " + std::to_string(a.bits) + " of " +
                  std::to_string(room),
              HAL_REASON_BOUNDS);
    if (plan.writes >> i & 1 && frozen) invalid(where + ": " + name + " is frozen and written");
    for (uint32_t j = 0; j < i; ++j)
      if (held[j].get() == held[i].get() && ((plan.writes >> i | plan.writes >> j) & 1))
        invalid(where + ": " + name + " and arguments[" + std::to_string(j) +
                    "] are one buffer, and one is written; declare it once, for both",
                HAL_REASON_ALIASING);
    operands[i] = {data_of(*held[i]) + a.bits, held[i].get()};
  }
};

}  // namespace
}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_module_load(hal_device* device, int32_t format, const void* code,
                           uint64_t code_bytes, const char* architecture, hal_module** out_module,
                           hal_error* error) {
  return at_edge(error, [&] {
    need(out_module, "out_module"), need(code, "code");
    ApiDevice& d = device ? api_of(device) : default_device();
    anyhal_payload payload{};
    payload.size = sizeof(payload);
    payload.format = uint32_t(format), payload.bytes = code, payload.byte_count = code_bytes;
    payload.architecture = architecture ? architecture : "";
    if (format == HAL_FORMAT_HOST_LIBRARY || format == HAL_FORMAT_HOST_FUNCTION) {
      payload.format = ANYHAL_PAYLOAD_VENDOR;
      payload.architecture = format == HAL_FORMAT_HOST_LIBRARY ? "host library" : "host function";
    } else if (format < HAL_FORMAT_PTX || format > HAL_FORMAT_VENDOR) {
      invalid("loading a module on " + d.name + ": format " + std::to_string(format) +
              " is none of hal_format");
    }
    const Held<Module> module(load_module(d.opened(), payload));
    *out_module = static_cast<hal_module*>(handles(Kind::kModule).add([&](Slot& slot) {
      module->retain();
      slot.object = module.get(), slot.device = module->device;
    }));
  });
}

hal_status hal_module_release(hal_module* module, hal_error* error) {
  if (!module) return HAL_STATUS_OK;
  return at_edge(error, [&] {
    const Held<Module> held(static_cast<Module*>(handles(Kind::kModule).remove(module)));
    if (!held) slot_of(module, Kind::kModule, "module");
  });
}

hal_status hal_kernel_prepare(hal_module* module, const char* entry, const hal_signature* signature,
                              hal_kernel** out_kernel, hal_error* error) {
  return at_edge(error, [&] {
    need(out_kernel, "out_kernel"), need(entry, "entry"), need(signature, "signature");
    const Held<Module> m = hold_of<Module>(module, Kind::kModule, "module");
    const std::string where =
        std::string("preparing the kernel '") + entry + "' on " + m->device->name;
    const Held<Plan> plan(prepare_kernel(*m, entry, signature_of(*signature, where)));
    *out_kernel = static_cast<hal_kernel*>(handles(Kind::kKernel).add([&](Slot& slot) {
      plan->retain();
      slot.object = plan.get(), slot.device = plan->device;
    }));
  });
}

hal_status hal_kernel_launch(hal_queue* queue, hal_kernel* kernel, const hal_argument* arguments,
                             uint32_t argument_count, hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiQueue> q = queue_of(queue);
    const Held<Plan> plan = hold_of<Plan>(kernel, Kind::kKernel, "kernel");
    const std::string where = plan->label() + " on " + plan->device->name;
    if (q->core->device != plan->device) invalid(where + ": the queue is of " + q->device->name);
    if (argument_count != plan->operand_count)
      invalid(where + ": " + std::to_string(argument_count) + " arguments and the kernel has " +
              std::to_string(plan->operand_count) + " parameters");
    if (argument_count) need(arguments, "arguments");
    Launch launch;
    for (uint32_t i = 0; i < argument_count; ++i) launch.take(i, arguments[i], *plan, where);
    const auto lock = q->enter();
    run_plan(*plan, launch.operands, *q->core);
  });
}

hal_status hal_kernel_release(hal_kernel* kernel, hal_error* error) {
  if (!kernel) return HAL_STATUS_OK;
  return at_edge(error, [&] {
    const Held<Plan> held(static_cast<Plan*>(handles(Kind::kKernel).remove(kernel)));
    if (!held) slot_of(kernel, Kind::kKernel, "kernel");
  });
}

hal_status hal_extension(hal_device* device, const char* name, uint32_t since,
                         const void** out_table, void** out_device, hal_error* error) {
  return at_edge(error, [&] {
    need(out_table, "out_table"), need(out_device, "out_device"), need(name, "name");
    Device& d = (device ? api_of(device) : default_device()).opened();
    if (!since) invalid("asking for the extension '" + std::string(name) + "': since is 0; from 1");
    *out_table = find_extension(d, name, since);
    *out_device = d.handle;
  });
}

}  // extern "C"
