// rope: turns pairs of x[..., T, D] by position-dependent angles; the dims past rotary_dims pass.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

int64_t rotary_dims(const Desc& desc) {
  const int64_t given = sdk::attributes<anyhal_attrs_rope>(desc).rotary_dims;
  return given == 0 ? sdk::dim(sdk::operand(desc, 0), -1) : given;
}

// Angles are in f64 whatever x is, in long double when x is f64.
template <class T>
void rotate(const Call& call) {
  using Angle = std::conditional_t<std::is_same_v<T, double>, long double, double>;
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& positions = sdk::operand(call.desc(), 1);
  const Tensor& factors = sdk::operand(call.desc(), 2);
  const Tensor& out = sdk::operand(call.desc(), 3);
  const auto attributes = sdk::attributes<anyhal_attrs_rope>(call.desc());
  const bool halves = attributes.pairing == ANYHAL_PAIRING_HALF_SPLIT;
  const int64_t rotary = rotary_dims(call.desc());
  const int64_t x_stride = sdk::stride(x, -1), out_stride = sdk::stride(out, -1);
  sdk::Odometer<3> walk;  // x, positions, out over all but D; comes back to the start each time
  for (uint32_t d = 0; d + 1 < x.rank; ++d)
    walk.add(x.dims[d], {x.strides[d], positions.strides[d], out.strides[d]});
  if (walk.empty()) return;
  for (int64_t i = 0; i < rotary / 2; ++i) {
    Angle speed = Angle(attributes.position_scale) *
                  std::pow(Angle(attributes.base), Angle(-2 * i) / Angle(rotary));
    if (!absent(factors)) speed /= Angle(call.view<const float>(2).data()[i * factors.strides[0]]);
    const int64_t u = halves ? i : 2 * i, v = halves ? i + rotary / 2 : 2 * i + 1;
    do {
      const Angle angle = Angle(index_at(positions, call.data(1), walk.at(1))) * speed;
      const Angle cosine = std::cos(angle), sine = std::sin(angle);
      const T* from = call.view<const T>(0).data() + walk.at(0);
      T* to = call.view<T>(3).data() + walk.at(2);
      const Angle a = sdk::Compute<T>(from[u * x_stride]), b = sdk::Compute<T>(from[v * x_stride]);
      to[u * out_stride] = sdk::convert<T>(static_cast<double>(a * cosine - b * sine));
      to[v * out_stride] = sdk::convert<T>(static_cast<double>(b * cosine + a * sine));
    } while (walk.next());
  }
  do {
    const T* from = call.view<const T>(0).data() + walk.at(0);
    T* to = call.view<T>(3).data() + walk.at(2);
    for (int64_t d = rotary; d < sdk::dim(x, -1); ++d) to[d * out_stride] = from[d * x_stride];
  } while (walk.next());
}

}  // namespace

Answer rope_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& positions = sdk::operand(desc, 1);
  const Tensor& factors = sdk::operand(desc, 2);
  if (x.rank < 2) return sdk::invalid("x must be [..., T, D]", 0);
  const int64_t rotary = rotary_dims(desc);
  if (rotary < 0 || rotary % 2 != 0 || rotary > sdk::dim(x, -1))
    return sdk::invalid("an even number of dims, at most D, can rotate", 0);
  bool fits = positions.rank + 1 == x.rank;
  for (uint32_t d = 0; fits && d < positions.rank; ++d) fits = positions.dims[d] == x.dims[d];
  if (!fits) return sdk::invalid("positions must be [..., T], broadcast by strides of 0", 1);
  if (!absent(factors)) {
    Answer kind = all({rank_is(desc, 2, 1), dtype_in(desc, 2, sdk::dtypes(ANYHAL_DTYPE_F32))});
    if (!kind.yes()) return kind;
    if (factors.dims[0] != rotary / 2) return sdk::invalid("freq_factors must be [rotary / 2]", 2);
  }
  return all(
      {choice_in(sdk::attributes<anyhal_attrs_rope>(desc).pairing, ANYHAL_PAIRING_INTERLEAVED),
       dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 3, 0), dims_equal(desc, 3, 0),
       output_is_single(desc), output_may_alias(desc, {0})});
}

void rope(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { rotate<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
