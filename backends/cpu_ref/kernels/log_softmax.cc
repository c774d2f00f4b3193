// log_softmax: x - max(x) - log(sum(exp(x - max(x)))) along one axis, in f64 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void normalize(const Call& call, uint32_t axis) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  const int64_t size = x.dims[axis], x_stride = x.strides[axis], out_stride = out.strides[axis];
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (d != axis) walk.add(x.dims[d], {x.strides[d], out.strides[d]});
  }
  if (walk.empty() || size == 0) return;
  do {
    const T* from = call.view<const T>(0).data() + walk.at(0);
    T* to = call.view<T>(1).data() + walk.at(1);
    auto value = [&](int64_t i) { return static_cast<double>(from[i * x_stride]); };
    double top = value(0), total = 0;
    for (int64_t i = 1; i < size; ++i) top = value(i) > top ? value(i) : top;
    for (int64_t i = 0; i < size; ++i) total += std::exp(value(i) - top);
    const double log = std::log(total);
    for (int64_t i = 0; i < size; ++i) to[i * out_stride] = sdk::convert<T>(value(i) - top - log);
  } while (walk.next());
}

}  // namespace

Answer log_softmax_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const int32_t axis = sdk::attributes<anyhal_attrs_log_softmax>(desc).axis;
  return all({axis_in(axis, sdk::operand(desc, 0).rank), dtypes_equal(desc, 1, 0),
              dims_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {0})});
}

void log_softmax(const Call& call) {
  const int32_t axis = sdk::attributes<anyhal_attrs_log_softmax>(call.desc()).axis;
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    normalize<typename decltype(t)::is>(call, static_cast<uint32_t>(axis));
  });
}

}  // namespace hal::cpu_ref
