// reduce: sum, mean, prod, max, min, any, all over a set of axes.
// SPDX-License-Identifier: Apache-2.0
//
// Floats accumulate in f64 and are rounded once. A result is always summed by one thread in one
// order, whatever the number of threads: long whole-tensor reductions are cut into fixed pieces.
#include "loops.h"
#include "math.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int kChains = 16;
constexpr int64_t kPiece = 32768;  // inner elements of one partial result
constexpr int64_t kPiecesMax = 256;
constexpr int64_t kColumns = 64;  // neighbouring results accumulated together

struct Bool {
  uint8_t byte;
};

template <class S>
struct Wide {
  using type = uint64_t;  // integers: wrapping, exact below 2^64
};
template <>
struct Wide<float> {
  using type = double;
};
template <>
struct Wide<double> {
  using type = double;
};
template <>
struct Wide<F16> {
  using type = double;
};
template <>
struct Wide<BF16> {
  using type = double;
};

template <class T>
constexpr bool kIsFloat =
    __is_same(T, float) || __is_same(T, double) || __is_same(T, F16) || __is_same(T, BF16);

inline double widened(double x) { return x; }
inline double widened(float x) { return x; }
inline double widened(F16 x) { return to_f32(x); }
inline double widened(BF16 x) { return to_f32(x); }
template <class T>
inline uint64_t widened(T x) {
  return static_cast<uint64_t>(static_cast<int64_t>(x));
}
template <>
inline uint64_t widened<Bool>(Bool x) {
  return x.byte != 0 ? 1 : 0;
}

// What is accumulated, how it starts and how two parts join.
template <class S>
struct Sum {
  using Acc = typename Wide<S>::type;
  static constexpr Acc kStart = 0;
  static Acc take(Acc acc, S x) { return acc + widened(x); }
  static Acc join(Acc a, Acc b) { return a + b; }
};
template <class S>
struct Prod {
  using Acc = typename Wide<S>::type;
  static constexpr Acc kStart = 1;
  static Acc take(Acc acc, S x) { return acc * widened(x); }
  static Acc join(Acc a, Acc b) { return a * b; }
};
template <class S>
inline auto comparable(S x) {
  if constexpr (kIsFloat<S> && !__is_same(S, double))
    return to_f32(x);
  else if constexpr (__is_same(S, Bool))
    return x.byte;
  else
    return x;
}
template <class S>
struct Max {
  using Acc = decltype(comparable(S{}));
  static constexpr Acc kStart = kIsFloat<S> ? static_cast<Acc>(-__builtin_inf())
                                : static_cast<Acc>(-1) < static_cast<Acc>(0)
                                    ? static_cast<Acc>(uint64_t{1} << (sizeof(Acc) * 8 - 1))
                                    : static_cast<Acc>(0);
  static Acc take(Acc acc, S x) { return join(acc, comparable(x)); }
  static Acc join(Acc a, Acc b) { return (a > b) | (a != a) ? a : b; }
};
template <class S>
struct Min {
  using Acc = decltype(comparable(S{}));
  static constexpr Acc kStart = kIsFloat<S> ? static_cast<Acc>(__builtin_inf())
                                : static_cast<Acc>(-1) < static_cast<Acc>(0)
                                    ? static_cast<Acc>((uint64_t{1} << (sizeof(Acc) * 8 - 1)) - 1)
                                    : static_cast<Acc>(~uint64_t{0});
  static Acc take(Acc acc, S x) { return join(acc, comparable(x)); }
  static Acc join(Acc a, Acc b) { return (a < b) | (a != a) ? a : b; }
};
struct Any {
  using Acc = uint8_t;
  static constexpr Acc kStart = 0;
  static Acc take(Acc acc, Bool x) { return acc | (x.byte != 0 ? 1 : 0); }
  static Acc join(Acc a, Acc b) { return a | b; }
};
struct All {
  using Acc = uint8_t;
  static constexpr Acc kStart = 1;
  static Acc take(Acc acc, Bool x) { return acc & (x.byte != 0 ? 1 : 0); }
  static Acc join(Acc a, Acc b) { return a & b; }
};

struct State;
using Write = void (*)(const State& s, char* to, const void* acc);
using Reduce = void (*)(const State& s, char* const* data, char* workspace, const Team& team);

struct State {
  Nest kept;     // x and out
  Nest reduced;  // x twice: only its strides matter
  double divisor;
  Write write;
  Reduce reduce;
  int64_t pieces;
  bool ordered;  // floats join in an order that only the reduced sizes determine
};

