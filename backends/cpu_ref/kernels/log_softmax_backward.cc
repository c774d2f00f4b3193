// log_softmax_backward: dout - exp(y) * sum(dout) along one axis, in f64 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "training.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void differentiate(const Call& call, uint32_t axis) {
  const Tensor& dout = sdk::operand(call.desc(), 0);
  const Tensor& y = sdk::operand(call.desc(), 1);
  const Tensor& out = sdk::operand(call.desc(), 2);
  sdk::Odometer<3> walk;
  for (uint32_t d = 0; d < out.rank; ++d) {
    if (d != axis) walk.add(out.dims[d], {dout.strides[d], y.strides[d], out.strides[d]});
  }
  if (walk.empty()) return;
  do {
    const T* from = call.view<const T>(0).data() + walk.at(0);
    const T* p = call.view<const T>(1).data() + walk.at(1);
    T* to = call.view<T>(2).data() + walk.at(2);
    auto gradient = [&](int64_t i) { return value_of(from[i * dout.strides[axis]]); };
    auto log_share = [&](int64_t i) { return value_of(p[i * y.strides[axis]]); };
    double total = 0;
    for (int64_t i = 0; i < out.dims[axis]; ++i) total += gradient(i);
    for (int64_t i = 0; i < out.dims[axis]; ++i)
      to[i * out.strides[axis]] = sdk::convert<T>(gradient(i) - std::exp(log_share(i)) * total);
  } while (walk.next());
}

}  // namespace

Answer log_softmax_backward_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  return all({axis_in(sdk::attributes<anyhal_attrs_log_softmax_backward>(desc).axis,
                      sdk::operand(desc, 0).rank),
              dtypes_equal(desc, 1, 0), dims_equal(desc, 1, 0), dtypes_equal(desc, 2, 0),
              dims_equal(desc, 2, 0), output_is_single(desc), output_may_alias(desc, {0, 1})});
}

void log_softmax_backward(const Call& call) {
  const int32_t axis = sdk::attributes<anyhal_attrs_log_softmax_backward>(call.desc()).axis;
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    differentiate<typename decltype(t)::is>(call, static_cast<uint32_t>(axis));
  });
}

}  // namespace hal::cpu_ref
