// The contract's form of a description.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "core/plan.hpp"
#include "core/strided.hpp"

namespace hal {

// The contract's records for a description; they point into it.
struct Records {
  Records(const Device& device, const OpDesc& d)
      : Records(*device.instance, device.compute_kind, d) {}
  Records(const Instance& in, uint32_t memory_kind, const OpDesc& d) : operands(d.operands.size()) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const OperandDesc& from = d.operands[i];
      anyhal_tensor_desc& to = operands[i];
      to = {};
      to.size = sizeof(to);
      to.flags = from.flags, to.dtype = from.dtype, to.rank = uint32_t(from.dims.size());
      to.dims = from.dims.data(), to.strides = from.strides.data();
      to.alignment = from.alignment, to.memory_kind = memory_kind;
      to.alias_of = from.alias_of;
      to.block_bytes = from.block_bytes, to.base_offset = from.base_offset;
      to.value_min = from.value_min, to.value_max = from.value_max;
      to.content_id = from.content_id, to.content = from.content;
    }
    op.size = sizeof(op);
    op.op = d.op, op.op_version = 1;
    op.input_count = d.input_count, op.operand_count = uint32_t(operands.size());
    op.operands = laid_out(operands, in.sizes.tensor_desc, room_);
    op.attributes = d.attributes.empty() ? nullptr : d.attributes.data();
    op.attributes_size = uint32_t(d.attributes.size());
    std::copy(std::begin(d.numerics), std::end(d.numerics), op.numerics);
  }
  std::vector<anyhal_tensor_desc> operands;
  anyhal_op_desc op{};

 private:
  std::vector<uint64_t> room_;
};

}  // namespace hal
