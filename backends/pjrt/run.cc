// One run: cells become buffers, the program is enqueued, results go behind their cells.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "objects.h"

namespace hal::pjrt {
namespace {

using sdk::Failure;

Block& cell_of(const Plan& plan, const anyhal_call& call, size_t operand) {
  const size_t given = call.operand_count;
  return operand < given ? *block_of(call.operands[operand]) : *plan.constants[operand - given];
}

// The plugin compares neither dtypes nor shapes, so what it gets must be what was prepared for.
void check_call(const anyhal_queue& queue, const Plan& plan, const anyhal_call& call) {
  if (call.operand_count != plan.operands.size())
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "the call has %u operands and the plan %u; prepare a plan for this call",
                  call.operand_count, static_cast<unsigned>(plan.operands.size()));
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    if (!plan.operands[i].present) continue;
    const anyhal_ref& ref = call.operands[i];
    const Block* block = block_of(ref);
    if (block == nullptr || block->host != nullptr || block->plugin != queue.plugin ||
        block->bytes != plan.operands[i].block_bytes || ref.offset != plan.operands[i].offset)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "operand %u is not the cell and place that the plan was prepared for; prepare "
                    "a plan for this call",
                    static_cast<unsigned>(i));
  }
}

template <class Index>
void check_list(const Checked& list, const char* data) {
  const size_t rank = list.dims.size();
  std::vector<int64_t> at(rank, 0);
  for (;;) {
    int64_t offset = 0;
    for (size_t d = 0; d < rank; ++d) offset += at[d] * list.strides[d];
    const int64_t value = reinterpret_cast<const Index*>(data)[offset];
    if (value < 0 || value >= list.bound)
      throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                    "index %lld is outside [0, %lld); correct the indices",
                    static_cast<long long>(value), static_cast<long long>(list.bound));
    size_t d = rank;
    while (d > 0 && ++at[d - 1] == list.dims[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

// Waits for the positions: clamping them, as XLA does, would compute something else in silence.
void check_positions(const anyhal_queue& queue, const Plan& plan, const anyhal_call& call) {
  for (const Checked& list : plan.checked) {
    api::Buffer* buffer = filled(cell_of(plan, call, list.operand));
    if (const Failed why = queue.plugin->await(buffer); why.code != 0) {
      queue.plugin->judge(why);
      queue.plugin->require_here();
      throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0, "the indices were never computed: %.160s",
                    why.text.c_str());
    }
    const char* data = static_cast<const char*>(queue.plugin->pointer(buffer)) + list.first;
    if (list.dtype == ANYHAL_DTYPE_I32)
      check_list<int32_t>(list, data);
    else
      check_list<int64_t>(list, data);
  }
}

// A buffer that the program overwrites may not come in twice: then the plugin copies it instead.
void keep_shared(anyhal_queue& queue, const Plan& plan) {
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    if (!plan.parameters[i].donated) continue;
    const auto& all = queue.arguments;
    if (std::count(all.begin(), all.end(), all[i]) > 1)
      queue.kept.push_back(static_cast<int64_t>(i));
  }
}

bool deleted(const Plugin& plugin, api::Buffer* buffer) {
  api::Args<api::BufferIsDeleted> args;
  args->buffer = buffer;
  if (api::Error* error = plugin.call(api::kBufferIsDeleted, args)) {
    plugin.take(error);
    return true;
  }
  return args->is_deleted;
}

// Not accepted. What the program was to overwrite may be gone all the same.
[[noreturn]] void refused(anyhal_queue& queue, const Plan& plan, const anyhal_call& call,
                          api::Error* error) {
  const Plugin& plugin = *queue.plugin;
  const Failed why = plugin.take(error);
  const anyhal_status status = plugin.judge(why);
  plugin.require_here();
  bool lost = false;
  for (const Plan::Parameter& parameter : plan.parameters) {
    Block& cell = cell_of(plan, call, parameter.operand);
    if (!parameter.donated || cell.buffer == nullptr || !deleted(plugin, cell.buffer)) continue;
    plugin.destroy(cell.buffer);
    cell.buffer = nullptr;
    cell.lost = lost = true;
  }
  if (lost)
    throw Failure(ANYHAL_STATUS_EXECUTION_FAILED, 0, "%.160s; what it updates in place is lost",
                  why.text.c_str());
  if (status == ANYHAL_STATUS_OUT_OF_MEMORY)
    throw Failure(status, 0, "%.180s; free arrays", why.text.c_str());
  throw Failure(ANYHAL_STATUS_INTERNAL, 0, "the plugin refused the run: %.160s; report this",
                why.text.c_str());
}

}  // namespace

void run_plan(anyhal_queue& queue, const Plan& plan, const anyhal_call& call) {
  check_call(queue, plan, call);
  std::unique_lock cells(queue.plugin->cells());
  check_positions(queue, plan, call);  // also of a table without elements
  if (plan.empty) return;
  queue.arguments.clear();
  queue.kept.clear();
  for (const Plan::Parameter& parameter : plan.parameters)
    queue.arguments.push_back(filled(cell_of(plan, call, parameter.operand)));
  if (plan.donates) keep_shared(queue, plan);
  queue.outputs.assign(plan.results.size() + plan.conditions, nullptr);
  if (queue.outputs.size() != plan.program.output_count)
    throw Failure(ANYHAL_STATUS_INTERNAL, 0, "the program has %u results and not %u; report this",
                  static_cast<unsigned>(plan.program.output_count),
                  static_cast<unsigned>(queue.outputs.size()));
  Flight flight;
  flight.tag = call.tag;
  flight.name(plan.kernel);
  if (api::Error* error =
          plan.program.run(*queue.plugin, queue.arguments.data(), queue.arguments.size(),
                           queue.outputs.data(), &flight.event, queue.kept))
    refused(queue, plan, call, error);
  count(kRuns);
  count(kLiveBuffers, queue.outputs.size());
  for (size_t i = 0; i < plan.results.size(); ++i) {
    Block& cell = cell_of(plan, call, plan.results[i].operand);
    flight.drop(cell.buffer);
    cell.buffer = queue.outputs[i];
    cell.lost = false;
  }
  cells.unlock();
  if (plan.conditions) flight.conditions = queue.outputs.back();
  take_off(queue, std::move(flight));
}

}  // namespace hal::pjrt
