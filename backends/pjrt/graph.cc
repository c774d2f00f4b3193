// Regions: a recorded list of calls as one program. What depends on constants alone is computed
// once, at prepare; blocks that only the list knows are values of the program and nothing more.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>

#include "anyhal/sdk/host.hpp"
#include "custom_call.h"
#include "objects.h"
#include "rows.h"
#include "view.h"

namespace hal::pjrt {
namespace {

using sdk::Failure;
using sdk::operand;

// Decoded weights can be many times larger than their formats: only where memory is plenty.
bool may_fold(const Plugin& plugin, const anyhal_graph_desc& desc) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < desc.entry_count; ++i) {
    const anyhal_graph_entry& entry = desc.entries[i];
    if (entry.op == nullptr || entry.op->op != ANYHAL_OP_CAST) continue;
    const anyhal_graph_value& value = desc.values[entry.values[0]];
    if (value.kind == ANYHAL_VALUE_FIXED)
      bytes += static_cast<uint64_t>(sdk::element_count(sdk::output(*entry.op))) *
               bytes_of(sdk::output(*entry.op).dtype);
  }
  return plugin.host_memory() && bytes < sdk::host_bytes_total() / 4;
}

// A block and what is in it at this point of the list.
struct Storage {
  anyhal_ref ref = {};
  uint32_t kind = ANYHAL_VALUE_INTERMEDIATE;
  size_t binding = 0;     // its number in a call
  Value now;              // its bytes; no name: not read or written yet
  bool constant = false;  // `now` belongs to the program of constants
  Value source;           // of a fixed one: its bytes in the program of constants
  bool written = false;
  bool read = false;       // `now` may be read by another call, or be the value of another block
  bool in_place = true;    // a parameter may be overwritten by the result
  int64_t parameter = -1;  // of the step's program, and how it came in
  uint32_t dtype = 0;
  uint32_t writes = 0;
  // What a cast has decoded into it since it was last written: operands of that cast.
  const anyhal_tensor_desc *packed = nullptr, *decoded = nullptr;
  Storage* packed_in = nullptr;
  uint32_t packed_writes = 0;
};

class Region {
 public:
  Region(Plan& plan, const anyhal_graph_desc& desc, const anyhal_self& self)
      : plan_(plan),
        desc_(desc),
        services_(self.services),
        folds_(may_fold(*plan.plugin, desc)),
        packs_(self.custom_calls) {
    for (uint32_t i = 0; i < desc.value_count; ++i) add_value(desc.values[i]);
    plan.operands.resize(desc.binding_count);
  }

  void add(const anyhal_graph_entry& entry);
  void finish();

 private:
  void add_value(const anyhal_graph_value& value);
  Storage& storage(const anyhal_graph_entry& entry, uint32_t operand) {
    return storages_.at(desc_.values[entry.values[operand]].ref.memory);
  }
  bool folded(const anyhal_graph_entry& entry);
  const Value& content(Storage& s, const anyhal_tensor_desc& t, bool in_constants);
  Value flat(Storage& s, const anyhal_tensor_desc& t, bool in_constants);
  Value read(Storage& s, const anyhal_tensor_desc& t, bool in_constants);
  Value cross(const Value& value);
  void write(const anyhal_graph_entry& entry, Storage& s, const Value& value, bool in_constants);
  std::optional<PackedWeights> packed_weights(const anyhal_graph_entry& entry);
  void multiply_packed(const anyhal_graph_entry& entry, const PackedWeights& weights);
  void note_decoded(const anyhal_graph_entry& entry);
  bool looked_at_before(const anyhal_graph_entry& entry);
  void bake();

  Plan& plan_;
  const anyhal_graph_desc& desc_;
  const anyhal_services* services_;
  bool folds_, packs_;  // constants are computed once; weights may stay packed
  Text text_, constants_;
  std::map<uint64_t, Storage> storages_;
  std::vector<Storage*> in_order_;        // of appearance: addresses differ from process to process
  std::vector<Block*> sources_;           // arguments of the program of constants
  std::map<std::string, Value> crossed_;  // its values that the step reads, by name
  std::vector<std::pair<size_t, uint64_t>> made_;  // place in plan.constants, bytes
};

bool present(const anyhal_tensor_desc& t) { return !sdk::absent(t) && sdk::element_count(t) != 0; }

void Region::add_value(const anyhal_graph_value& value) {
  if (value.ref.memory == 0) return;
  const auto [found, fresh] = storages_.try_emplace(value.ref.memory);
  Storage& s = found->second;
  if (fresh) {
    s.ref = value.ref, s.kind = value.kind, s.binding = value.binding;
    in_order_.push_back(&s);
  }
  if (value.kind != ANYHAL_VALUE_BINDING) return;
  if (plan_.operands.size() <= value.binding) plan_.operands.resize(value.binding + 1);
  plan_.operands[value.binding] = {value.desc->block_bytes, value.ref.offset, true};
}

