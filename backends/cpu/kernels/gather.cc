// gather: slices of x along one axis, picked by indices.
// SPDX-License-Identifier: Apache-2.0
#include "indexing.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct Slice20 {
  unsigned char b[20];
};
struct Slice34 {
  unsigned char b[34];
};
struct Slice18 {
  unsigned char b[18];
};
struct Slice144 {
  unsigned char b[144];
};
struct Slice210 {
  unsigned char b[210];
};

template <class T>
void copy_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (strides[0] == kSize && strides[1] == kSize) {
    memcpy(p[1], p[0], static_cast<size_t>(n * kSize));
    return;
  }
  for (int64_t i = 0; i < n; ++i) memcpy(p[1] + i * strides[1], p[0] + i * strides[0], kSize);
}

Inner copy_of(uint32_t dtype) {
  switch (element_bytes(dtype)) {
    case 1:
      return copy_run<uint8_t>;
    case 2:
      return copy_run<uint16_t>;
    case 4:
      return copy_run<uint32_t>;
    case 8:
      return copy_run<uint64_t>;
    case 20:
      return copy_run<Slice20>;
    case 18:
      return copy_run<Slice18>;
    case 144:
      return copy_run<Slice144>;
    case 210:
      return copy_run<Slice210>;
    default:
      return copy_run<Slice34>;
  }
}

// One index's slices: where x lies, how far apart slices are, how long a run of bytes is.
struct Source {
  char* x;
  int64_t step, bytes;
};

// For each index (operand 0) the run of bytes that it names to the output (operand 1).
template <class Index, class T>
void pick_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const Source& s = *static_cast<const Source*>(context);
  auto copy = [&](int64_t i, int64_t from_stride, int64_t to_stride) {
    Index index;
    memcpy(&index, p[0] + i * from_stride, sizeof(Index));
    const char* from = s.x + static_cast<int64_t>(index) * s.step;
    if constexpr (__is_same(T, void))
      memcpy(p[1] + i * to_stride, from, static_cast<size_t>(s.bytes));
    else
      memcpy(p[1] + i * to_stride, from, sizeof(T));
  };
  if constexpr (!__is_same(T, void)) {
    if (strides[0] == int64_t{sizeof(Index)} && strides[1] == int64_t{sizeof(T)}) {
      for (int64_t i = 0; i < n; ++i) copy(i, sizeof(Index), sizeof(T));
      return;
    }
  }
  for (int64_t i = 0; i < n; ++i) copy(i, strides[0], strides[1]);
}

struct Slice16 {
  unsigned char b[16];
};

template <class Index>
Inner pick_of(int64_t bytes) {
  switch (bytes) {
    case 1:
      return pick_run<Index, uint8_t>;
    case 2:
      return pick_run<Index, uint16_t>;
    case 4:
      return pick_run<Index, uint32_t>;
    case 8:
      return pick_run<Index, uint64_t>;
    case 16:
      return pick_run<Index, Slice16>;
    default:
      return pick_run<Index, void>;
  }
}

struct State {
  Nest lead;      // x and out over the dims before the axis
  Nest indices;   // indices and out
  Nest slice;     // x and out of one index
  Inner inner;    // of a slice
  Inner pick;     // of runs of bytes, for all indices; null: slice by slice
  int64_t bytes;  // of a run
  int64_t limit;
  int64_t axis_stride;  // bytes
  bool wide;            // dtypes of indices: i64, else i32
};

// The indices again for each position before the axis, so that runs are written one after another.
void run_rows(const Plan& plan, const State& s, char* const* data) {
  int64_t cost = 2 + s.bytes / 8;
  bool split_lead = s.lead.count >= 4 * static_cast<int64_t>(plan.team.threads);
  auto row = [&](char* x, char* out) {
    Source source = {x, s.axis_stride, s.bytes};
    char* const ends[] = {data[1], out};
    auto some = [&](int64_t begin, int64_t end) {
      walk_nest(s.indices, ends, begin, end, s.pick, &source);
    };
    if (split_lead)
      some(0, s.indices.count);
    else
      split_range(plan.team, s.indices.count, kParallelGrain / cost, 1, some);
  };
  auto rows = [&](int64_t begin, int64_t end) {
    char* const ends[] = {data[0], data[2]};
    walk_nest(
        s.lead, ends, begin, end,
        [](const void* context, char* const* p, const int64_t* strides, int64_t n) {
          const auto& each = *static_cast<const decltype(row)*>(context);
          for (int64_t i = 0; i < n; ++i) each(p[0] + i * strides[0], p[1] + i * strides[1]);
        },
        &row);
  };
  if (split_lead)
    split_range(plan.team, s.lead.count, kParallelGrain / (cost * s.indices.count), 1, rows);
  else
    rows(0, s.lead.count);
}

