// A list of calls as one CUDA graph: captured from a stream of its own, updated for new operands.
// SPDX-License-Identifier: Apache-2.0
#include "device.h"

namespace hal::cuda {
namespace {

struct Entry {
  uint32_t kind;
  Plan* plan;
  std::vector<uint32_t> values;
  uint64_t bytes;
  uint32_t pattern;
  void* argument;
  anyhal_native_fn callback;
};

struct Value {
  int32_t binding;  // -1: fixed
  anyhal_ref ref;
};

// Refs, workspace and fault are part of what is recorded: when one differs from the last launch,
// the list is captured again and the executable graph updated, its shape being the same.
class GraphPlan final : public Plan {
 public:
  GraphPlan(Device& device, const anyhal_graph_desc& desc) : Plan(device) {
    operand_count = desc.binding_count;
    bound_.resize(desc.binding_count);
    prepared.kernel = "graph";
    prepared.flags = ANYHAL_PREPARED_SERIAL | ANYHAL_PREPARED_REBIND;
    for (uint32_t i = 0; i < desc.value_count; ++i) values_.push_back(value_of(desc, i));
  }
  ~GraphPlan() override = default;

  void add(const anyhal_graph_entry& entry) {
    Entry made = {
        entry.kind,    reinterpret_cast<Plan*>(entry.plan), {}, entry.bytes, 0, entry.data,
        entry.callback};
    made.values.assign(entry.values, entry.values + entry.value_count);
    for (uint32_t value : made.values)
      if (value >= values_.size()) refuse("an entry names no value of the graph; correct it");
    if (entry.kind == ANYHAL_ENTRY_OP) check_op(made);
    if (entry.kind == ANYHAL_ENTRY_FILL) std::memcpy(&made.pattern, entry.data, 4);
    // A callback runs once, while recording, so what it put in cannot be moved.
    if (entry.kind == ANYHAL_ENTRY_NATIVE) prepared.flags &= ~ANYHAL_PREPARED_REBIND;
    const uint32_t wanted = entry.kind == ANYHAL_ENTRY_COPY ? 2 : 1;
    if ((entry.kind == ANYHAL_ENTRY_COPY || entry.kind == ANYHAL_ENTRY_FILL) &&
        made.values.size() != wanted)
      refuse("a copy has two values and a fill has one; correct the entry");
    if (entry.kind < ANYHAL_ENTRY_OP || entry.kind > ANYHAL_ENTRY_NATIVE)
      refuse("an entry of this kind is unknown here; use entries of this contract");
    entries_.push_back(std::move(made));
  }

  // Makes the stream and, where nothing is missing before the first launch, the graph.
  void record(uint32_t* failing) {
    HAL_CUDA(device_, cuStreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING, 0);
    if (prepared.workspace_bytes == 0) capture(0, device_.faults, failing);
  }

  void run(const Site& site) override {
    bool same = exec_ != nullptr && site.workspace == workspace_ && site.fault == fault_;
    for (uint32_t i = 0; i < operand_count; ++i) {
      same = same && std::memcmp(&bound_[i], &site.operands[i], sizeof(anyhal_ref)) == 0;
      bound_[i] = site.operands[i];
    }
    if (!same) {
      uint32_t failing = 0;
      capture(site.workspace, site.fault, &failing);
    }
    HAL_CUDA(device_, cuGraphLaunch, exec_, site.stream);
  }

  void end() override {
    CUresult code = CUDA_SUCCESS;
    const auto keep = [&](CUresult next) { code = code == CUDA_SUCCESS ? next : code; };
    if (exec_ != nullptr) keep(device_.driver().cuGraphExecDestroy(exec_));
    if (stream_ != nullptr) keep(device_.driver().cuStreamDestroy_v2(stream_));
    exec_ = nullptr;
    stream_ = nullptr;
    check(device_, code, "ending a graph");
  }

 private:
  [[noreturn]] static void refuse(const char* text) {
    throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_CAPTURE, 0, text);
  }

  Value value_of(const anyhal_graph_desc& desc, uint32_t i) {
    const anyhal_graph_value& value = desc.values[i];
    if (value.kind == ANYHAL_VALUE_INTERMEDIATE && value.ref.memory == 0)
      throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE, 0,
                  "an intermediate has no memory, and a recording gives none; record with memory");
    if (value.kind != ANYHAL_VALUE_BINDING) return {-1, value.ref};
    if (value.binding >= desc.binding_count) refuse("a value names no binding; correct it");
    bound_[value.binding] = value.ref;
    return {static_cast<int32_t>(value.binding), value.ref};
  }

