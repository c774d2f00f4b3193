// scatter_add: out = target, then out[a..., indices[i...], b...] += updates[a..., i..., b...].
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

// Adds updates into `sums`, which is laid out as `shape` says.
template <class T, class Sum>
void add_updates(const Call& call, const Tensor& shape, Sum* sums, uint32_t axis) {
  const Tensor& indices = sdk::operand(call.desc(), 1);
  const Tensor& updates = sdk::operand(call.desc(), 2);
  const T* data = call.view<const T>(2).data();
  Part to(shape), from(updates);
  to.remove(axis, 1);
  from.remove(axis, indices.rank);
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d < indices.rank; ++d)
    walk.add(indices.dims[d], {indices.strides[d], updates.strides[axis + d]});
  if (walk.empty()) return;
  const Tensor& from_part = from;
  const Tensor& to_part = to;
  do {
    int64_t index = index_at(indices, call.data(1), walk.at(0));
    Sum* bin = sums + index * shape.strides[axis];
    const T* update = data + walk.at(1);
    sdk::Rows<2> rows({&from_part, &to_part});
    rows.each([&](const int64_t (&at)[2]) {
      for (int64_t i = 0; i < rows.row_count; ++i) {
        Sum& sum = bin[at[1] + i * rows.row_strides[1]];
        const T& term = update[at[0] + i * rows.row_strides[0]];
        if constexpr (std::is_integral_v<T>) {
          using U = std::make_unsigned_t<T>;
          sum = static_cast<T>(U(sum) + U(term));
        } else {
          sum += static_cast<Sum>(term);
        }
      }
    });
  } while (walk.next());
}

// A dense description with the dims of `t`; `strides` must outlive it.
Tensor dense_like(const Tensor& t, int64_t* strides) {
  int64_t step = 1;
  for (uint32_t d = t.rank; d-- > 0;) {
    strides[d] = step;
    step *= t.dims[d];
  }
  Tensor dense = t;
  dense.strides = strides;
  return dense;
}

// 16-bit floats are summed in f32 in the workspace and rounded once.
template <class T>
void add_halves(const Call& call, uint32_t axis) {
  const Tensor& target = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 3);
  float* sums = reinterpret_cast<float*>(call.workspace());
  int64_t strides[sdk::kRankMax];
  const Tensor dense = dense_like(out, strides);
  sdk::Rows<2> in({&target, &dense});
  const T* from = call.view<const T>(0).data();
  in.each([&](const int64_t (&at)[2]) {
    for (int64_t i = 0; i < in.row_count; ++i)
      sums[at[1] + i * in.row_strides[1]] = from[at[0] + i * in.row_strides[0]];
  });
  add_updates<T>(call, dense, sums, axis);
  sdk::Rows<2> back({&dense, &out});
  T* to = call.view<T>(3).data();
  back.each([&](const int64_t (&at)[2]) {
    for (int64_t i = 0; i < back.row_count; ++i)
      to[at[1] + i * back.row_strides[1]] = T(sums[at[0] + i * back.row_strides[0]]);
  });
}

}  // namespace

Answer scatter_add_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  const Tensor& target = sdk::operand(desc, 0);
  const Tensor& indices = sdk::operand(desc, 1);
  const Tensor& updates = sdk::operand(desc, 2);
  const int32_t axis = sdk::attributes<anyhal_attrs_scatter_add>(desc).axis;
  Answer inside = axis_in(axis, target.rank);
  if (!inside.yes()) return inside;
  const uint32_t at = static_cast<uint32_t>(axis);
  if (updates.rank != target.rank - 1 + indices.rank)
    return sdk::invalid("the rank of the updates does not fit", 2);
  bool fits = true;
  for (uint32_t d = 0; d < updates.rank; ++d) {
    int64_t want = d < at                  ? target.dims[d]
                   : d < at + indices.rank ? indices.dims[d - at]
                                           : target.dims[d - indices.rank + 1];
    fits = fits && updates.dims[d] == want;
  }
  if (!fits) return sdk::invalid("the dims of the updates do not fit", 2);
  return all({dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0), dtypes_equal(desc, 3, 0),
              dims_equal(desc, 3, 0), output_is_single(desc), output_may_alias(desc, {0})});
}

uint64_t scatter_add_workspace(const Desc& desc) {
  const Tensor& out = sdk::output(desc);
  if (!sdk::kHalves.has(out.dtype)) return 0;
  return static_cast<uint64_t>(sdk::element_count(out)) * sizeof(float);
}

void scatter_add(const Call& call) {
  const Tensor& target = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 3);
  const uint32_t axis =
      static_cast<uint32_t>(sdk::attributes<anyhal_attrs_scatter_add>(call.desc()).axis);
  check_indices(sdk::operand(call.desc(), 1), call.data(1), target.dims[axis]);
  sdk::visit(sdk::NumberTypes{}, out.dtype, [&](auto t) {
    using T = typename decltype(t)::is;
    if constexpr (sdk::kIsHalf<T>) {
      add_halves<T>(call, axis);
    } else {
      move(target, call.data(0), out, call.data(3));
      add_updates<T>(call, out, call.view<T>(3).data(), axis);
    }
  });
}

}  // namespace hal::cpu_ref
