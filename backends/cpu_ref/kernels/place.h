// Index of the element that stands out along one axis; the lowest index wins, NaN stands out most.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_PLACE_H_
#define BACKENDS_CPU_REF_KERNELS_PLACE_H_

#include "conditions.h"

namespace hal::cpu_ref {

// `beaten(value, best)` is false for NaN, which then wins.
template <class T, class Beaten>
void find_place(const Call& call, uint32_t axis, Beaten beaten) {
  using C = sdk::Compute<T>;
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  const int64_t stride = x.strides[axis];
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (d != axis) walk.add(x.dims[d], {x.strides[d], out.strides[d]});
  }
  if (walk.empty()) return;
  do {
    const T* from = call.view<const T>(0).data() + walk.at(0);
    int64_t best = 0;
    C top = from[0];
    for (int64_t i = 1; i < x.dims[axis] && top == top; ++i) {
      C value = from[i * stride];
      if (beaten(value, top)) continue;
      top = value;
      best = i;
    }
    if (out.dtype == ANYHAL_DTYPE_I64) {
      call.view<int64_t>(1).data()[walk.at(1)] = best;
    } else {
      call.view<int32_t>(1).data()[walk.at(1)] = static_cast<int32_t>(best);
    }
  } while (walk.next());
}

inline Answer place_fits(const Desc& desc, int32_t axis) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& out = sdk::operand(desc, 1);
  Answer inside = axis_in(axis, x.rank);
  if (!inside.yes()) return inside;
  if (out.rank != x.rank) return sdk::invalid("the output must keep the axis with size 1", 1);
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (out.dims[d] != (d == static_cast<uint32_t>(axis) ? 1 : x.dims[d]))
      return sdk::invalid("the output must keep the axis with size 1", 1);
  }
  if (x.dims[axis] == 0 && sdk::element_count(out) != 0)
    return sdk::invalid("there is no element to name", 0);
  if (out.dtype == ANYHAL_DTYPE_I32 && x.dims[axis] > INT32_MAX)
    return sdk::no(ANYHAL_REASON_SHAPE_LIMIT, "indices of this axis do not fit i32", 1);
  return all(
      {dtype_in(desc, 1, sdk::kIndices), output_is_single(desc), output_may_alias(desc, {})});
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_PLACE_H_