  void check_op(const Entry& entry) {
    if (entry.plan == nullptr || entry.values.size() != entry.plan->operand_count)
      refuse("an entry has another number of operands than its plan; correct it");
    if ((entry.plan->prepared.flags & ANYHAL_PREPARED_CAPTURE_SAFE) == 0)
      throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE, 0,
                  "a call of the list cannot be captured; split the list there");
    // Entries run one after another, so they share one workspace.
    prepared.workspace_bytes =
        std::max(prepared.workspace_bytes, entry.plan->prepared.workspace_bytes);
  }

  anyhal_ref ref_of(uint32_t value) const {
    const Value& v = values_[value];
    return v.binding < 0 ? v.ref : bound_[static_cast<uint32_t>(v.binding)];
  }

  void put(uint32_t number, CUdeviceptr workspace, KernelFault* fault) {
    const Entry& entry = entries_[number];
    refs_.clear();
    for (uint32_t value : entry.values) refs_.push_back(ref_of(value));
    switch (entry.kind) {
      case ANYHAL_ENTRY_OP:
        return entry.plan->run({stream_, refs_.data(), nullptr, 0, workspace,
                                entry_tag(entry.plan->op, number), fault});
      case ANYHAL_ENTRY_COPY:
        return copy(device_, stream_, refs_[0], refs_[1], entry.bytes);
      case ANYHAL_ENTRY_FILL:
        return fill(device_, stream_, refs_[0], entry.bytes, &entry.pattern, 4);
      default:
        return call_native(entry);
    }
  }

  void call_native(const Entry& entry) {
    std::vector<uint64_t> addresses;
    for (const anyhal_ref& ref : refs_) addresses.push_back(address_of(ref));
    const anyhal_native_queue native = {sizeof native,
                                        ANYHAL_NATIVE_CUDA_STREAM,
                                        reinterpret_cast<uint64_t>(stream_),
                                        addresses.data(),
                                        static_cast<uint32_t>(addresses.size()),
                                        0};
    const anyhal_status status = entry.callback(entry.argument, &native);
    if (status != ANYHAL_STATUS_OK)
      throw Fault(status, ANYHAL_REASON_CAPTURE, 0, "the native callback failed; see there");
  }

  // Relaxed, so that other threads may allocate meanwhile. Whatever fails ends the capture.
  void capture(CUdeviceptr workspace, KernelFault* fault, uint32_t* failing) {
    HAL_CUDA(device_, cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = nullptr;
    try {
      for (*failing = 0; *failing < entries_.size(); ++*failing) put(*failing, workspace, fault);
    } catch (...) {
      if (device_.driver().cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS && graph != nullptr)
        device_.driver().cuGraphDestroy(graph);
      throw;
    }
    HAL_CUDA(device_, cuStreamEndCapture, stream_, &graph);
    const CUresult code = make(graph);
    const CUresult ended = device_.driver().cuGraphDestroy(graph);
    check(device_, code, "making an executable graph");
    check(device_, ended, "cuGraphDestroy");
    workspace_ = workspace;
    fault_ = fault;
  }

  CUresult make(CUgraph graph) {
    const Driver& driver = device_.driver();
    if (exec_ != nullptr) {
      CUgraphExecUpdateResultInfo result = {};
      const CUresult updated = driver.cuGraphExecUpdate_v2(exec_, graph, &result);
      if (updated != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) return updated;
      // A library chose other kernels for the new operands: another executable graph it is.
      if (CUresult code = driver.cuGraphExecDestroy(exec_); code != CUDA_SUCCESS) return code;
      exec_ = nullptr;
    }
    return driver.cuGraphInstantiateWithFlags(&exec_, graph, 0);
  }

  std::vector<Entry> entries_;
  std::vector<Value> values_;
  std::vector<anyhal_ref> bound_, refs_;
  CUstream stream_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUdeviceptr workspace_ = 0;
  KernelFault* fault_ = nullptr;
};

}  // namespace

namespace slots {

anyhal_status graph_prepare(anyhal_device* handle, const anyhal_graph_desc* desc,
                            anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                            uint32_t* out_failing_entry, anyhal_error* error) {
  auto& device = *reinterpret_cast<Device*>(handle);
  return guarded(error, [&] {
    *out_failing_entry = 0;
    if (desc->mode != ANYHAL_GRAPH_RECORD)
      throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE, 0,
                  "CUDA records calls and compiles none; ask for mode RECORD");
    Current current(device);
    auto plan = std::make_unique<GraphPlan>(device, *desc);
    for (uint32_t i = 0; i < desc->entry_count; ++i) {
      *out_failing_entry = i;
      plan->add(desc->entries[i]);
    }
    try {
      plan->record(out_failing_entry);
    } catch (...) {
      try {
        plan->end();
      } catch (const Fault&) {  // the first failure is the one to tell
      }
      throw;
    }
    *out_prepared = &plan->prepared;
    *out_plan = reinterpret_cast<anyhal_plan*>(static_cast<Plan*>(plan.release()));
  });
}

}  // namespace slots
}  // namespace hal::cuda
