// Query, prepare, composites, plan statistics and receipts.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "core/bindings/array.hpp"
#include "core/bindings/scope.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace hal {
namespace {

// (dtype, dims, strides, alignment, flags, alias_of, block_bytes, base_offset, content_id)
using OperandTuple = std::tuple<uint32_t, std::vector<int64_t>, std::vector<int64_t>, uint32_t,
                                uint32_t, uint32_t, uint64_t, uint64_t, uint64_t>;
// Node references: (kind, index, offset)
using RefTuple = std::tuple<uint32_t, uint32_t, uint64_t>;

OpDesc make_desc(uint32_t op, uint32_t inputs, const std::vector<OperandTuple>& operands,
                 nb::bytes attributes, const std::vector<uint32_t>& numerics,
                 const std::string& name) {
  OpDesc d;
  d.op = op, d.input_count = inputs, d.name = name;
  d.attributes.assign(attributes.c_str(), attributes.size());
  for (size_t i = 0; i < numerics.size() && i < 6; ++i) d.numerics[i] = numerics[i];
  for (const auto& [dtype, dims, strides, alignment, flags, alias, block, base, content] :
       operands) {
    OperandDesc o;
    o.dtype = dtype, o.dims = dims, o.strides = strides, o.alignment = alignment;
    o.flags = flags, o.alias_of = alias;
    o.block_bytes = block, o.base_offset = base, o.content_id = content;
    d.operands.push_back(std::move(o));
  }
  return d;
}

nb::dict verdict_record(const Verdict& v) {
  nb::dict d;
  d["support"] = v.support, d["flags"] = v.flags, d["reason"] = reason_name(v.reason);
  d["operand"] = v.operand, d["cost_ns"] = v.cost_ns, d["text"] = v.text;
  d["workspace_bytes"] = v.workspace_bytes;
  nb::list wants;
  for (const anyhal_want& w : v.wants) wants.append(nb::make_tuple(w.layout, w.alignment));
  d["wants"] = wants;
  return d;
}

nb::dict plan_record(const Plan& p) {
  nb::dict d;
  d["id"] = p.id, d["op"] = p.op_name, d["device"] = p.device->name;
  d["backend"] = p.device->instance->name, d["kernel"] = p.kernel, d["library"] = p.library;
  d["numerics"] = p.numerics, d["state"] = p.state, d["signature"] = p.signature,
  d["decomposed"] = p.decomposed;
  d["composite"] = bool(p.composite);
  d["calls"] = p.calls.load(), d["time_ns"] = p.time_ns.load(), d["cost_ns"] = p.cost_ns;
  return d;
}

// composite(device, operand_count, input_count, nodes, temp offsets, temp bytes, workspace,
// constants)
PlanRef composite(Device& device, uint32_t operand_count, uint32_t input_count,
                  const std::vector<std::pair<PlanRef*, std::vector<RefTuple>>>& nodes,
                  const std::vector<uint64_t>& temp_offsets,
                  const std::vector<uint64_t>& temp_bytes, uint64_t workspace_bytes,
                  nb::list constants) {
  Composite c;
  for (const auto& [plan, refs] : nodes) {
    Node node;
    plan->plan->retain();
    node.plan = plan->plan;
    for (const auto& [kind, index, offset] : refs) node.refs.push_back({kind, index, offset});
    c.nodes.push_back(std::move(node));
  }
  c.temp_offsets = temp_offsets, c.temp_bytes = temp_bytes, c.workspace_bytes = workspace_bytes;
  for (nb::handle h : constants) {
    if (!is_array(h.ptr())) throw nb::type_error("constants are Arrays");
    as_array(h.ptr())->buffer->retain();
    c.constants.push_back(as_array(h.ptr())->buffer);
  }
  return PlanRef(make_composite(device, operand_count, input_count, std::move(c)));
}

}  // namespace

