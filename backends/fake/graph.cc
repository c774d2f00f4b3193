// Graphs and kernels of the fake backend: a list of calls as one plan, a byte copy as a kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "device.hh"

namespace hal::fake {
namespace {

// Where a value of the list lives: a fixed place, or the binding given at launch.
struct Place {
  anyhal_ref ref;
  int32_t binding;
};

Place place_of(Instance& instance, const anyhal_graph_desc& desc, uint32_t number) {
  if (number >= desc.value_count) violation(instance, "a graph entry names no value of the graph");
  const anyhal_graph_value& value = desc.values[number];
  if (value.kind == ANYHAL_VALUE_BINDING) {
    if (value.binding >= desc.binding_count)
      violation(instance, "a graph value names no binding of the graph");
    return {value.ref, static_cast<int32_t>(value.binding)};
  }
  return {value.ref, -1};
}

[[noreturn]] void refuse(anyhal_reason reason, const std::string& text) {
  throw Fault{ANYHAL_STATUS_UNSUPPORTED, reason, "graph_prepare: " + text};
}

// A compiler goes by the description, so that must say what the plan was made from.
void check_described(Instance& instance, const anyhal_graph_desc& desc,
                     const anyhal_graph_entry& entry) {
  const auto* plan = reinterpret_cast<const Plan*>(entry.plan);
  if (entry.op == nullptr || entry.op->op != plan->op.op ||
      entry.op->operand_count != entry.value_count)
    violation(instance, "a graph entry's description is not that of its plan");
  for (uint32_t i = 0; i < entry.value_count; ++i)
    if (entry.values[i] >= desc.value_count || desc.values[entry.values[i]].desc == nullptr)
      violation(instance, "a graph entry names no described value of the graph");
}

// Places of which no memory is promised once the graph has run.
void take_intermediates(Device& device, const anyhal_graph_desc& desc, Plan& plan) {
  for (uint32_t i = 0; i < desc.value_count; ++i) {
    const anyhal_graph_value& value = desc.values[i];
    if (value.kind != ANYHAL_VALUE_INTERMEDIATE) continue;
    const uint64_t bytes = span_of(*value.desc);
    plan.intermediates.push_back({resolve(device, value.ref, bytes, "graph value"), bytes});
  }
}

Plan::Step op_step(Device& device, const anyhal_graph_desc& desc, const anyhal_graph_entry& entry) {
  Instance& instance = *device.instance;
  auto* plan = reinterpret_cast<Plan*>(entry.plan);
  require_alive(instance, plan, ANYHAL_OBJECT_PLAN);
  if (plan->type == Plan::kOp && instance.script.unsafe.contains(plan->op.op))
    refuse(ANYHAL_REASON_CAPTURE, std::string(op_name(plan->op.op)) + " is not capture-safe");
  Plan::Step step;
  step.item.plan = plan;
  step.item.tag = entry.tag;
  std::vector<anyhal_ref> refs;
  for (uint32_t i = 0; i < entry.value_count; ++i) {
    const Place place = place_of(instance, desc, entry.values[i]);
    refs.push_back(place.ref);
    step.bindings.push_back(place.binding);
  }
  anyhal_call call = {};
  call.size = sizeof call;
  call.operands = refs.data();
  call.operand_count = entry.value_count;
  step.item.operands = operands_of(device, *plan, call);
  return step;
}

// Copies name destination, then source.
Plan::Step copy_step(Device& device, const anyhal_graph_desc& desc,
                     const anyhal_graph_entry& entry) {
  if (entry.value_count != 2) violation(*device.instance, "a graph copy has two values");
  const Place to = place_of(*device.instance, desc, entry.values[0]);
  const Place from = place_of(*device.instance, desc, entry.values[1]);
  Plan::Step step;
  step.item.type = Item::kCopy;
  step.item.regions.push_back({resolve(device, to.ref, entry.bytes, "graph copy"),
                               resolve(device, from.ref, entry.bytes, "graph copy"), entry.bytes});
  step.bindings = {to.binding, from.binding};
  return step;
}

Plan::Step fill_step(Device& device, const anyhal_graph_desc& desc,
                     const anyhal_graph_entry& entry) {
  if (entry.value_count != 1) violation(*device.instance, "a graph fill has one value");
  const Place to = place_of(*device.instance, desc, entry.values[0]);
  Plan::Step step;
  step.item.type = Item::kFill;
  step.item.regions.push_back(
      {resolve(device, to.ref, entry.bytes, "graph fill"), {}, entry.bytes});
  step.item.pattern_bytes = 4;
  std::memcpy(step.item.pattern, entry.data, 4);
  step.bindings = {to.binding};
  return step;
}

Plan::Step step_of(Device& device, const anyhal_graph_desc& desc, const anyhal_graph_entry& entry) {
  switch (entry.kind) {
    case ANYHAL_ENTRY_OP:
      return op_step(device, desc, entry);
    case ANYHAL_ENTRY_COPY:
      return copy_step(device, desc, entry);
    case ANYHAL_ENTRY_FILL:
      return fill_step(device, desc, entry);
    default:
      refuse(ANYHAL_REASON_CAPTURE, "native work is not recorded");
  }
}

void finish(Device& device, std::unique_ptr<Plan> plan, anyhal_plan** out_plan,
            const anyhal_prepared** out_prepared) {
  plan->prepared.size = sizeof plan->prepared;
  plan->prepared.library = "";
  if (is_bad(*device.instance, Bad::last_graph)) {
    static std::vector<Plan*> all;  // each new graph's steps become those of the earlier ones
    for (Plan* old : all)
      if (old->alive && old->type == Plan::kGraph && plan->type == Plan::kGraph &&
          old->steps.size() == plan->steps.size() && old->device == &device)
        old->steps = plan->steps;
    all.push_back(plan.get());
  }
  Plan* made = adopt(*device.instance, std::move(plan), ANYHAL_OBJECT_PLAN, &device);
  *out_plan = reinterpret_cast<anyhal_plan*>(made);
  *out_prepared = &made->prepared;
}

}  // namespace

namespace slots {

anyhal_status graph_prepare(anyhal_device* handle, const anyhal_graph_desc* desc,
                            anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                            uint32_t* out_failing_entry, anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 19, error, [&](auto&) {
    *out_failing_entry = 0;
    const bool compiles = device.instance->script.compiles;
    if ((desc->mode == ANYHAL_GRAPH_COMPILE) != compiles)
      refuse(ANYHAL_REASON_CAPTURE, compiles ? "only mode COMPILE" : "only mode RECORD");
    auto plan = std::make_unique<Plan>();
    plan->type = Plan::kGraph;
    plan->binding_count = desc->binding_count;
    for (uint32_t i = 0; i < desc->entry_count; ++i) {
      *out_failing_entry = i;
      if (compiles) check_described(*device.instance, *desc, desc->entries[i]);
      plan->steps.push_back(step_of(device, *desc, desc->entries[i]));
      const Plan* part = plan->steps.back().item.plan;
      if (part != nullptr) plan->workspace = std::max(plan->workspace, part->workspace);
    }
    plan->prepared.workspace_bytes = plan->workspace;
    plan->prepared.workspace_alignment = 256;
    if (compiles) take_intermediates(device, *desc, *plan);
    plan->prepared.flags = device.instance->script.rebind ? ANYHAL_PREPARED_REBIND : 0;
    plan->prepared.kernel = "graph";
    finish(device, std::move(plan), out_plan, out_prepared);
  });
}

anyhal_status module_load(anyhal_device* handle, const anyhal_payload* payload,
                          anyhal_module** out_module, anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 20, error, [&](auto&) {
    const std::string& arch = device.instance->script.devices[device.number].arch;
    const std::string built = payload->architecture != nullptr ? payload->architecture : "";
    if (payload->format != ANYHAL_PAYLOAD_VENDOR || built != arch)
      throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ARCHITECTURE,
                  "module_load: built for '" + built + "'; this device is '" + arch + "'"};
    Module* made =
        adopt(*device.instance, std::make_unique<Module>(), ANYHAL_OBJECT_MODULE, &device);
    *out_module = reinterpret_cast<anyhal_module*>(made);
  });
}

// The one kernel: copy(destination, source, INLINE byte count).
anyhal_status kernel_prepare(anyhal_module* handle, const char* entry,
                             const anyhal_signature* signature, anyhal_plan** out_plan,
                             const anyhal_prepared** out_prepared, anyhal_error* error) {
  auto* module = reinterpret_cast<Module*>(handle);
  Device& device = *module->device;
  return guarded(*device.instance, &device, 21, error, [&](auto&) {
    require_alive(*device.instance, module, ANYHAL_OBJECT_MODULE);
    if (std::strcmp(entry, "copy") != 0)
      throw Fault{ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE,
                  std::string("kernel_prepare: the module has no '") + entry + "'"};
    if (signature->operand_count != 3)
      violation(*device.instance, "the kernel 'copy' takes three operands");
    auto plan = std::make_unique<Plan>();
    plan->type = Plan::kKernel;
    plan->binding_count = 3;
    plan->descriptor_flags = {0, 0, ANYHAL_TENSOR_INLINE};
    plan->prepared.kernel = "copy";
    finish(device, std::move(plan), out_plan, out_prepared);
  });
}

}  // namespace slots
}  // namespace hal::fake