template <class Acc, class Out>
void write_result(const State& s, char* to, const void* acc) {
  Acc value = *static_cast<const Acc*>(acc);
  if constexpr (__is_same(Acc, double)) {
    double mean = s.divisor != 1.0 ? value / s.divisor : value;
    if constexpr (__is_same(Out, double))
      *reinterpret_cast<double*>(to) = mean;
    else
      *reinterpret_cast<Out*>(to) = from_f32<Out>(static_cast<float>(mean));
  } else if constexpr (__is_same(Out, F16) || __is_same(Out, BF16)) {
    *reinterpret_cast<Out*>(to) = from_f32<Out>(static_cast<float>(value));
  } else if constexpr (__is_same(Out, float) || __is_same(Out, double)) {
    double exact = __is_same(Acc, uint64_t) ? static_cast<double>(static_cast<int64_t>(value))
                                            : static_cast<double>(value);
    *reinterpret_cast<Out*>(to) = static_cast<Out>(s.divisor != 1.0 ? exact / s.divisor : exact);
  } else {
    *reinterpret_cast<Out*>(to) = static_cast<Out>(value);
  }
}

template <class Op, class S>
void reduce_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  using Acc = typename Op::Acc;
  Acc* chains = *static_cast<Acc* const*>(context);
  int64_t i = 0;
  if (strides[0] == static_cast<int64_t>(sizeof(S)) && n >= kChains) {
    Acc local[kChains];
    for (int c = 0; c < kChains; ++c) local[c] = chains[c];
    const S* x = reinterpret_cast<const S*>(p[0]);
    for (; i + kChains <= n; i += kChains)
#pragma GCC unroll 16
      for (int c = 0; c < kChains; ++c) local[c] = Op::take(local[c], x[i + c]);
    for (int c = 0; c < kChains; ++c) chains[c] = local[c];
  }
  for (; i < n; ++i)
    chains[0] = Op::take(chains[0], *reinterpret_cast<const S*>(p[0] + i * strides[0]));
}

template <class Op, class S>
typename Op::Acc reduce_range(const State& s, char* x, int64_t begin, int64_t end) {
  using Acc = typename Op::Acc;
  Acc chains[kChains];
  for (Acc& c : chains) c = Op::kStart;
  Acc* pointer = chains;
  char* const data[] = {x, x};
  if (end > begin) walk_nest(s.reduced, data, begin, end, reduce_run<Op, S>, &pointer);
  for (int h = kChains / 2; h > 0; h /= 2)
    for (int c = 0; c < h; ++c) chains[c] = Op::join(chains[c], chains[c + h]);
  return chains[0];
}

// The chain of an element follows from its number among the reduced, whatever the layout.
template <class Op, class S>
typename Op::Acc reduce_in_order(const State& s, char* x) {
  using Acc = typename Op::Acc;
  struct Chains {
    Acc acc[kChains];
    int64_t next;
  };
  Chains chains;
  chains.next = 0;
  for (Acc& c : chains.acc) c = Op::kStart;
  char* const data[] = {x, x};
  if (s.reduced.count > 0)
    walk_nest(
        s.reduced, data, 0, s.reduced.count,
        [](const void* context, char* const* p, const int64_t* strides, int64_t n) {
          Chains& c = *static_cast<Chains*>(const_cast<void*>(context));
          for (int64_t i = 0; i < n; ++i) {
            Acc& to = c.acc[(c.next + i) % kChains];
            to = Op::take(to, *reinterpret_cast<const S*>(p[0] + i * strides[0]));
          }
          c.next += n;
        },
        &chains);
  for (int h = kChains / 2; h > 0; h /= 2)
    for (int c = 0; c < h; ++c) chains.acc[c] = Op::join(chains.acc[c], chains.acc[c + h]);
  return chains.acc[0];
}

