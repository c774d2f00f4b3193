// embedding: rows of a table, dequantised where it is stored in blocks.
// SPDX-License-Identifier: Apache-2.0
#include "indexing.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct State {
  int64_t count, width, vocabulary;
  int64_t row_stride, column_stride, out_stride;  // bytes
  uint32_t dtype;
  bool bytes;  // same dtype, adjacent: copied as bytes
  ReadRow read;
  WriteRow write;
};

void copy_row(const State& s, const char* from, char* to) {
  if (s.bytes) {
    memcpy(to, from, static_cast<size_t>(s.width * s.column_stride));
    return;
  }
  float piece[256];
  for (int64_t i = 0; i < s.width; i += 256) {
    int64_t n = s.width - i < 256 ? s.width - i : 256;
    if (is_block(s.dtype)) {
      for (int64_t b = 0; b < n; b += 32)
        dequantise_block(
            s.dtype,
            reinterpret_cast<const uint8_t*>(from + (i + b) / 32 * element_bytes(s.dtype)),
            piece + b);
    } else {
      s.read(from + i * s.column_stride, s.column_stride, n, piece);
    }
    s.write(to + i * s.out_stride, s.out_stride, n, piece);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  const Tensor &ids = plan.input(1), &out = plan.output();
  anyhal_status status = check_indices(ids, data[1], s.vocabulary, "embedding", error);
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
  s.read = reader_of(table.dtype);
  s.write = writer_of(out.dtype);
  plan.run = run;
  plan.kernel = is_block(table.dtype) ? "dequantised rows" : "rows";
  plan.library = "";
  return s.bytes || (s.write != nullptr && (s.read != nullptr || is_block(table.dtype)));
}

}  // namespace hal::cpu::HAL_CPU_ISA