// Index by index all that it picks.
void run_slices(const Plan& plan, const State& s, char* const* data) {
  bool few = s.indices.count < static_cast<int64_t>(plan.team.threads);
  auto slice = [&](const char* index, char* out) {
    int64_t at = read_index(s.wide ? ANYHAL_DTYPE_I64 : ANYHAL_DTYPE_I32, index);
    char* const ends[] = {data[0] + at * s.axis_stride, out};
    if (few)
      run_nest(plan, s.slice, ends, s.inner, nullptr);
    else
      walk_nest(s.slice, ends, 0, s.slice.count, s.inner, nullptr);
  };
  auto slices = [&](int64_t begin, int64_t end) {
    char* const ends[] = {data[1], data[2]};
    walk_nest(
        s.indices, ends, begin, end,
        [](const void* context, char* const* p, const int64_t* strides, int64_t n) {
          const auto& each = *static_cast<const decltype(slice)*>(context);
          for (int64_t i = 0; i < n; ++i) each(p[0] + i * strides[0], p[1] + i * strides[1]);
        },
        &slice);
  };
  if (few)
    slices(0, s.indices.count);
  else
    split_range(plan.team, s.indices.count, kParallelGrain / s.slice.count, 1, slices);
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  anyhal_status status = check_indices(plan.team, plan.input(1), data[1], s.limit, error);
  if (status != ANYHAL_STATUS_OK || s.slice.count == 0 || s.indices.count == 0) return status;
  (s.pick != nullptr ? run_rows : run_slices)(plan, s, data);
  return ANYHAL_STATUS_OK;
}

// What one index picks: x and out without the axis.
void make_slice(State& s, const Tensor& x, const Tensor& out, uint32_t axis, uint32_t picked) {
  Tensor from = x, to = out;
  to.rank = from.rank = x.rank - 1;
  for (uint32_t d = 0; d < from.rank; ++d) {
    uint32_t source = d < axis ? d : d + 1;
    uint32_t target = d < axis ? d : d + picked;
    from.dims[d] = x.dims[source];
    from.strides[d] = x.strides[source];
    to.dims[d] = out.dims[target];
    to.strides[d] = out.strides[target];
  }
  const Tensor* tensors[] = {&from, &to};
  make_nest(s.slice, tensors, 2);
}

// Bytes of the run that x and out have after the axis; 0 if they have gaps there.
int64_t run_bytes(const Tensor& x, const Tensor& out, uint32_t axis, uint32_t picked) {
  const Tensor from = dims_of(x, axis + 1, x.rank), to = dims_of(out, axis + picked, out.rank);
  const Tensor* tensors[] = {&from, &to};
  Nest tail;
  make_nest(tail, tensors, 2);
  int64_t size = element_bytes(x.dtype);
  if (tail.count == 1) return size;
  bool dense = tail.rank == 1 && tail.strides[0][0] == size && tail.strides[1][0] == size;
  return dense ? tail.count * size : 0;
}

}  // namespace

bool prepare_gather(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &x = plan.input(0), &indices = plan.input(1), &out = plan.output();
  uint32_t axis = positive_axis(plan.attribute<anyhal_attrs_gather>().axis, x.rank);
  s.axis_stride = x.strides[axis] * element_bytes(x.dtype);
  s.limit = x.dims[axis];
  s.wide = indices.dtype == ANYHAL_DTYPE_I64;
  const Tensor before = dims_of(x, 0, axis), after = dims_of(out, 0, axis);
  const Tensor* lead[] = {&before, &after};
  make_nest(s.lead, lead, 2);
  const Tensor places = dims_of(out, axis, axis + indices.rank);
  const Tensor* picked[] = {&indices, &places};
  make_nest(s.indices, picked, 2);
  make_slice(s, x, out, axis, indices.rank);
  s.inner = copy_of(x.dtype);
  s.bytes = run_bytes(x, out, axis, indices.rank);
  // A few indices of many short runs are better walked as slices.
  bool rows = s.bytes != 0 && (s.indices.count >= 8 || s.lead.count <= s.indices.count);
  s.pick = nullptr;
  if (rows) s.pick = s.wide ? pick_of<int64_t>(s.bytes) : pick_of<int32_t>(s.bytes);
  plan.run = run;
  plan.kernel = rows ? "gather of runs" : "gather of slices";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
