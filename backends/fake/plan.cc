// Operations of the fake backend: query, prepare, enqueue, packed constants.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "device.hh"

namespace hal::fake {

int64_t Tensor::units() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

bool Tensor::dense() const {
  if (units() == 0) return true;
  int64_t expected = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    if (dims[axis] != 1 && strides[axis] != expected) return false;
    expected *= dims[axis];
  }
  return true;
}

Kernel kernel_for(uint32_t op) {
  switch (op) {
    case ANYHAL_OP_COPY:
      return kernels::copy;
    case ANYHAL_OP_FILL:
      return kernels::fill;
    case ANYHAL_OP_CAST:
      return kernels::cast;
    case ANYHAL_OP_UNARY:
      return kernels::unary;
    case ANYHAL_OP_BINARY:
      return kernels::binary;
    case ANYHAL_OP_WHERE:
      return kernels::where;
    case ANYHAL_OP_REDUCE:
      return kernels::reduce;
    case ANYHAL_OP_MATMUL:
      return kernels::matmul;
    case ANYHAL_OP_GATHER:
      return kernels::gather;
    case ANYHAL_OP_SCATTER_ADD:
      return kernels::scatter_add;
    case ANYHAL_OP_SOFTMAX:
      return kernels::softmax;
    case ANYHAL_OP_CACHE_APPEND:
      return kernels::cache_append;
    case ANYHAL_OP_ARGMAX:
      return kernels::argmax;
    case ANYHAL_OP_CONCAT:
      return kernels::concat;
    default:
      return nullptr;
  }
}

namespace {

constexpr uint8_t kPackMask = 0x5a;  // a packed constant read as if it were not gives nonsense

Tensor tensor_of(const anyhal_tensor_desc& desc) {
  Tensor tensor;
  tensor.dtype = desc.dtype;
  tensor.absent = (desc.flags & ANYHAL_TENSOR_ABSENT) != 0;
  if (tensor.absent) return tensor;
  tensor.dims.assign(desc.dims, desc.dims + desc.rank);
  tensor.strides.assign(desc.strides, desc.strides + desc.rank);
  if (desc.rank > 0) tensor.dims.back() /= block_elements(desc.dtype);
  if (tensor.units() == 0) return tensor;
  int64_t last = 0;
  for (uint32_t axis = 0; axis < desc.rank; ++axis)
    last += (tensor.dims[axis] - 1) * tensor.strides[axis];
  tensor.bytes = static_cast<uint64_t>(last + 1) * unit_bytes(desc.dtype);
  return tensor;
}

}  // namespace

uint64_t span_of(const anyhal_tensor_desc& desc) { return tensor_of(desc).bytes; }

