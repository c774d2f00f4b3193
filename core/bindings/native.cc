// The way past the ops, for Python: native work and handles, users' kernels, extensions.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "anyhal/sdk/kernel_limits.h"
#include "core/bindings/array.hpp"
#include "core/bindings/scope.hpp"
#include "core/kernel.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace hal {
namespace {

struct ModuleRef {
  Module* module;
  explicit ModuleRef(Module* m) : module(m) {}
  ModuleRef(const ModuleRef& o) : module(o.module) { module->retain(); }
  ~ModuleRef() { release(module); }
};

void drop_owner(void* owner) {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(static_cast<PyObject*>(owner));
  PyGILState_Release(state);
}

ModuleRef load(Device& device, uint32_t format, nb::bytes code, const std::string& architecture,
               nb::object owner) {
  anyhal_payload payload{};
  payload.size = sizeof(payload), payload.format = format;
  payload.bytes = code.c_str(), payload.byte_count = code.size();
  payload.architecture = architecture.c_str();
  Module* module;
  {
    nb::gil_scoped_release nogil;
    module = load_module(device, payload);
  }
  module->deleter = drop_owner, module->owner = owner.release().ptr();
  return ModuleRef(module);
}

PlanRef prepare(ModuleRef& module, const std::string& entry, const std::vector<uint32_t>& access,
                const std::vector<uint32_t>& bytes, std::tuple<uint32_t, uint32_t, uint32_t> grid,
                std::tuple<uint32_t, uint32_t, uint32_t> block, uint32_t shared_bytes) {
  KernelSignature s;
  s.access = access, s.bytes = bytes, s.shared_bytes = shared_bytes;
  std::tie(s.grid[0], s.grid[1], s.grid[2]) = grid;
  std::tie(s.block[0], s.block[1], s.block[2]) = block;
  nb::gil_scoped_release nogil;
  return PlanRef(prepare_kernel(*module.module, entry, s));
}

Operand operand_of(nb::handle h) {
  if (!is_array(h.ptr())) throw nb::type_error("operands are Arrays");
  return {as_array(h.ptr())->data, as_array(h.ptr())->buffer};
}

void launch(PlanRef& p, nb::list arrays, const std::vector<uint64_t>& values, Queue& queue) {
  Operand operands[kMaxOperands] = {};
  const size_t count = nb::len(arrays);
  if (count + values.size() != p.plan->operand_count)
    throw nb::value_error("a kernel needs all of its operands");
  for (size_t i = 0; i < count; ++i) operands[i] = operand_of(arrays[i]);
  for (size_t i = 0; i < values.size(); ++i) operands[count + i].data = values[i];
  nb::gil_scoped_release nogil;
  run_plan(*p.plan, operands, queue);
}

// What the callback of native work is called with: (type, handle, operands). It returns a status
// and raises nothing.
struct Work {
  nb::handle callback;

  static anyhal_status call(void* self, const anyhal_native_queue* native) {
    nb::gil_scoped_acquire gil;
    nb::list operands;
    for (uint32_t i = 0; i < native->operand_count; ++i) operands.append(native->operands[i]);
    return anyhal_status(nb::cast<int>(
        static_cast<const Work*>(self)->callback(native->type, native->handle, operands)));
  }
};

void run_work(Queue& queue, nb::callable callback, nb::list arrays, uint32_t reads,
              uint32_t writes) {
  Operand operands[kMaxOperands];
  const size_t count = nb::len(arrays);
  if (count > kMaxOperands) throw nb::value_error("native work has too many operands");
  for (size_t i = 0; i < count; ++i) operands[i] = operand_of(arrays[i]);
  Work work{callback};
  nb::gil_scoped_release nogil;
  run_native(queue, Work::call, &work, operands, reads, writes, uint32_t(count));
}

nb::tuple shown(const NativeHandle& h) {
  return nb::make_tuple(h.type, h.handle, h.offset, h.owned != 0);
}

nb::dict kernel_limits(Device& device) {
  const void* found =
      find_extension(device, ANYHAL_EXTENSION_KERNEL_LIMITS, ANYHAL_KERNEL_LIMITS_VERSION);
  anyhal_kernel_limits limits{};
  limits.size = sizeof(limits);
  ErrorRecord error;
  check(
      static_cast<const anyhal_kernel_limits_table*>(found)->limits(device.handle, &limits, error),
      error, "asking for the limits of kernels on " + device.name, *device.instance);
  limits.features[sizeof(limits.features) - 1] = 0;
  nb::dict d;
  d["units"] = limits.units, d["group_items"] = limits.group_items;
  d["group_bytes"] = limits.group_bytes, d["features"] = std::string(limits.features);
  return d;
}

}  // namespace

void bind_native(nb::module_& m) {
  nb::class_<ModuleRef>(m, "NativeModule").def("prepare", &prepare);
  m.def("load_module", &load);
  m.def("launch", &launch);
  m.def("run_native", &run_work);
  m.def("native_handle_of_device", [](Device& d) { return shown(native_handle(d)); });
  m.def("native_handle_of_queue", [](Queue& q) { return shown(native_handle(q)); });
  m.def("native_handle_of_array", [](nb::handle h) { return shown(native_handle(operand_of(h))); });
  m.def("kernel_limits", &kernel_limits);
  m.def("extension", [](Device& device, const std::string& name, uint32_t since) {
    const void* table = find_extension(device, name, since);
    const auto* head = static_cast<const uint32_t*>(table);  // every table begins so
    return nb::make_tuple(reinterpret_cast<uint64_t>(table), head[0], head[1],
                          reinterpret_cast<uint64_t>(device.handle));
  });
}

}  // namespace hal
