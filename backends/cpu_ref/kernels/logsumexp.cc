// logsumexp: log(sum(exp(x))) over whole axes, in f64 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class T>
double log_of_sum(const T* from, sdk::Odometer<1>& reduced) {
  if (reduced.empty()) return -HUGE_VAL;
  auto value = [&] { return static_cast<double>(from[reduced.at(0)]); };
  double top = value(), total = 0;
  do top = value() > top ? value() : top;
  while (reduced.next());
  if (!std::isfinite(top)) top = 0;  // exp gives 0, infinity or NaN, all of them right
  do total += std::exp(value() - top);
  while (reduced.next());
  return std::log(total) + top;
}

template <class T>
void fold(const Call& call, uint64_t axes) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  sdk::Odometer<2> kept;
  sdk::Odometer<1> reduced;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (axes >> d & 1) {
      reduced.add(x.dims[d], {x.strides[d]});
    } else {
      kept.add(x.dims[d], {x.strides[d], out.strides[d]});
    }
  }
  if (kept.empty()) return;
  do {
    const T* from = call.view<const T>(0).data() + kept.at(0);
    call.view<T>(1).data()[kept.at(1)] = sdk::convert<T>(log_of_sum(from, reduced));
  } while (kept.next());
}

}  // namespace

Answer logsumexp_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const Tensor &x = sdk::operand(desc, 0), &out = sdk::operand(desc, 1);
  const uint64_t axes = sdk::attributes<anyhal_attrs_logsumexp>(desc).axes;
  bool fits = out.rank == x.rank && axes >> x.rank == 0;
  for (uint32_t d = 0; fits && d < x.rank; ++d)
    fits = out.dims[d] == (axes >> d & 1 ? 1 : x.dims[d]);
  if (!fits) return sdk::invalid("the output has x's dims, with size 1 on the reduced axes", 1);
  return all({dtypes_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {})});
}

void logsumexp(const Call& call) {
  const uint64_t axes = sdk::attributes<anyhal_attrs_logsumexp>(call.desc()).axes;
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { fold<typename decltype(t)::is>(call, axes); });
}

}  // namespace hal::cpu_ref