namespace {

void check_description(Instance& instance, const anyhal_op_desc& desc) {
  if (is_bad(instance, Bad::takes_unknown)) return;
  if (desc.size < sizeof(anyhal_op_desc)) violation(instance, "op_desc is too short");
  if (desc.reserved32 != 0 || desc.reserved[0] != 0 || desc.reserved[1] != 0)
    violation(instance, "op_desc has a reserved word that is not zero");
  if (desc.operand_count == 0 || desc.input_count >= desc.operand_count)
    violation(instance, "op_desc has no output");
  for (uint32_t i = 0; i < desc.operand_count; ++i) {
    const auto& tensor = desc.operands[i];
    if (tensor.size < sizeof(anyhal_tensor_desc)) violation(instance, "tensor_desc is too short");
    if (tensor.reserved[0] != 0 || tensor.reserved[1] != 0)
      violation(instance, "tensor_desc has a reserved word that is not zero");
    if (tensor.alias_of > desc.operand_count || tensor.alias_of == i + 1)
      violation(instance, "tensor_desc has an alias that is no other operand");
    for (uint32_t axis = 0; axis < tensor.rank; ++axis)
      if (tensor.dims[axis] < 0 || tensor.strides[axis] < 0)
        violation(instance, "tensor_desc has a negative dim or stride");
  }
}

void take_time(const Script& script, const anyhal_op_desc& desc,
               std::unique_lock<std::mutex>& lock) {
  const int64_t until = now_ns() + script.prepare_ns;
  lock.unlock();
  while (script.prepare_ns != 0 && now_ns() < until) {
    if (desc.cancel != nullptr && *desc.cancel != 0)
      throw Fault{ANYHAL_STATUS_CANCELLED, ANYHAL_REASON_NONE, "op_prepare was cancelled"};
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  lock.lock();
}

void refuse_if_scripted(const Script& script, const anyhal_op_desc& desc) {
  const uint32_t op = desc.op;
  const auto late = script.refuse_prepare.find(op);
  if (late != script.refuse_prepare.end())
    throw Fault{ANYHAL_STATUS_UNSUPPORTED, late->second,
                "it cannot be compiled, reason " + std::to_string(late->second)};
  if (script.dense.contains(op))
    for (size_t i = 0; i < desc.operand_count; ++i)
      if (!tensor_of(desc.operands[i]).dense())
        throw Fault{
            ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_LAYOUT,
            "the core was told what it wants: operand " + std::to_string(i) + " is not dense"};
  if (script.lie.contains(op))
    throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_OP, "it was promised and is not there"};
}

Tensor dense_twin(const Tensor& tensor) {
  Tensor twin = tensor;
  int64_t stride = 1;
  for (size_t axis = twin.dims.size(); axis-- > 0; stride *= twin.dims[axis])
    twin.strides[axis] = stride;
  return twin;
}

void refuse(Instance& instance, const anyhal_op_desc& desc, const anyhal_verdict& verdict,
            const std::string& why) {
  const Script& script = instance.script;
  auto reason = static_cast<anyhal_reason>(verdict.reason);
  ++instance.refusals;
  if (script.forget != 0) instance.forgotten.emplace_back(script.forget, 'x');
  if (script.is(Bad::leaks_refusals)) instance.leak(2048);
  if (script.is(Bad::no_lie) && reason == ANYHAL_REASON_DTYPE) return;
  if (script.is(Bad::untyped)) throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_NONE, ""};
  if (script.is(Bad::fickle_refusal))
    throw Fault{ANYHAL_STATUS_UNSUPPORTED, reason, "no " + std::to_string(instance.refusals)};
  if (script.other_reason.contains(desc.op)) reason = ANYHAL_REASON_DRIVER;
  throw Fault{ANYHAL_STATUS_UNSUPPORTED, reason, why};
}

// Asks for a packed copy of matmul's right side, or of whatever operand 1 is.
void ask_for_pack(const Script& script, const anyhal_op_desc& desc, Plan& plan) {
  if (!script.pack.contains(desc.op) || desc.input_count < 2 ||
      (desc.operands[1].flags & ANYHAL_TENSOR_CONSTANT) == 0 || plan.op.tensors[1].bytes == 0)
    return;
  const Tensor& tensor = plan.op.tensors[1];
  static constexpr char key[] = "masked, dense";
  plan.pack_key.assign(key, key + sizeof key - 1);
  plan.pack = {1,
               0,
               64,
               static_cast<uint32_t>(plan.pack_key.size()),
               static_cast<uint64_t>(tensor.units()) * unit_bytes(tensor.dtype),
               plan.pack_key.data()};
  plan.prepared.pack_count = 1;
  plan.prepared.packs = &plan.pack;
}

Plan* make_plan(Device& device, const anyhal_op_desc& desc) {
  auto plan = std::make_unique<Plan>();
  plan->op.op = desc.op;
  plan->op.input_count = desc.input_count;
  const auto* attributes = static_cast<const uint8_t*>(desc.attributes);
  if (attributes != nullptr)
    plan->op.attributes.assign(attributes, attributes + desc.attributes_size);
  const bool ignore_strides = device.instance->script.ignore_strides.contains(desc.op);
  for (uint32_t i = 0; i < desc.operand_count; ++i) {
    const auto& tensor = desc.operands[i];
    plan->op.tensors.push_back(tensor_of(tensor));
    Tensor& made = plan->op.tensors.back();
    const uint64_t dense = static_cast<uint64_t>(made.units()) * unit_bytes(made.dtype);
    if (ignore_strides && i < desc.input_count && dense <= made.bytes) made = dense_twin(made);
    plan->descriptor_flags.push_back(tensor.flags);
    plan->base_offsets.push_back(tensor.base_offset);
    plan->block_bytes.push_back(tensor.block_bytes);
    plan->alias_of.push_back(static_cast<int32_t>(tensor.alias_of) - 1);
  }
  const Script& script = device.instance->script;
  plan->workspace = script.workspace;
  plan->prepared.size = sizeof plan->prepared;
  plan->prepared.flags = script.unsafe.contains(desc.op) ? 0 : ANYHAL_PREPARED_CAPTURE_SAFE;
  plan->prepared.workspace_bytes = script.workspace;
  plan->prepared.workspace_alignment = 256;
  plan->prepared.kernel = op_name(desc.op);
  plan->prepared.library = "";
  ask_for_pack(script, desc, *plan);
  bad_plan(*device.instance, *plan);
  return adopt(*device.instance, std::move(plan), ANYHAL_OBJECT_PLAN, &device);
}

