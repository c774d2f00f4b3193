// Ops: asked about, compiled, run.
// SPDX-License-Identifier: Apache-2.0
#include "objects.h"
#include "rows.h"
#include "view.h"

namespace hal::pjrt {
namespace {

using sdk::Failure;
using sdk::operand;

bool present(const anyhal_tensor_desc& t) { return !sdk::absent(t) && sdk::element_count(t) != 0; }

// The program of one op in the making, and the plan that will run it.
struct Builder {
  const anyhal_op_desc& desc;
  Plan& plan;
  Text text;
  std::vector<Value> blocks;        // by operand: what its block holds before the run
  std::vector<int64_t> parameters;  // by operand: where that comes in, or -1

  Value take(uint32_t number) {
    const Place place = place_of(operand(desc, number));
    parameters[number] = static_cast<int64_t>(text.parameter_count());
    plan.parameters.push_back({number, false});
    return blocks[number] = text.parameter(place.dtype, {place.total});
  }

  Value input(uint32_t number) {
    const anyhal_tensor_desc& t = operand(desc, number);
    if (sdk::absent(t)) return {};
    if (present(t)) return read_view(text, t, take(number));
    Place place = place_of(t);
    return text.number(0, sdk::kBool.has(t.dtype) ? t.dtype : place.dtype, place.dims);
  }

  void output(uint32_t number, const Value& value) {
    const anyhal_tensor_desc& t = operand(desc, number);
    if (!present(t)) return;
    int64_t from = -1;
    Value before;
    if (t.alias_of != 0 && t.alias_of <= desc.input_count && parameters[t.alias_of - 1] >= 0) {
      from = parameters[t.alias_of - 1];
      before = blocks[t.alias_of - 1];
    } else if (!place_of(t).whole()) {
      before = take(number);
      from = parameters[number];
    }
    if (from >= 0) {
      text.alias(static_cast<size_t>(from), text.result_count());
      plan.parameters[static_cast<size_t>(from)].donated = plan.donates = true;
    }
    plan.results.push_back({number, from});
    text.result(write_view(text, t, before, value));
  }

  // Positions are looked at before the run where the host can read them; else the run notes them.
  void check_positions() {
    const Positions at = positions_of(desc);
    if (at.operand < 0 || !present(operand(desc, static_cast<uint32_t>(at.operand)))) return;
    if (plan.plugin->host_memory()) {
      plan.checked.push_back(checked(desc, at, static_cast<size_t>(at.operand)));
    } else {
      plan.conditions = true;
      text.emit_conditions();
    }
  }
};

void describe(Plan& plan, const anyhal_op_desc& desc) {
  for (uint32_t i = 0; i < desc.operand_count; ++i) {
    const anyhal_tensor_desc& t = operand(desc, i);
    plan.operands.push_back({t.block_bytes, t.base_offset, present(t)});
    if (i >= desc.input_count && present(t)) plan.prepared.hidden_bytes += t.block_bytes;
  }
}

void build(Plan& plan, const anyhal_op_desc& desc, const anyhal_services* services) {
  Builder builder{desc,
                  plan,
                  {},
                  std::vector<Value>(desc.operand_count),
                  std::vector<int64_t>(desc.operand_count, -1)};
  std::vector<Value> inputs;
  for (uint32_t i = 0; i < desc.input_count; ++i) inputs.push_back(builder.input(i));
  builder.output(desc.input_count, lowering_of(desc.op)(builder.text, desc, inputs));
  builder.check_positions();
  plan.empty = plan.results.empty();
  describe(plan, desc);
  if (plan.empty) return;
  plan.program = compile_cached(*plan.plugin, builder.text.str(), services);
  plan.prepared.hidden_bytes += plan.program.temp_bytes(*plan.plugin);
}

}  // namespace

Plan::~Plan() {
  if (plugin == nullptr) return;
  if (program.loaded != nullptr) program.destroy(*plugin);
  for (const auto& block : baked)
    if (block->buffer != nullptr) plugin->destroy(block->buffer);
}

Checked checked(const anyhal_op_desc& desc, const Positions& at, size_t call_operand) {
  const anyhal_tensor_desc& t = operand(desc, static_cast<uint32_t>(at.operand));
  return {call_operand,
          t.dtype,
          at.bound,
          Dims(t.dims, t.dims + t.rank),
          Dims(t.strides, t.strides + t.rank),
          t.base_offset};
}

namespace slots {

anyhal_status op_query(anyhal_device*, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  const anyhal_status status = op_table().query(desc, verdict, error);
  if (status == ANYHAL_STATUS_OK && verdict->support == ANYHAL_SUPPORT_YES)
    verdict->compile_ms = 30;
  return status;
}

anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(device);
    sdk::Answer answer;
    const sdk::Row* row = op_table().find(*desc, answer);
    if (row == nullptr)
      throw Failure(answer.status, answer.reason, "%s; let it decompose or use another device",
                    answer.why);
    auto plan = std::make_unique<Plan>();
    plan->plugin = device->plugin;
    plan->kernel = kernel_of(desc->op);
    plan->prepared.size = sizeof plan->prepared;
    plan->prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    plan->prepared.kernel = plan->kernel.c_str();
    plan->prepared.library = device->plugin->file().c_str();
    build(*plan, *desc, device->self->services);
    *out_prepared = &plan->prepared;
    *out_plan = reinterpret_cast<anyhal_plan*>(plan.release());
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                         anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(queue);
    run_plan(*queue, *reinterpret_cast<const Plan*>(plan), *call);
    return ANYHAL_STATUS_OK;
  });
}

}  // namespace slots
}  // namespace hal::pjrt
