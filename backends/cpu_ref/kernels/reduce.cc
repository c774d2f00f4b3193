// reduce: x -> out over whole axes; out has x's rank, with 1 where x was reduced.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::cpu_ref {
namespace {

struct Walk {
  sdk::Odometer<2> kept;     // x and out over the dims that stay
  sdk::Odometer<1> reduced;  // x over the axes
};

Walk make_walk(const Desc& desc) {
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& out = sdk::operand(desc, 1);
  const uint64_t axes = sdk::attributes<anyhal_attrs_reduce>(desc).axes;
  Walk walk;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (axes >> d & 1) {
      walk.reduced.add(x.dims[d], {x.strides[d]});
    } else {
      walk.kept.add(x.dims[d], {x.strides[d], out.strides[d]});
    }
  }
  return walk;
}

// For each output: value = start, then step(value, x) along the axes, then finish(value, count).
template <class T, class Out, class Value, class Step, class Finish>
void fold(const Call& call, Value start, Step step, Finish finish) {
  const T* x = call.view<const T>(0).data();
  Out* out = call.view<Out>(1).data();
  Walk walk = make_walk(call.desc());
  if (walk.kept.empty()) return;
  const int64_t count = walk.reduced.count();
  do {
    Value value = start;
    const T* from = x + walk.kept.at(0);
    if (!walk.reduced.empty()) {
      do {
        value = step(value, sdk::Compute<T>(from[walk.reduced.at(0)]));
      } while (walk.reduced.next());
    }
    out[walk.kept.at(1)] = sdk::convert<Out>(finish(value, count));
  } while (walk.kept.next());
}

// Largest (sign 1) or smallest (sign -1); the first element starts, NaN wins.
template <class T>
void fold_extreme(const Call& call, bool largest) {
  using C = sdk::Compute<T>;
  struct Best {
    C value;
    bool any;
  };
  fold<T, T>(
      call, Best{C(0), false},
      [largest](Best best, C x) {
        bool takes = !best.any || x != x || (largest ? x > best.value : x < best.value);
        return best.value != best.value || !takes ? best : Best{x, true};
      },
      [](Best best, int64_t) { return best.value; });
}

template <class T>
void fold_float(const Call& call, int32_t fn) {
  // Sums and products of f32 and below are formed in f64 and rounded once.
  auto same = [](double value, int64_t) { return value; };
  switch (fn) {
    case ANYHAL_REDUCE_FN_SUM:
      return fold<T, T>(call, 0.0, [](double s, double x) { return s + x; }, same);
    case ANYHAL_REDUCE_FN_PROD:
      return fold<T, T>(call, 1.0, [](double s, double x) { return s * x; }, same);
    case ANYHAL_REDUCE_FN_MEAN:  // 0 / 0 = NaN over nothing
      return fold<T, T>(
          call, 0.0, [](double s, double x) { return s + x; },
          [](double s, int64_t count) { return s / static_cast<double>(count); });
    default:
      return fold_extreme<T>(call, fn == ANYHAL_REDUCE_FN_MAX);
  }
}

template <class T>
void fold_int(const Call& call, int32_t fn) {
  if (fn == ANYHAL_REDUCE_FN_MAX || fn == ANYHAL_REDUCE_FN_MIN)
    return fold_extreme<T>(call, fn == ANYHAL_REDUCE_FN_MAX);
  const bool sum = fn == ANYHAL_REDUCE_FN_SUM;
  sdk::visit(sdk::IntTypes{}, sdk::operand(call.desc(), 1).dtype, [&](auto o) {
    using Out = typename decltype(o)::is;
    fold<T, Out>(
        call, uint64_t{sum ? 0u : 1u},
        [sum](uint64_t s, T x) {
          return sum ? s + static_cast<uint64_t>(x) : s * static_cast<uint64_t>(x);
        },
        [](uint64_t s, int64_t) { return static_cast<Out>(s); });
  });
}

}  // namespace

void reduce(const Call& call) {
  const int32_t fn = sdk::attributes<anyhal_attrs_reduce>(call.desc()).fn;
  const uint32_t dtype = sdk::operand(call.desc(), 0).dtype;
  sdk::visit(sdk::FloatTypes{}, dtype,
             [&](auto t) { fold_float<typename decltype(t)::is>(call, fn); });
  sdk::visit(sdk::IntTypes{}, dtype, [&](auto t) { fold_int<typename decltype(t)::is>(call, fn); });
  if (dtype != ANYHAL_DTYPE_BOOL) return;
  using B = sdk::boolean;
  const bool any = fn == ANYHAL_REDUCE_FN_ANY;
  fold<B, B>(
      call, !any, [any](bool s, bool x) { return any ? s || x : s && x; },
      [](bool s, int64_t) { return B(s); });
}

}  // namespace hal::cpu_ref