// Results that are neighbours in memory while the reduced elements are not: whole lines at once.
template <class Op, class S>
void reduce_columns(const State& s, char* const* p, const int64_t* strides, int64_t n) {
  using Acc = typename Op::Acc;
  struct Line {
    Acc acc[kColumns];
    int64_t count;
  };
  for (int64_t c0 = 0; c0 < n; c0 += kColumns) {
    Line line;
    line.count = n - c0 < kColumns ? n - c0 : kColumns;
    for (Acc& a : line.acc) a = Op::kStart;
    char* const data[] = {p[0] + c0 * strides[0], p[0]};
    walk_nest(
        s.reduced, data, 0, s.reduced.count,
        [](const void* context, char* const* q, const int64_t* steps, int64_t count) {
          Line& l = *static_cast<Line*>(const_cast<void*>(context));
          for (int64_t i = 0; i < count; ++i) {
            const S* x = reinterpret_cast<const S*>(q[0] + i * steps[0]);
            for (int64_t c = 0; c < l.count; ++c) l.acc[c] = Op::take(l.acc[c], x[c]);
          }
        },
        &line);
    for (int64_t c = 0; c < line.count; ++c) s.write(s, p[1] + (c0 + c) * strides[1], &line.acc[c]);
  }
}

template <class Op, class S>
void kept_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const State& s = *static_cast<const State*>(context);
  constexpr int64_t kSize = sizeof(S);
  if (s.ordered) {
    for (int64_t i = 0; i < n; ++i) {
      typename Op::Acc acc = reduce_in_order<Op, S>(s, p[0] + i * strides[0]);
      s.write(s, p[1] + i * strides[1], &acc);
    }
    return;
  }
  int64_t inner = s.reduced.strides[0][s.reduced.rank - 1];
  if (strides[0] == kSize && n >= 8 && inner != kSize && s.reduced.count > 0) {
    reduce_columns<Op, S>(s, p, strides, n);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    typename Op::Acc acc = reduce_range<Op, S>(s, p[0] + i * strides[0], 0, s.reduced.count);
    s.write(s, p[1] + i * strides[1], &acc);
  }
}

// One result over many elements: pieces of fixed size, joined in order.
template <class Op, class S>
void reduce_pieces(const State& s, char* const* data, char* workspace, const Team& team) {
  using Acc = typename Op::Acc;
  Acc* parts = reinterpret_cast<Acc*>(workspace);
  int64_t step = (s.reduced.count + s.pieces - 1) / s.pieces;
  share_items(team, s.pieces, [&](int64_t piece, int64_t) {
    int64_t begin = piece * step;
    int64_t end = begin + step < s.reduced.count ? begin + step : s.reduced.count;
    parts[piece] = begin < end ? reduce_range<Op, S>(s, data[0], begin, end) : Op::kStart;
  });
  Acc total = Op::kStart;
  for (int64_t i = 0; i < s.pieces; ++i) total = Op::join(total, parts[i]);
  s.write(s, data[1], &total);
}

template <class Op, class S>
void reduce_all(const State& s, char* const* data, char* workspace, const Team& team) {
  if (s.pieces > 1) {
    reduce_pieces<Op, S>(s, data, workspace, team);
    return;
  }
  int64_t each = s.reduced.count < 1 ? 1 : s.reduced.count;
  int64_t grain = kParallelGrain / each;
  split_range(team, s.kept.count, grain, 8, [&](int64_t begin, int64_t end) {
    walk_nest(s.kept, data, begin, end, kept_run<Op, S>, &s);
  });
}

template <class Acc>
Write writer_for(uint32_t out) {
  switch (out) {
    case ANYHAL_DTYPE_F32:
      return write_result<Acc, float>;
    case ANYHAL_DTYPE_F16:
      return write_result<Acc, F16>;
    case ANYHAL_DTYPE_BF16:
      return write_result<Acc, BF16>;
    case ANYHAL_DTYPE_F64:
      return write_result<Acc, double>;
    default:
      break;
  }
  if constexpr (!__is_same(Acc, double)) {
    switch (out) {
      case ANYHAL_DTYPE_I64:
        return write_result<Acc, int64_t>;
      case ANYHAL_DTYPE_I32:
        return write_result<Acc, int32_t>;
      case ANYHAL_DTYPE_I16:
        return write_result<Acc, int16_t>;
      case ANYHAL_DTYPE_I8:
        return write_result<Acc, int8_t>;
      case ANYHAL_DTYPE_U64:
        return write_result<Acc, uint64_t>;
      case ANYHAL_DTYPE_U32:
        return write_result<Acc, uint32_t>;
      case ANYHAL_DTYPE_U16:
        return write_result<Acc, uint16_t>;
      case ANYHAL_DTYPE_U8:
      case ANYHAL_DTYPE_BOOL:
        return write_result<Acc, uint8_t>;
      default:
        break;
    }
  }
  return nullptr;
}