bool whole_cell(const Plan& plan, const Operand& operand, size_t i) {
  const Tensor& tensor = plan.op.tensors[i];
  return operand.block != nullptr && operand.block->cell && operand.offset == 0 &&
         tensor.bytes == operand.block->bytes && tensor.dense() && plan.alias_of[i] < 0;
}

// The packed operand in the form the kernel reads.
std::vector<uint8_t> unpacked(const Plan& plan, const uint8_t* from) {
  std::vector<uint8_t> bytes(from, from + plan.pack.bytes);
  for (uint8_t& byte : bytes) byte ^= kPackMask;
  return bytes;
}

void spoil(const Description& d, const Pointers& p) {
  for (size_t i = d.input_count; i < d.tensors.size(); ++i) {
    const Tensor& out = d.tensors[i];
    if (out.bytes == 0) continue;
    uint8_t* last = p[i] + out.bytes - unit_bytes(out.dtype);
    if (family(out.dtype) == Family::kFloat) {
      store_float(out.dtype, last, load_float(out.dtype, last) * 1.25 + 1);
    } else {
      *last ^= 1;
    }
  }
}

void scribble(const Description& d, const Pointers& p) {
  for (size_t i = d.input_count; i < d.tensors.size(); ++i)
    if (d.tensors[i].bytes != 0) std::memset(p[i], 0, unit_bytes(d.tensors[i].dtype));
}

void run_op(Device& device, Plan& plan, const std::vector<Operand>& operands) {
  const Script& script = device.instance->script;
  Pointers pointers;
  std::vector<std::vector<uint8_t>> fresh(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool inlined = (plan.descriptor_flags[i] & ANYHAL_TENSOR_INLINE) != 0;
    if (whole_cell(plan, operands[i], i) && i >= plan.op.input_count) {
      fresh[i].assign(operands[i].block->bytes, 0xff);
      pointers.push_back(fresh[i].data());
    } else if (inlined) {
      const auto* value = reinterpret_cast<const uint8_t*>(operands[i].inline_value);
      fresh[i].assign(value, value + sizeof operands[i].inline_value);
      pointers.push_back(fresh[i].data());
    } else {
      pointers.push_back(bytes_of(operands[i]));
    }
  }
  const auto compute = [&](const Description& op) {
    try {
      kernel_for(op.op)(op, pointers);
    } catch (const Fault&) {
      if (!script.is(Bad::any_index)) throw;
    }
  };
  if (script.compute && plan.prepared.pack_count != 0) {
    Description dense = plan.op;
    dense.tensors[1] = dense_twin(plan.op.tensors[1]);
    std::vector<uint8_t> constant = unpacked(plan, pointers[1]);
    pointers[1] = constant.data();
    compute(dense);
  } else if (script.compute) {
    try {
      compute(plan.op);
    } catch (const Fault&) {
      if (script.scribble.contains(plan.op.op)) scribble(plan.op, pointers);
      throw;
    }
  }
  if (script.wrong.contains(plan.op.op)) spoil(plan.op, pointers);
  for (size_t i = plan.op.input_count; i < operands.size(); ++i)
    if (whole_cell(plan, operands[i], i)) store_whole(*operands[i].block, fresh[i].data());
}

// Its steps run one after another, so they share the launch's workspace.
void run_graph(Device& device, Plan& plan, const std::vector<Operand>& bindings,
               const Operand& workspace) {
  Instance& instance = *device.instance;
  if (is_bad(instance, Bad::stale_graph) && plan.runs > 1) return;
  for (auto& step : plan.steps) {
    Item item = step.item;
    if (is_bad(instance, Bad::graph_in_place) && item.plan != nullptr &&
        item.plan->alias_of.back() >= 0)
      continue;
    item.workspace = workspace;
    for (size_t i = 0; i < step.bindings.size(); ++i)
      if (step.bindings[i] >= 0) {
        const Operand& bound = bindings[static_cast<size_t>(step.bindings[i])];
        if (item.type == Item::kCopy) {
          (i == 0 ? item.regions[0].destination : item.regions[0].source) = bound;
        } else if (item.type == Item::kFill) {
          item.regions[0].destination = bound;
        } else {
          item.operands[i] = bound;
        }
      }
    execute(device, item);
  }
  for (const Plan::Private& place : plan.intermediates)
    if (uint8_t* at = bytes_of(place.operand); at != nullptr) std::memset(at, 0xff, place.bytes);
}

