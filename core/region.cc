// The contract's list of a recording: values, entries, and what may change between launches.
// SPDX-License-Identifier: Apache-2.0
#include "core/region.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "core/answers.hpp"
#include "core/queue.hpp"
#include "core/records.hpp"
#include "core/spec.hpp"

namespace hal {
namespace {

// A place that calls name: a buffer from some byte on.
struct Place {
  Operand operand;
  const anyhal_tensor_desc* desc;
  uint32_t kind = ANYHAL_VALUE_BINDING;
  bool written = false;
};

class Listing {
 public:
  Listing(Device& device, const std::vector<Recorded>& calls,
          const std::vector<const Buffer*>& owned)
      : device_(device), owned_(owned) {
    for (const Recorded& call : calls) add(call);
    number_bindings();
    write_values();
    const RecordSizes& sizes = device.instance->sizes;
    laid_values_ = laid_out(values_, sizes.graph_value, value_room_);
    laid_entries_ = laid_out(entries_, sizes.graph_entry, entry_room_);
  }

  anyhal_graph_desc desc(anyhal_graph_mode mode) const {
    anyhal_graph_desc d{};
    d.size = sizeof(d), d.mode = mode;
    d.values = laid_values_, d.value_count = uint32_t(values_.size());
    d.entries = laid_entries_, d.entry_count = uint32_t(entries_.size());
    d.binding_count = uint32_t(bindings_.size());
    return d;
  }
  const std::vector<Operand>& bindings() const { return bindings_; }
  uint32_t read_only() const { return read_only_; }

 private:
  void add(const Recorded& call) {
    const Plan& plan = *call.plan;
    const Records& records = records_.emplace_back(device_, *plan.desc);
    std::vector<uint32_t>& numbers = numbers_.emplace_back(plan.operand_count);
    for (uint32_t i = 0; i < plan.operand_count; ++i)
      numbers[i] = place(call.operands[i], records.operands[i], i >= plan.input_count);
    anyhal_graph_entry entry{};
    entry.size = sizeof(entry), entry.kind = ANYHAL_ENTRY_OP;
    entry.op = &records.op, entry.plan = plan.handle;
    entry.values = numbers.data(), entry.value_count = plan.operand_count;
    if (!entries_.empty()) {
      follows_.push_back(uint32_t(entries_.size() - 1));
      entry.follows = &follows_.back(), entry.follow_count = 1;
    }
    entry.tag = plan.id;
    entries_.push_back(entry);
  }

  uint32_t place(const Operand& operand, const anyhal_tensor_desc& desc, bool output) {
    const Buffer* b = operand.buffer;
    const auto [found, fresh] =
        known_.try_emplace({b, b ? operand.data : 0}, uint32_t(places_.size()));
    if (fresh) places_.push_back({operand, &desc});
    Place& p = places_[found->second];
    p.written |= output;
    if (b) use(b, range_of(operand, desc), output);
    return found->second;
  }

  // Bytes that an operand reaches, and whether it fills them.
  struct Range {
    uint64_t begin, end;
    bool dense;
  };
  static Range range_of(const Operand& operand, const anyhal_tensor_desc& desc) {
    const Block block = block_of(desc.dtype);
    int64_t step = 1, last = 0;
    bool dense = true;
    for (uint32_t i = desc.rank; i-- > 0;) {
      const int64_t n = i + 1 == desc.rank ? desc.dims[i] / block.elements : desc.dims[i];
      if (n == 0) return {operand.data, operand.data, false};
      dense = dense && (n == 1 || desc.strides[i] == step);
      last += (n - 1) * desc.strides[i];
      step *= n;
    }
    return {operand.data, operand.data + uint64_t((last + 1) * block.bytes), dense};
  }

  // A buffer that is read before it is written, or not wholly written at first, carries something
  // from launch to launch.
  void use(const Buffer* b, const Range& range, bool output) {
    const auto [found, first] = made_.try_emplace(b, range);
    if (first && !(output && range.dense)) found->second = {0, 0, false};
    const Range& whole = found->second;
    if (range.begin < whole.begin || range.end > whole.end) found->second.dense = false;
  }

  uint32_t kind_of(const Buffer* b) const {
    if (!b || b->constant) return ANYHAL_VALUE_FIXED;
    const bool private_ = std::binary_search(owned_.begin(), owned_.end(), b);
    return private_ && made_.at(b).dense ? ANYHAL_VALUE_INTERMEDIATE : ANYHAL_VALUE_BINDING;
  }

  void number_bindings() {
    for (const bool written : {false, true}) {
      for (Place& p : places_) {
        p.kind = kind_of(p.operand.buffer);
        if (p.kind != ANYHAL_VALUE_BINDING || p.written != written) continue;
        binding_of_[&p] = uint32_t(bindings_.size());
        bindings_.push_back(p.operand);
      }
      if (!written) read_only_ = uint32_t(bindings_.size());
    }
  }

