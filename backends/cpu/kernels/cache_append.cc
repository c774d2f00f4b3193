// cache_append: writes rows [position, position + T) of a cache, in place.
// SPDX-License-Identifier: Apache-2.0
#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct State {
  int64_t batch, heads, capacity, rows, width;
  int64_t from[4], to[4];  // byte strides
  int64_t position_stride;
  uint32_t position_dtype;
  int64_t size;  // bytes of one element
};

void copy_line(const State& s, const char* from, char* to) {
  if (s.from[3] == s.size && s.to[3] == s.size) {
    memcpy(to, from, static_cast<size_t>(s.width * s.size));
    return;
  }
  for (int64_t i = 0; i < s.width; ++i)
    memcpy(to + i * s.to[3], from + i * s.from[3], static_cast<size_t>(s.size));
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  for (int64_t b = 0; b < s.batch; ++b) {
    int64_t position = read_index(s.position_dtype, data[2] + b * s.position_stride);
    if (position < 0 || position > s.capacity - s.rows) {
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
                  "rows [%lld, %lld) leave the cache's capacity of %lld; "
                  "nothing was written; make the cache larger or start at a lower position",
                  static_cast<long long>(position), static_cast<long long>(position + s.rows),
                  static_cast<long long>(s.capacity));
    }
  }
  for (int64_t b = 0; b < s.batch; ++b) {
    int64_t position = read_index(s.position_dtype, data[2] + b * s.position_stride);
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.rows; ++t)
        copy_line(s, data[1] + b * s.from[0] + h * s.from[1] + t * s.from[2],
                  data[3] + b * s.to[0] + h * s.to[1] + (position + t) * s.to[2]);
    }
  }
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_cache_append(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &update = plan.input(1), &position = plan.input(2), &out = plan.output();
  s.size = element_bytes(out.dtype);
  s.batch = update.dims[0];
  s.heads = update.dims[1];
  s.rows = update.dims[2];
  s.width = update.dims[3];
  s.capacity = out.dims[2];
  for (int d = 0; d < 4; ++d) {
    s.from[d] = update.strides[d] * s.size;
    s.to[d] = out.strides[d] * s.size;
  }
  s.position_dtype = position.dtype;
  s.position_stride = position.rank == 0 || position.dims[0] == 1
                          ? 0
                          : position.strides[0] * element_bytes(position.dtype);
  plan.run = run;
  plan.kernel = "rows in place";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