// Whether all it reads is known at prepare and all it writes is the list's own.
bool Region::folded(const anyhal_graph_entry& entry) {
  const anyhal_op_desc& op = *entry.op;
  if (!folds_ || positions_of(op).operand >= 0) return false;
  for (uint32_t i = 0; i < op.operand_count; ++i) {
    if (!present(operand(op, i))) continue;
    const Storage& s = storage(entry, i);
    const bool known = s.kind == ANYHAL_VALUE_FIXED || s.constant;
    if (i < op.input_count && !known) return false;
    if (i >= op.input_count && s.kind != ANYHAL_VALUE_INTERMEDIATE) return false;
    // A part of a block that the step has written stays in the step.
    if (i >= op.input_count && !s.now.name.empty() && !s.constant) return false;
  }
  return true;
}

// The bytes of a block, made known on first use.
const Value& Region::content(Storage& s, const anyhal_tensor_desc& t, bool in_constants) {
  const Place place = place_of(t);
  if (s.kind == ANYHAL_VALUE_FIXED && in_constants) {
    if (!s.source.name.empty()) return s.source;
    sources_.push_back(block_of(s.ref));
    return s.source = constants_.parameter(place.dtype, {place.total});
  }
  if (!s.now.name.empty()) return s.now;
  if (s.kind == ANYHAL_VALUE_INTERMEDIATE) {
    s.constant = in_constants;
    return s.now = (in_constants ? constants_ : text_).number(0, place.dtype, {place.total});
  }
  s.parameter = static_cast<int64_t>(text_.parameter_count());
  const bool bound = s.kind == ANYHAL_VALUE_BINDING;
  plan_.parameters.push_back(
      {bound ? s.binding : desc_.binding_count + plan_.constants.size(), false});
  if (!bound) plan_.constants.push_back(block_of(s.ref));
  s.dtype = place.dtype;
  return s.now = text_.parameter(place.dtype, {place.total});
}

// A value of the program of constants, as an argument of the step.
Value Region::cross(const Value& value) {
  const auto [found, fresh] = crossed_.try_emplace(value.name);
  if (!fresh) return found->second;
  Value stored = value;
  if (value.dtype == ANYHAL_DTYPE_BOOL) stored = constants_.convert(value, ANYHAL_DTYPE_U8);
  constants_.result(stored);
  made_.push_back(
      {plan_.constants.size(), static_cast<uint64_t>(value.count()) * bytes_of(stored.dtype)});
  plan_.parameters.push_back({desc_.binding_count + plan_.constants.size(), false});
  plan_.constants.push_back(nullptr);
  Value in = text_.parameter(stored.dtype, stored.dims);
  if (value.dtype == ANYHAL_DTYPE_BOOL) in = text_.compare("NE", in, text_.number_like(0, in));
  return found->second = in;
}

Value Region::flat(Storage& s, const anyhal_tensor_desc& t, bool in_constants) {
  Value value = content(s, t, in_constants);
  const bool crosses = s.constant && !in_constants;
  Text& home = s.constant || in_constants ? constants_ : text_;
  value = as_dtype(home, value, place_of(t).dtype);
  return crosses ? cross(value) : value;
}

Value Region::read(Storage& s, const anyhal_tensor_desc& t, bool in_constants) {
  s.read = true;
  const bool whole_block = !s.constant || in_constants;
  bool repeats = false;
  for (uint32_t d = 0; d < t.rank; ++d) repeats = repeats || (t.strides[d] == 0 && t.dims[d] > 1);
  if (whole_block || repeats)
    return read_view(in_constants ? constants_ : text_, t, flat(s, t, in_constants));
  // The layout that the step reads is part of what is computed once.
  const std::string key = s.now.name + "/" + std::to_string(t.dtype) + "/" +
                          std::to_string(t.base_offset) + view_key(t);
  const auto found = crossed_.find(key);
  if (found != crossed_.end()) return found->second;
  Value value = as_dtype(constants_, s.now, place_of(t).dtype);
  return crossed_[key] = cross(read_view(constants_, t, value));
}

// Positions that come straight from a binding are looked at before the launch.
bool Region::looked_at_before(const anyhal_graph_entry& entry) {
  const Positions at = positions_of(*entry.op);
  if (at.operand < 0 || !plan_.plugin->host_memory()) return false;
  const auto number = static_cast<uint32_t>(at.operand);
  if (!present(operand(*entry.op, number))) return false;
  const Storage& s = storage(entry, number);
  if (s.kind != ANYHAL_VALUE_BINDING || s.written) return false;
  plan_.checked.push_back(checked(*entry.op, at, s.binding));
  return true;
}