  void write_values() {
    descs_.reserve(places_.size());
    for (const Place& p : places_) {
      descs_.push_back(*p.desc);
      if (p.kind == ANYHAL_VALUE_BINDING) descs_.back().flags |= ANYHAL_TENSOR_BINDING;
      anyhal_graph_value v{};
      v.size = sizeof(v), v.kind = p.kind;
      if (p.kind == ANYHAL_VALUE_BINDING) v.binding = binding_of_.at(&p);
      v.desc = &descs_.back();
      if (p.operand.buffer) v.ref = ref_of(device_, p.operand);
      values_.push_back(v);
    }
  }

  Device& device_;
  const std::vector<const Buffer*>& owned_;
  std::deque<Place> places_;
  std::map<std::pair<const Buffer*, uint64_t>, uint32_t> known_;
  std::map<const Buffer*, Range> made_;  // what the first use wrote, dense where it was all
  std::map<const Place*, uint32_t> binding_of_;
  std::deque<Records> records_;
  std::deque<std::vector<uint32_t>> numbers_;
  std::deque<uint32_t> follows_;
  std::vector<anyhal_tensor_desc> descs_;
  std::vector<anyhal_graph_value> values_;
  std::vector<anyhal_graph_entry> entries_;
  std::vector<uint64_t> value_room_, entry_room_;
  const anyhal_graph_value* laid_values_;
  const anyhal_graph_entry* laid_entries_;
  std::vector<Operand> bindings_;
  uint32_t read_only_ = 0;
};

std::string obstacle(const Device& device, const std::vector<Recorded>& calls) {
  if (!device.instance->has_graph_prepare) return "the backend takes no graphs";
  if (calls.empty()) return "nothing was recorded";
  for (const Recorded& call : calls) {
    if (!call.plan->capture_safe) return call.plan->label() + " is not capture-safe";
    if (!call.plan->desc) return call.plan->label() + " was prepared without its description";
  }
  return "";
}

Plan* adopt(Device& device, const Listing& list, anyhal_plan* handle,
            const anyhal_prepared& prepared, const char* form) {
  auto* plan = new Plan;
  plan->device = &device, plan->handle = handle, plan->enqueue = device.table->op_enqueue;
  plan->set_counts(uint32_t(list.bindings().size()), list.read_only());
  plan->workspace_bytes = prepared.workspace_bytes;
  plan->op_name = "graph", plan->called = std::string("the graph (") + form + ")";
  plan->kernel = kernel_of(prepared), plan->library = library_of(prepared);
  device.counters.plans_prepared.fetch_add(1, std::memory_order_relaxed);
  return track_plan(plan);
}

// Null where the backend refuses; `why` then has its words.
Plan* attempt(Device& device, const Listing& list, anyhal_graph_mode mode, const char* form,
              std::string& why) {
  const anyhal_graph_desc desc = list.desc(mode);
  anyhal_plan* handle = nullptr;
  const anyhal_prepared* prepared = nullptr;
  uint32_t failing = 0;
  ErrorRecord error;
  anyhal_status status =
      device.table->graph_prepare(device.handle, &desc, &handle, &prepared, &failing, error);
  if (status == ANYHAL_STATUS_OUT_OF_MEMORY) {
    device.memory.reclaim();
    status = device.table->graph_prepare(device.handle, &desc, &handle, &prepared, &failing, error);
  }
  if (status == ANYHAL_STATUS_UNSUPPORTED || status == ANYHAL_STATUS_OUT_OF_MEMORY) {
    why +=
        (why.empty() ? "" : "; ") + std::string(form) + ": " + said(error.record, *device.instance);
    return nullptr;
  }
  if (status == ANYHAL_STATUS_DEVICE_LOST) device.lose(error.record);
  check(status, error, "preparing a graph on " + device.name, *device.instance);
  check_prepared(device, handle, prepared, uint32_t(list.bindings().size()),
                 "preparing a graph on " + device.name);
  const auto known = known_part<anyhal_prepared>(prepared, prepared->size);
  Plan* plan = adopt(device, list, handle, known, form);
  if (!(prepared->flags & ANYHAL_PREPARED_PINS_MEMORY)) return plan;
  why += (why.empty() ? "" : "; ") + std::string(form) + ": it pins memory";
  release(plan);
  return nullptr;
}

}  // namespace

Region prepare_region(Device& device, const std::vector<Recorded>& calls,
                      const std::vector<const Buffer*>& owned) {
  Region region;
  region.why = obstacle(device, calls);
  if (!region.why.empty()) return region;
  const Listing list(device, calls, owned);
  for (const auto& [mode, form] :
       {std::pair{ANYHAL_GRAPH_COMPILE, "compiled"}, {ANYHAL_GRAPH_RECORD, "recorded"}}) {
    region.plan = attempt(device, list, mode, form, region.why);
    if (!region.plan) continue;
    region.form = form;
    break;
  }
  if (!region.plan) return region;
  region.bindings = list.bindings();
  for (const Operand& o : region.bindings) region.refs.push_back(ref_of(device, o));
  region.call.size = sizeof(region.call);
  region.call.tag = region.plan->id;
  region.call.operand_count = uint32_t(region.refs.size());
  return region;
}

}  // namespace hal