void run_kernel(const std::vector<Operand>& operands) {
  std::memmove(bytes_of(operands[0]), bytes_of(operands[1]), operands[2].inline_value[0]);
}

void check_cells(Device& device, const Plan& plan, const Operand& operand, size_t i) {
  if (operand.block == nullptr || !operand.block->cell) return;
  if (plan.block_bytes[i] != operand.block->bytes)
    violation(*device.instance, std::string(op_name(plan.op.op)) + " operand " + std::to_string(i) +
                                    ": prepared for a cell of " +
                                    std::to_string(plan.block_bytes[i]) + " bytes, called with " +
                                    std::to_string(operand.block->bytes));
  if (plan.base_offsets[i] != operand.offset)
    violation(*device.instance, std::string(op_name(plan.op.op)) + " operand " + std::to_string(i) +
                                    ": prepared for another offset in the cell");
}

Operand workspace_of(Device& device, const Plan& plan, const anyhal_call& call) {
  if (plan.workspace == 0) return {};
  if (call.workspace.offset % plan.prepared.workspace_alignment != 0)
    violation(*device.instance, "a workspace that is not aligned as the plan asked");
  return resolve(device, call.workspace, plan.workspace, "workspace");
}

}  // namespace

void run_plan(Device& device, Plan& plan, std::vector<Operand> operands, const Operand& workspace) {
  ++device.instance->executed;
  ++plan.runs;
  bad_before_run(device, plan, operands, workspace);
  if (plan.type == Plan::kOp && bad_skips(plan, operands)) return;
  if (plan.workspace != 0)  // whoever shares it will notice
    std::memset(bytes_of(workspace), is_bad(*device.instance, Bad::trusts_workspace) ? 0 : 0xff,
                plan.workspace);
  if (plan.type == Plan::kGraph) return run_graph(device, plan, operands, workspace);
  if (plan.type == Plan::kKernel) return run_kernel(operands);
  run_op(device, plan, operands);
  bad_after_run(device, plan, operands);
}

std::vector<Operand> operands_of(Device& device, Plan& plan, const anyhal_call& call) {
  Instance& instance = *device.instance;
  if (call.size < sizeof(anyhal_call)) violation(instance, "call is too short");
  if (plan.type == Plan::kGraph || plan.type == Plan::kKernel) {
    if (call.operand_count != plan.binding_count)
      violation(instance, "a graph or kernel was called with another number of bindings");
  } else if (call.operand_count != plan.op.tensors.size() && !is_bad(instance, Bad::any_count)) {
    violation(instance, "a plan was called with another number of operands");
  }
  const auto takes = static_cast<uint32_t>(plan.op.tensors.size());
  const bool any = plan.type == Plan::kOp && is_bad(instance, Bad::any_count);
  const uint32_t count = any ? takes : call.operand_count;  // reads on behind a short list
  std::vector<Operand> operands(count);
  for (uint32_t i = 0; i < count; ++i) {
    const anyhal_ref& ref = call.operands[i];
    const uint32_t flags = i < plan.descriptor_flags.size() ? plan.descriptor_flags[i] : 0;
    if ((flags & ANYHAL_TENSOR_INLINE) != 0) {
      operands[i].inline_value[0] = ref.memory;
      operands[i].inline_value[1] = ref.offset;
      continue;
    }
    const bool absent = (flags & ANYHAL_TENSOR_ABSENT) != 0;
    if (absent && ref.memory != 0) violation(instance, "an absent operand was given memory");
    const bool packed = plan.prepared.pack_count != 0 && i == plan.pack.operand;
    const uint64_t bytes = plan.type != Plan::kOp ? 1
                           : packed               ? plan.pack.bytes
                                                  : plan.op.tensors[i].bytes;
    operands[i] = resolve(device, ref, absent ? 0 : bytes, op_name(plan.op.op));
    if (plan.type != Plan::kOp || packed) continue;
    check_cells(device, plan, operands[i], i);
    const int32_t twin = plan.alias_of[i];
    if (twin >= 0 && bytes != 0 && std::memcmp(&ref, &call.operands[twin], sizeof ref) != 0)
      violation(instance, "an operand prepared as in place has another place in the call");
  }
  return operands;
}

