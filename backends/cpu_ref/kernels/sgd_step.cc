// sgd_step: one step of gradient descent with momentum, element by element, in f64, in place.
// SPDX-License-Identifier: Apache-2.0
#include "training.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kParam, kVelocity, kGrad, kLr };

template <class T>
void step(const Call& call) {
  const Tensor& param = sdk::operand(call.desc(), kParam);
  const Tensor& velocity = sdk::operand(call.desc(), kVelocity);
  const Tensor& grad = sdk::operand(call.desc(), kGrad);
  const Tensor& lr = sdk::operand(call.desc(), kLr);
  const auto attributes = sdk::attributes<anyhal_attrs_sgd_step>(call.desc());
  const double momentum = static_cast<double>(attributes.momentum);
  const double decay = static_cast<double>(attributes.weight_decay);
  const double rate = lr.dtype == ANYHAL_DTYPE_F64
                          ? *call.view<const double>(kLr).data()
                          : static_cast<double>(*call.view<const float>(kLr).data());
  sdk::Odometer<3> walk;
  for (uint32_t d = 0; d < param.rank; ++d)
    walk.add(param.dims[d], {param.strides[d], velocity.strides[d], grad.strides[d]});
  if (walk.empty()) return;
  do {
    T& p = call.view<T>(kParam).data()[walk.at(0)];
    Wide<T>& speed = call.view<Wide<T>>(kVelocity).data()[walk.at(1)];
    double g = value_of(call.view<const T>(kGrad).data()[walk.at(2)]);
    if (decay != 0) g += decay * value_of(p);
    const double moved = momentum * value_of(speed) + g;
    p = sdk::convert<T>(value_of(p) - rate * (attributes.nesterov ? g + momentum * moved : moved));
    speed = static_cast<Wide<T>>(moved);
  } while (walk.next());
}

}  // namespace

Answer sgd_step_fits(const Desc& desc) {
  Answer count = operands_are(desc, 4, 4, 2);
  if (!count.yes()) return count;
  return all({dims_equal(desc, kVelocity, kParam), is_wide(desc, kVelocity, kParam),
              dims_equal(desc, kGrad, kParam), dtypes_equal(desc, kGrad, kParam),
              rank_is(desc, kLr, 0),
              dtype_in(desc, kLr, sdk::dtypes(ANYHAL_DTYPE_F32, ANYHAL_DTYPE_F64)),
              outputs_are_inputs(desc, 2)});
}

void sgd_step(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kParam).dtype,
             [&](auto t) { step<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
