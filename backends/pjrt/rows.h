// What this backend runs: for each op the conditions, and the lowering that writes its program.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_ROWS_H_
#define ANYHAL_BACKENDS_PJRT_ROWS_H_

#include "anyhal/sdk/table.hpp"
#include "text.h"

namespace hal::pjrt {

// Writes one op: inputs with the dims of their descriptions (bool as i1, halves as they are), and
// the output with those of its own. Absent inputs have dtype 0.
using Lowering = Value (*)(Text& text, const anyhal_op_desc& desc,
                           const std::vector<Value>& inputs);

const sdk::OpTable& op_table();
Lowering lowering_of(uint32_t op);
const char* kernel_of(uint32_t op);
anyhal_status capabilities(void* value, uint64_t* bytes, anyhal_error* error);
// For ops that read positions: the operand and what they stay below. -1: none.
struct Positions {
  int operand = -1;
  int64_t bound = 0;
};
Positions positions_of(const anyhal_op_desc& desc);

// What a run looks at first, when operand `call_operand` of the call holds them.
struct Checked;
Checked checked(const anyhal_op_desc& desc, const Positions& at, size_t call_operand);

inline constexpr char kNotes[] =
    "XLA flushes denormals in arithmetic; every new shape is compiled, and kept in the cache";

// lowering/<op>.cc
Value lower_copy(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_fill(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_cast(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_unary(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_binary(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_where(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_reduce(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_matmul(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_gather(Text&, const anyhal_op_desc&, const std::vector<Value>&);
Value lower_scatter_add(Text&, const anyhal_op_desc&, const std::vector<Value>&);
sdk::Answer cast_fits(const anyhal_op_desc& desc);
sdk::Answer unary_fits(const anyhal_op_desc& desc);
sdk::Answer binary_fits(const anyhal_op_desc& desc);

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_ROWS_H_