void Region::write(const anyhal_graph_entry& entry, Storage& s, const Value& value,
                   bool in_constants) {
  const anyhal_tensor_desc& t = operand(*entry.op, entry.op->input_count);
  if (s.kind == ANYHAL_VALUE_FIXED)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE, "a call writes a constant");
  Value before;
  Text& text = in_constants ? constants_ : text_;
  const bool part = !place_of(t).whole();
  if (part) before = flat(s, t, in_constants);
  s.now = write_view(text, t, before, value, !s.read);
  if (part && s.read && !s.written) s.in_place = false;
  s.read = !part;
  s.constant = in_constants;
  s.written = true;
  ++s.writes;
  s.packed = nullptr;
}

// After a cast of a block format to f32: where the numbers in its output come from.
void Region::note_decoded(const anyhal_graph_entry& entry) {
  const anyhal_tensor_desc &from = operand(*entry.op, 0), &to = operand(*entry.op, 1);
  if (!packs_ || entry.op->op != ANYHAL_OP_CAST || !sdk::kBlocks.has(from.dtype)) return;
  if (to.dtype != ANYHAL_DTYPE_F32 || !present(to)) return;
  Storage &s = storage(entry, 1), &source = storage(entry, 0);
  s.packed = &from, s.decoded = &to, s.packed_in = &source, s.packed_writes = source.writes;
}

// The weights of a product of few rows with what a cast has just decoded, transposed.
std::optional<PackedWeights> Region::packed_weights(const anyhal_graph_entry& entry) {
  const anyhal_op_desc& op = *entry.op;
  if (!packs_ || op.op != ANYHAL_OP_MATMUL || !present(operand(op, 1)) || !present(operand(op, 2)))
    return {};
  const Storage& s = storage(entry, 1);
  if (s.packed == nullptr || s.packed_in->writes != s.packed_writes) return {};
  const anyhal_tensor_desc &x = operand(op, 0), &w = operand(op, 1), &decoded = *s.decoded;
  const uint32_t in = w.rank - 2, out = w.rank - 1;
  int64_t rows = x.dims[in];
  for (uint32_t d = 0; d < in; ++d) {
    if (w.dims[d] != 1 && w.strides[d] != 0) return {};
    rows *= x.dims[d];
  }
  const bool same = w.base_offset == decoded.base_offset && decoded.rank == 2 &&
                    w.dims[in] == decoded.dims[1] && w.strides[in] == 1 &&
                    decoded.strides[1] == 1 && w.dims[out] <= decoded.dims[0] &&
                    (w.dims[out] == 1 || w.strides[out] == decoded.strides[0]);
  if (w.dtype != ANYHAL_DTYPE_F32 || rows > kCustomRowsMax || !same) return {};
  const Place place = place_of(*s.packed);
  const int64_t block = place.dims[2], row = place.dims[1] * block;
  PackedWeights found = {s.packed->dtype, w.dims[out], w.dims[in], place.first, place.strides[0]};
  if (found.columns == 1) found.row_bytes = row;
  if ((place.dims[1] != 1 && place.strides[1] != block) || found.row_bytes < row) return {};
  if (!has_block_product(*plan_.plugin, services_)) return {};
  return found;
}

void Region::multiply_packed(const anyhal_graph_entry& entry, const PackedWeights& weights) {
  const anyhal_tensor_desc& out = operand(*entry.op, 2);
  const Storage& s = storage(entry, 1);
  const Value x = read(storage(entry, 0), operand(*entry.op, 0), false);
  s.packed_in->read = true;
  const Value product = block_product(text_, x, flat(*s.packed_in, *s.packed, false), weights);
  write(entry, storage(entry, 2), text_.reshape(product, Dims(out.dims, out.dims + out.rank)),
        false);
}

void Region::add(const anyhal_graph_entry& entry) {
  if (entry.kind != ANYHAL_ENTRY_OP || entry.op == nullptr)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE, "only ops are compiled");
  const anyhal_op_desc& op = *entry.op;
  sdk::Answer answer;
  if (op_table().find(op, answer) == nullptr)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, answer.reason, "%s", answer.why);
  const bool in_constants = folded(entry);
  if (!in_constants)
    if (const auto weights = packed_weights(entry)) return multiply_packed(entry, *weights);
  Text& text = in_constants ? constants_ : text_;
  const bool looked_at = looked_at_before(entry);
  std::vector<Value> inputs;
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const anyhal_tensor_desc& t = operand(op, i);
    if (sdk::absent(t)) {
      inputs.emplace_back();
    } else if (present(t)) {
      inputs.push_back(read(storage(entry, i), t, in_constants));
    } else {
      const Place place = place_of(t);
      inputs.push_back(text.number(0, sdk::kBool.has(t.dtype) ? t.dtype : place.dtype, place.dims));
    }
  }
  const size_t conditions = text.condition_count();
  const Value value = lowering_of(op.op)(text, op, inputs);
  if (looked_at) text.forget_conditions(conditions);
  if (present(sdk::output(op))) write(entry, storage(entry, op.input_count), value, in_constants);
  note_decoded(entry);
}

