// scatter: out = x, then updates are written or joined where indices say, column by column.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

// What an element is joined in: floats in f64, rounded once; integers wrap in their own width.
template <class T>
using Joined = std::conditional_t<sdk::kIsFloat<T>, double, T>;

template <class T>
Joined<T> join(int32_t reduction, Joined<T> a, Joined<T> b) {
  switch (reduction) {
    case ANYHAL_SCATTER_REDUCTION_MAX:
      return b > a || b != b ? b : a;
    case ANYHAL_SCATTER_REDUCTION_MIN:
      return b < a || b != b ? b : a;
    case ANYHAL_SCATTER_REDUCTION_ADD:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      else
        return a + b;
    case ANYHAL_SCATTER_REDUCTION_MULTIPLY:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      else
        return a * b;
    default:
      return b;
  }
}

// Columns along the axis; the workspace holds one.
template <class T>
void join_columns(const Call& call, uint32_t axis, int32_t reduction) {
  const Tensor& indices = sdk::operand(call.desc(), 1);
  const Tensor& updates = sdk::operand(call.desc(), 2);
  const Tensor& out = sdk::operand(call.desc(), 3);
  Joined<T>* column = reinterpret_cast<Joined<T>*>(call.workspace());
  sdk::Odometer<3> walk;
  for (uint32_t d = 0; d < out.rank; ++d) {
    if (d != axis)
      walk.add(indices.dims[d], {indices.strides[d], updates.strides[d], out.strides[d]});
  }
  if (walk.empty()) return;
  do {
    T* to = call.view<T>(3).data() + walk.at(2);
    const T* from = call.view<const T>(2).data() + walk.at(1);
    for (int64_t n = 0; n < out.dims[axis]; ++n)
      column[n] = static_cast<Joined<T>>(to[n * out.strides[axis]]);
    for (int64_t i = 0; i < indices.dims[axis]; ++i) {
      Joined<T>& old =
          column[index_at(indices, call.data(1), walk.at(0) + i * indices.strides[axis])];
      old = join<T>(reduction, old, static_cast<Joined<T>>(from[i * updates.strides[axis]]));
    }
    for (int64_t n = 0; n < out.dims[axis]; ++n)
      to[n * out.strides[axis]] = sdk::convert<T>(column[n]);
  } while (walk.next());
}

// Whole elements, in order: of equal indices the last one wins.
void replace(const Call& call, uint32_t axis) {
  const Tensor& indices = sdk::operand(call.desc(), 1);
  const Tensor& updates = sdk::operand(call.desc(), 2);
  const Tensor& out = sdk::operand(call.desc(), 3);
  const int64_t bytes = sdk::dtype_facts(out.dtype).block_bytes;
  sdk::Odometer<3> walk;
  for (uint32_t d = 0; d < out.rank; ++d)
    walk.add(indices.dims[d],
             {indices.strides[d], updates.strides[d], d == axis ? 0 : out.strides[d]});
  if (walk.empty()) return;
  do {
    const int64_t index = index_at(indices, call.data(1), walk.at(0));
    std::memcpy(call.data(3) + (walk.at(2) + index * out.strides[axis]) * bytes,
                call.data(2) + walk.at(1) * bytes, static_cast<size_t>(bytes));
  } while (walk.next());
}

}  // namespace

Answer scatter_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& indices = sdk::operand(desc, 1);
  auto attributes = sdk::attributes<anyhal_attrs_scatter>(desc);
  Answer ranks = all({axis_in(attributes.axis, x.rank), rank_is(desc, 1, x.rank)});
  if (!ranks.yes()) return ranks;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (d != static_cast<uint32_t>(attributes.axis) && indices.dims[d] > x.dims[d])
      return sdk::invalid("dims other than the axis must not exceed those of x", 1);
  }
  if (attributes.reduction != ANYHAL_SCATTER_REDUCTION_NONE) {
    Answer number = dtype_in(desc, 0, sdk::kNumbers);
    if (!number.yes()) return number;
  }
  return all({choice_in(attributes.reduction, ANYHAL_SCATTER_REDUCTION_MULTIPLY),
              dims_equal(desc, 2, 1), dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0),
              dtypes_equal(desc, 3, 0), dims_equal(desc, 3, 0), output_is_single(desc),
              output_may_alias(desc, {0})});
}

uint64_t scatter_workspace(const Desc& desc) {
  auto attributes = sdk::attributes<anyhal_attrs_scatter>(desc);
  if (attributes.reduction == ANYHAL_SCATTER_REDUCTION_NONE) return 0;
  return static_cast<uint64_t>(sdk::output(desc).dims[attributes.axis]) * sizeof(double);
}

void scatter(const Call& call) {
  auto attributes = sdk::attributes<anyhal_attrs_scatter>(call.desc());
  const uint32_t axis = static_cast<uint32_t>(attributes.axis);
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 3);
  check_indices(sdk::operand(call.desc(), 1), call.data(1), x.dims[axis]);
  move(x, call.data(0), out, call.data(3));
  if (attributes.reduction == ANYHAL_SCATTER_REDUCTION_NONE) return replace(call, axis);
  sdk::visit(sdk::NumberTypes{}, out.dtype, [&](auto t) {
    join_columns<typename decltype(t)::is>(call, axis, attributes.reduction);
  });
}

}  // namespace hal::cpu_ref