template <class Op, class S>
bool use(State& s, uint32_t out) {
  s.reduce = reduce_all<Op, S>;
  s.write = writer_for<typename Op::Acc>(out);
  return s.write != nullptr;
}

template <class S>
bool choose(State& s, int32_t fn, uint32_t out) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_SUM:
    case ANYHAL_REDUCE_FN_MEAN:
      return use<Sum<S>, S>(s, out);
    case ANYHAL_REDUCE_FN_PROD:
      return use<Prod<S>, S>(s, out);
    case ANYHAL_REDUCE_FN_MAX:
      return use<Max<S>, S>(s, out);
    case ANYHAL_REDUCE_FN_MIN:
      return use<Min<S>, S>(s, out);
    default:
      return false;
  }
}

bool choose_dtype(State& s, uint32_t dtype, int32_t fn, uint32_t out) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return choose<float>(s, fn, out);
    case ANYHAL_DTYPE_F16:
      return choose<F16>(s, fn, out);
    case ANYHAL_DTYPE_BF16:
      return choose<BF16>(s, fn, out);
    case ANYHAL_DTYPE_F64:
      return choose<double>(s, fn, out);
    case ANYHAL_DTYPE_I64:
      return choose<int64_t>(s, fn, out);
    case ANYHAL_DTYPE_I32:
      return choose<int32_t>(s, fn, out);
    case ANYHAL_DTYPE_I16:
      return choose<int16_t>(s, fn, out);
    case ANYHAL_DTYPE_I8:
      return choose<int8_t>(s, fn, out);
    case ANYHAL_DTYPE_U64:
      return choose<uint64_t>(s, fn, out);
    case ANYHAL_DTYPE_U32:
      return choose<uint32_t>(s, fn, out);
    case ANYHAL_DTYPE_U16:
      return choose<uint16_t>(s, fn, out);
    case ANYHAL_DTYPE_U8:
      return choose<uint8_t>(s, fn, out);
    case ANYHAL_DTYPE_BOOL:
      if (fn == ANYHAL_REDUCE_FN_ANY) return use<Any, Bool>(s, out);
      if (fn == ANYHAL_REDUCE_FN_ALL) return use<All, Bool>(s, out);
      return choose<Bool>(s, fn, out);
    default:
      return false;
  }
}

// All dims of x as they stand, the last one innermost.
void make_plain_nest(Nest& nest, const Tensor& x) {
  nest = {1, 2, 1, {1}, {}};
  if (x.rank != 0) nest.rank = static_cast<int32_t>(x.rank);
  for (uint32_t d = 0; d < x.rank; ++d) {
    nest.dims[d] = x.dims[d];
    nest.count *= x.dims[d];
    for (auto& strides : nest.strides) strides[d] = x.strides[d] * element_bytes(x.dtype);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.kept.count > 0) s.reduce(s, data, workspace, plan.team);
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_reduce(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor& x = plan.input(0);
  const Tensor& out = plan.output();
  const auto& attrs = plan.attribute<anyhal_attrs_reduce>();
  Tensor kept_x = x, kept_out = out, reduced_x = x;
  for (uint32_t d = 0; d < x.rank; ++d) {
    bool reduced = (attrs.axes >> d & 1) != 0;
    if (reduced)
      kept_x.dims[d] = kept_out.dims[d] = 1;
    else
      reduced_x.dims[d] = 1;
  }
  const Tensor* kept[] = {&kept_x, &kept_out};
  const Tensor* inner[] = {&reduced_x, &reduced_x};
  make_nest(s.kept, kept, 2);
  s.ordered = plan.ordered && is_float(x.dtype);
  if (s.ordered)
    make_plain_nest(s.reduced, reduced_x);
  else
    make_nest(s.reduced, inner, 2);
  s.divisor = attrs.fn == ANYHAL_REDUCE_FN_MEAN ? static_cast<double>(s.reduced.count) : 1.0;
  s.pieces = 1;
  if (!s.ordered && s.kept.count == 1 && s.reduced.count >= 2 * kPiece) {
    s.pieces = s.reduced.count / kPiece;
    if (s.pieces > kPiecesMax) s.pieces = kPiecesMax;
    plan.workspace_bytes = static_cast<uint64_t>(s.pieces) * sizeof(double);
  }
  plan.run = run;
  plan.kernel = s.ordered ? "reduce, in order" : "reduce";
  plan.library = "";
  return choose_dtype(s, x.dtype, attrs.fn, out.dtype);
}

}  // namespace hal::cpu::HAL_CPU_ISA