namespace slots {

anyhal_status op_query(anyhal_device* handle, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 4, error, [&](auto&) {
    require_alive(*device.instance, &device, ANYHAL_OBJECT_DEVICE);
    check_description(*device.instance, *desc);
    std::string why;
    judge(device, *desc, *verdict, why);
  });
}

anyhal_status op_prepare(anyhal_device* handle, const anyhal_op_desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 5, error, [&](auto& lock) {
    require_alive(*device.instance, &device, ANYHAL_OBJECT_DEVICE);
    check_description(*device.instance, *desc);
    anyhal_verdict verdict = {};
    std::string why;
    judge(device, *desc, verdict, why);
    bad_prepare(*device.instance, lock);
    if (verdict.support == ANYHAL_SUPPORT_NO) refuse(*device.instance, *desc, verdict, why);
    refuse_if_scripted(device.instance->script, *desc);
    take_time(device.instance->script, *desc, lock);
    Plan* plan = make_plan(device, *desc);
    *out_plan = reinterpret_cast<anyhal_plan*>(plan);
    *out_prepared = &plan->prepared;
  });
}

anyhal_status op_enqueue(anyhal_queue* handle, anyhal_plan* plan_handle, const anyhal_call* call,
                         anyhal_error* error) {
  Plan& plan = *reinterpret_cast<Plan*>(plan_handle);
  Device& device = *plan.device;
  return guarded(*device.instance, &device, 6, error, [&](auto& lock) {
    require_alive(*device.instance, &plan, ANYHAL_OBJECT_PLAN);
    const Script& script = device.instance->script;
    Item item;
    item.plan = &plan;
    item.tag = call->tag;
    item.operands = operands_of(device, plan, *call);
    item.workspace = workspace_of(device, plan, *call);
    if (is_bad(*device.instance, Bad::hiccup) && device.instance->calls[6] % 3 != 0)
      throw Fault{ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_NONE, "not now"};
    if (is_bad(*device.instance, Bad::plan_scratch)) {
      plan.before = item.operands;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      lock.lock();
      item.operands = plan.before;
    }
    if (handle == nullptr) {
      if (script.async) violation(*device.instance, "op_enqueue without a queue");
      if (script.delay_ns != 0) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::nanoseconds(script.delay_ns));
        lock.lock();
      }
      return run_plan(device, plan, item.operands, item.workspace);
    }
    const uint64_t number = device.instance->calls[6];
    if (script.late_oom.contains(number)) item.fails = ANYHAL_STATUS_OUT_OF_MEMORY;
    if (script.late_failure.contains(number)) item.fails = ANYHAL_STATUS_EXECUTION_FAILED;
    auto* queue = reinterpret_cast<Queue*>(handle);
    enqueue(bad_queue(*queue), std::move(item));
    if (is_bad(*device.instance, Bad::blocking)) run_now(*queue);
  });
}

anyhal_status constant_pack(anyhal_queue* queue, anyhal_plan* plan_handle, uint32_t operand,
                            anyhal_ref source, anyhal_ref destination, anyhal_error* error) {
  Plan& plan = *reinterpret_cast<Plan*>(plan_handle);
  Device& device = *plan.device;
  return guarded(*device.instance, &device, 16, error, [&](auto&) {
    require_alive(*device.instance, &plan, ANYHAL_OBJECT_PLAN);
    if (plan.prepared.pack_count == 0 || operand != plan.pack.operand)
      violation(*device.instance, "constant_pack of an operand that the plan did not ask for");
    Item item;
    item.type = Item::kPack;
    item.plan = &plan;
    item.operands = {
        resolve(device, source, plan.op.tensors[operand].bytes, "constant_pack source"),
        resolve(device, destination, plan.pack.bytes, "constant_pack destination")};
    if (queue == nullptr) return execute(device, item);
    enqueue(*reinterpret_cast<Queue*>(queue), std::move(item));
  });
}

}  // namespace slots

void write_pack(Plan& plan, const std::vector<Operand>& operands) {
  const Tensor &from = plan.op.tensors[plan.pack.operand], to = dense_twin(from);
  std::vector<uint8_t> bytes(plan.pack.bytes);
  Description copy;
  copy.op = ANYHAL_OP_COPY;
  copy.input_count = 1;
  copy.tensors = {from, to};
  kernels::copy(copy, {bytes_of(operands[0]), bytes.data()});
  for (uint8_t& byte : bytes) byte ^= kPackMask;
  std::memcpy(bytes_of(operands[1]), bytes.data(), bytes.size());
}

}  // namespace hal::fake