// Runs the program of constants, whose results live with the plan.
void Region::bake() {
  if (made_.empty()) return;
  Plugin& plugin = *plan_.plugin;
  const Owned program{plugin, compile_cached(plugin, constants_.str(), services_)};
  std::vector<api::Buffer*> arguments, outputs(made_.size());
  for (Block* source : sources_) arguments.push_back(filled(*source));
  if (api::Error* error =
          program->run(plugin, arguments.data(), arguments.size(), outputs.data(), nullptr, {}))
    plugin.raise("computing what is constant", error);
  count(kLiveBuffers, outputs.size());
  Failed first{0, ""};
  for (size_t i = 0; i < made_.size(); ++i) {
    auto block = std::make_unique<Block>();
    block->plugin = &plugin, block->bytes = made_[i].second, block->buffer = outputs[i];
    plan_.constants[made_[i].first] = block.get();
    plan_.prepared.baked_bytes += block->bytes;
    plan_.baked.push_back(std::move(block));
  }
  for (api::Buffer* output : outputs)
    if (const Failed why = plugin.await(output); first.code == 0) first = why;
  if (first.code == 0) return;
  const anyhal_status status = plugin.judge(first);
  plugin.require_here();
  throw Failure(status, 0, "computing what is constant, %llu bytes: %.120s; %s",
                static_cast<unsigned long long>(plan_.prepared.baked_bytes), first.text.c_str(),
                status == ANYHAL_STATUS_OUT_OF_MEMORY ? "free arrays" : "report this");
}

void Region::finish() {
  for (Storage* each : in_order_) {
    Storage& s = *each;
    if (s.kind != ANYHAL_VALUE_BINDING || !s.written) continue;
    Value last = s.now;
    if (s.constant) last = cross(s.now);
    const bool in_place = s.parameter >= 0 && s.in_place;
    if (in_place) {
      last = as_dtype(text_, last, s.dtype);
      text_.alias(static_cast<size_t>(s.parameter), text_.result_count());
      plan_.parameters[static_cast<size_t>(s.parameter)].donated = plan_.donates = true;
    }
    plan_.results.push_back({s.binding, in_place ? s.parameter : -1});
    plan_.prepared.hidden_bytes += static_cast<uint64_t>(last.count()) * bytes_of(last.dtype);
    text_.result(last);
  }
  if (plan_.results.empty())
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE, "nothing of it can be seen");
  plan_.conditions = text_.condition_count() != 0;
  if (plan_.conditions) text_.emit_conditions();
  bake();
  plan_.program = compile_cached(*plan_.plugin, text_.str(), services_);
  plan_.prepared.hidden_bytes += plan_.program.temp_bytes(*plan_.plugin);
}

}  // namespace

namespace slots {

anyhal_status graph_prepare(anyhal_device* device, const anyhal_graph_desc* desc,
                            anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                            uint32_t* out_failing_entry, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(device);
    *out_failing_entry = 0;
    if (desc->mode != ANYHAL_GRAPH_COMPILE)
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE,
                    "graphs are compiled here, not recorded; replay the calls");
    if (!device->self->graphs)
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_POLICY, "the setting graphs is off");
    auto plan = std::make_unique<Plan>();
    plan->plugin = device->plugin;
    plan->kernel = "stablehlo graph of " + std::to_string(desc->entry_count) + " calls";
    plan->prepared.size = sizeof plan->prepared;
    plan->prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE | ANYHAL_PREPARED_REBIND;
    plan->prepared.kernel = plan->kernel.c_str();
    plan->prepared.library = device->plugin->file().c_str();
    Region region(*plan, *desc, *device->self);
    for (uint32_t i = 0; i < desc->entry_count; ++i) {
      *out_failing_entry = i;
      region.add(desc->entries[i]);
    }
    region.finish();
    *out_prepared = &plan->prepared;
    *out_plan = reinterpret_cast<anyhal_plan*>(plan.release());
    return ANYHAL_STATUS_OK;
  });
}

}  // namespace slots
}  // namespace hal::pjrt