void bind_plans(nb::module_& m) {
  nb::class_<PlanRef>(m, "Plan")
      .def_prop_ro("record", [](const PlanRef& p) { return plan_record(*p.plan); })
      .def_prop_ro("workspace_bytes", [](const PlanRef& p) { return p.plan->workspace_bytes; })
      .def("describe",
           [](PlanRef& p, const std::string& op_name, const std::string& called,
              const std::string& state, const std::string& signature, bool decomposed,
              double cost_ns, bool release_gil, const std::string& numerics) {
             p.plan->called = called;
             p.plan->op_name = op_name, p.plan->state = state, p.plan->signature = signature;
             p.plan->decomposed = decomposed, p.plan->cost_ns = cost_ns;
             p.plan->release_gil = release_gil, p.plan->numerics = numerics;
           })
      // One (dtype, shape) for each output of the op; None for one that is absent.
      .def("set_outputs",
           [](PlanRef& p,
              const std::vector<std::optional<std::pair<uint32_t, std::vector<int64_t>>>>& outs) {
             if (outs.size() > kMaxOutputs) throw nb::value_error("a plan has too many outputs");
             for (size_t i = 0; i < outs.size(); ++i) {
               const Spec*& spec = p.plan->out_specs[i];
               if (spec) spec->release();
               spec = nullptr;
               if (!outs[i]) continue;
               const auto& [dtype, shape] = *outs[i];
               spec =
                   intern_spec(p.plan->device, dtype, int32_t(shape.size()), shape.data(), nullptr);
             }
           })
      .def("run", [](PlanRef& p, nb::list arrays, Queue& queue) {
        Operand operands[kMaxOperands] = {};
        if (nb::len(arrays) != p.plan->operand_count)
          throw nb::value_error("a plan needs all of its operands");
        for (size_t i = 0; i < nb::len(arrays); ++i) {
          nb::handle h = arrays[i];
          if (h.is_none()) continue;
          if (!is_array(h.ptr())) throw nb::type_error("operands are Arrays or None");
          operands[i] = {as_array(h.ptr())->data, as_array(h.ptr())->buffer};
        }
        nb::gil_scoped_release nogil;
        run_plan(*p.plan, operands, queue);
      });
  m.def(
      "query",
      [](Device& d, uint32_t op, uint32_t inputs, const std::vector<OperandTuple>& operands,
         nb::bytes attributes, const std::vector<uint32_t>& numerics, const std::string& name) {
        return verdict_record(
            query_op(d, make_desc(op, inputs, operands, attributes, numerics, name)));
      },
      "device"_a, "op"_a, "inputs"_a, "operands"_a, "attributes"_a, "numerics"_a, "name"_a = "");
  m.def(
      "prepare",
      [](Device& d, uint32_t op, uint32_t inputs, const std::vector<OperandTuple>& operands,
         nb::bytes attributes, const std::vector<uint32_t>& numerics, const std::string& name) {
        const OpDesc desc = make_desc(op, inputs, operands, attributes, numerics, name);
        nb::gil_scoped_release nogil;
        return PlanRef(prepare_op(d, desc));
      },
      "device"_a, "op"_a, "inputs"_a, "operands"_a, "attributes"_a, "numerics"_a, "name"_a = "");
  m.def("composite", &composite);
  m.def("plan_cache_size", [] { return plan_cache().size(); });
  m.def("clear_plan_cache", [] { plan_cache().clear(); });
  m.def("retired_plans", [] {
    nb::list out;
    for (const Retired& r : retired_plans()) {
      nb::dict d;
      d["op"] = r.op_name, d["device"] = r.device, d["backend"] = r.backend, d["state"] = r.state;
      d["numerics"] = r.numerics, d["decomposed"] = r.decomposed, d["composite"] = false;
      d["calls"] = r.calls, d["time_ns"] = r.time_ns;
      out.append(d);
    }
    return out;
  });
  m.def("plans", [] {
    nb::list out;
    for (Plan* p : retained_plans()) {
      out.append(plan_record(*p));
      release(p);
    }
    return out;
  });
  m.def("receipts", [] {
    nb::list out;
    for (const Receipt& r : read_receipts())
      out.append(nb::make_tuple(r.sequence, r.plan_id, r.op, status_name(r.status), r.time_ns));
    return out;
  });
}

}  // namespace hal
