// adamw_step: one step of Adam with decoupled weight decay, element by element, in f64, in place.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "training.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kParam, kM, kV, kGrad, kLr, kStep };

template <class T>
void step(const Call& call) {
  const Tensor& param = sdk::operand(call.desc(), kParam);
  const Tensor& m = sdk::operand(call.desc(), kM);
  const Tensor& v = sdk::operand(call.desc(), kV);
  const Tensor& grad = sdk::operand(call.desc(), kGrad);
  const Tensor& lr = sdk::operand(call.desc(), kLr);
  const auto attributes = sdk::attributes<anyhal_attrs_adamw_step>(call.desc());
  const double b1 = static_cast<double>(attributes.beta1);
  const double b2 = static_cast<double>(attributes.beta2);
  const double eps = static_cast<double>(attributes.eps);
  const double decay = static_cast<double>(attributes.weight_decay);
  const double rate = lr.dtype == ANYHAL_DTYPE_F64
                          ? *call.view<const double>(kLr).data()
                          : static_cast<double>(*call.view<const float>(kLr).data());
  const int64_t number = index_at(sdk::operand(call.desc(), kStep), call.data(kStep), 0);
  if (number < 1)
    throw sdk::Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                       "step %lld has no bias correction; nothing was written; count steps from "
                       "1",
                       static_cast<long long>(number));
  const double count = static_cast<double>(number);
  // 1 - beta^step without cancellation.
  const double first = -std::expm1(count * std::log(b1));
  const double second_root = std::sqrt(-std::expm1(count * std::log(b2)));
  sdk::Odometer<4> walk;
  for (uint32_t d = 0; d < param.rank; ++d)
    walk.add(param.dims[d], {param.strides[d], m.strides[d], v.strides[d], grad.strides[d]});
  if (walk.empty()) return;
  do {
    T& p = call.view<T>(kParam).data()[walk.at(0)];
    Wide<T>& mean = call.view<Wide<T>>(kM).data()[walk.at(1)];
    Wide<T>& square = call.view<Wide<T>>(kV).data()[walk.at(2)];
    const double g = value_of(call.view<const T>(kGrad).data()[walk.at(3)]);
    const double new_mean = b1 * value_of(mean) + (1 - b1) * g;
    const double new_square = b2 * value_of(square) + (1 - b2) * g * g;
    double change = new_mean / first / (std::sqrt(new_square) / second_root + eps);
    if (decay != 0) change += decay * value_of(p);
    p = sdk::convert<T>(value_of(p) - rate * change);
    mean = static_cast<Wide<T>>(new_mean);
    square = static_cast<Wide<T>>(new_square);
  } while (walk.next());
}

}  // namespace

Answer adamw_step_fits(const Desc& desc) {
  Answer count = operands_are(desc, 6, 6, 3);
  if (!count.yes()) return count;
  for (uint32_t i : {kM, kV, kGrad}) {
    Answer fits = all({dims_equal(desc, i, kParam),
                       i == kGrad ? dtypes_equal(desc, i, kParam) : is_wide(desc, i, kParam)});
    if (!fits.yes()) return fits;
  }
  return all({rank_is(desc, kLr, 0), rank_is(desc, kStep, 0), dtype_in(desc, kStep, sdk::kIndices),
              dtype_in(desc, kLr, sdk::dtypes(ANYHAL_DTYPE_F32, ANYHAL_DTYPE_F64)),
              outputs_are_inputs(desc, 3)});
}

void adamw_step(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kParam).dtype,
             [&](auto t) { step<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
