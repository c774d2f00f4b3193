// embedding: rows of a table, dequantised where it is stored in blocks.
// SPDX-License-Identifier: Apache-2.0
#include "cast.h"
#include "indexing.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct State {
  int64_t count, width, vocabulary;
  int64_t row_stride, column_stride, out_stride;  // bytes
  uint32_t dtype;
  bool bytes;     // same dtype, adjacent: copied as bytes
  bool plain;     // adjacent f32 output
  Inner convert;  // table (blocks: f64) to the output's dtype
};

void copy_row(const State& s, char* from, char* to) {
  if (s.bytes) {
    memcpy(to, from, static_cast<size_t>(s.width * s.column_stride));
    return;
  }
  if (!is_block(s.dtype)) {
    char* const ends[] = {from, to};
    const int64_t strides[] = {s.column_stride, s.out_stride};
    s.convert(nullptr, ends, strides, s.width);
    return;
  }
  int64_t block_bytes = element_bytes(s.dtype);
  const int64_t strides[] = {sizeof(double), s.out_stride};
  const int64_t elements = block_elements(s.dtype);
  const bool simple = s.dtype == ANYHAL_DTYPE_Q4_1 || s.dtype == ANYHAL_DTYPE_Q8_0;
  double exact[256];
  for (int64_t i = 0; i < s.width; i += elements, from += block_bytes) {
    const uint8_t* block = reinterpret_cast<const uint8_t*>(from);
    if (s.plain && simple) {
      dequantise_block(s.dtype, block, reinterpret_cast<float*>(to) + i);
      continue;
    }
    dequantise_exactly(s.dtype, block, exact);
    char* const ends[] = {reinterpret_cast<char*>(exact), to + i * s.out_stride};
    s.convert(nullptr, ends, strides, elements);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  const Tensor &ids = plan.input(1), &out = plan.output();
  anyhal_status status = check_indices(plan.team, ids, data[1], s.vocabulary, error);
  if (status != ANYHAL_STATUS_OK || s.width == 0) return status;
  split_range(plan.team, s.count, kParallelGrain / s.width, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      copy_row(s, data[0] + index_at(ids, data[1], i) * s.row_stride,
               data[2] + offset_of(out, 0, out.rank - 1, i));
  });
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_embedding(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &table = plan.input(0), &ids = plan.input(1), &out = plan.output();
  s.count = element_count(ids);
  s.vocabulary = table.dims[0];
  s.width = table.dims[1];
  s.dtype = table.dtype;
  s.row_stride = table.strides[0] * element_bytes(table.dtype);
  s.column_stride = table.strides[1] * element_bytes(table.dtype);
  s.out_stride = out.strides[out.rank - 1] * element_bytes(out.dtype);
  s.bytes = table.dtype == out.dtype && !is_block(table.dtype) &&
            s.column_stride == element_bytes(table.dtype) && s.out_stride == s.column_stride;
  s.plain = out.dtype == ANYHAL_DTYPE_F32 && s.out_stride == 4;
  s.convert = cast_of(is_block(table.dtype) ? uint32_t{ANYHAL_DTYPE_F64} : table.dtype, out.dtype);
  plan.run = run;
  plan.kernel = is_block(table.dtype) ? "dequantised rows" : "rows";
  plan.library = "";
  return s.convert != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
