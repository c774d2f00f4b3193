// The first k elements along one axis in order, and where they stood: sort and topk.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_ORDER_H_
#define BACKENDS_CPU_REF_KERNELS_ORDER_H_

#include <algorithm>

#include "conditions.h"

namespace hal::cpu_ref {

template <class T>
void order_axis(const Call& call, uint32_t axis, bool descending) {
  using C = sdk::Compute<T>;
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor &values = sdk::operand(call.desc(), 1), &indices = sdk::operand(call.desc(), 2);
  const int64_t size = x.dims[axis], kept = values.dims[axis];
  int64_t* order = reinterpret_cast<int64_t*>(call.workspace());
  sdk::Odometer<3> walk;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (d != axis) walk.add(x.dims[d], {x.strides[d], values.strides[d], indices.strides[d]});
  }
  if (walk.empty() || kept == 0) return;
  do {
    const T* from = call.view<const T>(0).data() + walk.at(0);
    // NaN is above every number; equal elements keep the order of their indices.
    auto before = [&](int64_t i, int64_t j) {
      const C a = from[i * x.strides[axis]], b = from[j * x.strides[axis]];
      if ((a != a) != (b != b)) return (a != a) == descending;
      if (a == b || a != a) return i < j;
      return descending ? a > b : a < b;
    };
    for (int64_t i = 0; i < size; ++i) order[i] = i;
    std::partial_sort(order, order + kept, order + size, before);
    T* value = call.view<T>(1).data() + walk.at(1);
    int64_t* index = call.view<int64_t>(2).data() + walk.at(2);
    for (int64_t n = 0; n < kept; ++n) {
      value[n * values.strides[axis]] = from[order[n] * x.strides[axis]];
      index[n * indices.strides[axis]] = order[n];
    }
  } while (walk.next());
}

inline Answer order_fits(const Desc& desc, int32_t axis, int64_t kept) {
  Answer count = operands_are(desc, 1, 1, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  Answer inside = axis_in(axis, x.rank);
  if (!inside.yes()) return inside;
  if (kept < 0) kept = x.dims[axis];
  if (kept > x.dims[axis]) return sdk::invalid("k is larger than the axis", 0);
  for (uint32_t i : {1u, 2u}) {
    const Tensor& out = sdk::operand(desc, i);
    bool fits = !absent(out) && out.rank == x.rank;
    for (uint32_t d = 0; fits && d < x.rank; ++d)
      fits = out.dims[d] == (d == static_cast<uint32_t>(axis) ? kept : x.dims[d]);
    if (!fits) return sdk::invalid("the outputs have x's dims, k along the axis", int32_t(i));
  }
  return all({dtypes_equal(desc, 1, 0), dtype_in(desc, 2, sdk::dtypes(ANYHAL_DTYPE_I64)),
              output_is_single(desc), output_may_alias(desc, {}), output_may_alias(desc, {}, 1)});
}

inline uint64_t order_workspace(const Desc& desc, int32_t axis) {
  return sizeof(int64_t) * static_cast<uint64_t>(sdk::operand(desc, 0).dims[axis]);
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_ORDER_H_
