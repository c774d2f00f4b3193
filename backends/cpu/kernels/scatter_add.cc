// scatter_add: out = target, then out[.., index[i], ..] += updates[.., i, ..], in order of i.
// SPDX-License-Identifier: Apache-2.0
//
// f16 and bf16 accumulate in an f32 copy in the workspace and are rounded once.
#include "indexing.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct State {
  Nest whole;   // target and out (or its f32 copy)
  Nest slice;   // updates and out of one index
  Nest finish;  // f32 copy and out
  Nest picks;   // where updates begin and indices, in order of the indices
  Inner copy, add, back;
  int64_t limit;
  int64_t axis_stride;  // bytes, of what is added into
  bool wide;
};

template <class T>
inline T plus(T a, T b) {
  if constexpr (__is_same(T, float) || __is_same(T, double))
    return a + b;
  else
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <class S, class T>
void add_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    S x = *reinterpret_cast<const S*>(p[0] + i * strides[0]);
    T& to = *reinterpret_cast<T*>(p[1] + i * strides[1]);
    if constexpr (__is_same(S, T))
      to = plus(to, x);
    else
      to += to_f32(x);
  }
}

template <class T>
void copy_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  for (int64_t i = 0; i < n; ++i) memcpy(p[1] + i * strides[1], p[0] + i * strides[0], sizeof(T));
}
template <class S>
void widen_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<float*>(p[1] + i * strides[1]) =
        to_f32(*reinterpret_cast<const S*>(p[0] + i * strides[0]));
}
template <class S>
void narrow_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<S*>(p[1] + i * strides[1]) =
        from_f32<S>(*reinterpret_cast<const float*>(p[0] + i * strides[0]));
}

template <class T>
void use(State& s) {
  s.copy = copy_run<T>;
  s.add = add_run<T, T>;
}
template <class T>
void use_wide(State& s) {
  s.wide = true;
  s.copy = widen_run<T>;
  s.add = add_run<T, float>;
  s.back = narrow_run<T>;
}

bool choose(State& s, uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      use<float>(s);
      return true;
    case ANYHAL_DTYPE_F16:
      use_wide<F16>(s);
      return true;
    case ANYHAL_DTYPE_BF16:
      use_wide<BF16>(s);
      return true;
    case ANYHAL_DTYPE_F64:
      use<double>(s);
      return true;
    case ANYHAL_DTYPE_I64:
    case ANYHAL_DTYPE_U64:
      use<uint64_t>(s);
      return true;
    case ANYHAL_DTYPE_I32:
    case ANYHAL_DTYPE_U32:
      use<uint32_t>(s);
      return true;
    case ANYHAL_DTYPE_I16:
    case ANYHAL_DTYPE_U16:
      use<uint16_t>(s);
      return true;
    case ANYHAL_DTYPE_I8:
    case ANYHAL_DTYPE_U8:
      use<uint8_t>(s);
      return true;
    default:
      return false;
  }
}

// Elements [begin, end) of all slices.
struct Part {
  const State* state;
  char* sum;
  int64_t begin, end;
};

template <class Index>
void add_slices(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const Part& part = *static_cast<const Part*>(context);
  const State& s = *part.state;
  const int64_t apart[] = {0, 0};
  for (int64_t i = 0; i < n; ++i) {
    Index index;
    memcpy(&index, p[1] + i * strides[1], sizeof(index));
    char* const ends[] = {p[0] + i * strides[0],
                          part.sum + static_cast<int64_t>(index) * s.axis_stride};
    if (s.slice.count == 1)
      s.add(nullptr, ends, apart, 1);
    else
      walk_nest(s.slice, ends, part.begin, part.end, s.add, nullptr);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  const Tensor& indices = plan.input(1);
  anyhal_status status = check_indices(plan.team, indices, data[1], s.limit, error);
  if (status != ANYHAL_STATUS_OK) return status;
  char* sum = s.wide ? workspace : data[3];
  if (s.wide || data[0] != data[3]) {
    char* const ends[] = {data[0], sum};
    run_nest(plan, s.whole, ends, s.copy, nullptr);
  }
  // Every thread takes all indices, in order, and a part of their slices.
  int64_t grain = s.picks.count == 0 ? 0 : kParallelGrain / s.picks.count;
  bool wide_index = indices.dtype == ANYHAL_DTYPE_I64;
  split_range(plan.team, s.slice.count, grain < 64 ? 64 : grain, 16,
              [&](int64_t begin, int64_t end) {
                Part part = {&s, sum, begin, end};
                char* const ends[] = {data[2], data[1], data[1]};
                walk_nest(s.picks, ends, 0, s.picks.count,
                          wide_index ? add_slices<int64_t> : add_slices<int32_t>, &part);
              });
  if (s.wide) {
    char* const ends[] = {sum, data[3]};
    run_nest(plan, s.finish, ends, s.back, nullptr);
  }
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_scatter_add(Plan& plan) {
  State& s = plan.make_state<State>();
  s = {};
  const Tensor &target = plan.input(0), &indices = plan.input(1), &updates = plan.input(2);
  if (!choose(s, target.dtype)) return false;
  uint32_t axis = positive_axis(plan.attribute<anyhal_attrs_scatter_add>().axis, target.rank);
  Tensor sum = plan.output();
  if (s.wide) {
    sum.dtype = ANYHAL_DTYPE_F32;
    int64_t stride = 1;
    for (uint32_t d = sum.rank; d-- > 0;) {
      sum.strides[d] = stride;
      stride *= sum.dims[d];
    }
    plan.workspace_bytes = static_cast<uint64_t>(stride) * sizeof(float);
    const Tensor* finish[] = {&sum, &plan.output()};
    make_nest(s.finish, finish, 2);
  }
  const Tensor* whole[] = {&target, &sum};
  make_nest(s.whole, whole, 2);
  s.axis_stride = sum.strides[axis] * element_bytes(sum.dtype);
  s.limit = target.dims[axis];
  Tensor from = updates, to = sum;
  from.rank = to.rank = sum.rank - 1;
  for (uint32_t d = 0; d < to.rank; ++d) {
    uint32_t source = d < axis ? d : d + indices.rank;
    uint32_t into = d < axis ? d : d + 1;
    from.dims[d] = updates.dims[source];
    from.strides[d] = updates.strides[source];
    to.dims[d] = sum.dims[into];
    to.strides[d] = sum.strides[into];
  }
  const Tensor* slice[] = {&from, &to};
  make_nest(s.slice, slice, 2);
  const Tensor starts = dims_of(updates, axis, axis + indices.rank), order = row_major(indices);
  const Tensor* picks[] = {&starts, &indices, &order};
  make_nest(s.picks, picks, 3);
  plan.run = run;
  plan.kernel = "scatter in order";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
