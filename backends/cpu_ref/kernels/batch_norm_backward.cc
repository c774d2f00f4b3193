// batch_norm_backward: the gradients of x, mean, variance, weight and bias, channel by channel, in
// f64 and rounded once. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "channel_gradient.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t {
  kDout,
  kX,
  kMean,
  kVariance,
  kWeight,
  kResidual,
  kDx,
  kDmean,
  kDvariance,
  kDweight,
  kDbias
};

template <class T>
void channels_backward(const Call& call) {
  using Acc = Squares<T>;
  using Walks = ChannelWalk<T>;
  const Desc& desc = call.desc();
  const Tensor& x = sdk::operand(desc, kX);
  const Acc eps = sdk::attributes<anyhal_attrs_batch_norm_backward>(desc).eps;
  const Walks walks(call, kResidual, kDx);
  typename Walks::Walk others;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (d != 1) walks.add(others, x.dims[d], d);
  }
  auto vector = [&](uint32_t i, int64_t c) {
    const T* from = call.view<const T>(i).data();
    return static_cast<Acc>(value_of(from[c * sdk::operand(desc, i).strides[0]]));
  };
  for (int64_t c = 0; c < x.dims[1]; ++c) {
    if (others.empty()) {
      for (uint32_t i = kDmean; i <= kDbias; ++i) write_channel<T>(call, i, c, 0.0);
      continue;
    }
    auto at = [&](int k) {
      const Tensor& operand = sdk::operand(desc, walks.number[k]);
      return others.at(k) + (walks.data[k] == nullptr ? 0 : c * operand.strides[1]);
    };
    const Acc mean = vector(kMean, c), factor = 1 / std::sqrt(vector(kVariance, c) + eps);
    const Acc w = absent(sdk::operand(desc, kWeight)) ? 1 : vector(kWeight, c);
    Acc total = 0, along = 0;
    do {
      const Acc d = walks.gradient(at(Walks::kDout));
      const Acc sum = walks.sum(at(Walks::kX), at(Walks::kResidual));
      total += d;
      along += d * ((sum - mean) * factor);
      walks.data[Walks::kDx][at(Walks::kDx)] = sdk::convert<T>(static_cast<double>(d * w * factor));
    } while (others.next());
    write_channel<T>(call, kDmean, c, -total * w * factor);
    write_channel<T>(call, kDvariance, c, -along / 2 * w * factor * factor);
    write_channel<T>(call, kDweight, c, along);
    write_channel<T>(call, kDbias, c, total);
  }
}

}  // namespace

Answer batch_norm_backward_fits(const Desc& desc) {
  Answer count = operands_are(desc, 6, 4, 5);
  if (!count.yes()) return count;
  if (absent(sdk::operand(desc, kWeight)) && !absent(sdk::operand(desc, kDweight)))
    return sdk::invalid("there is no dweight without a weight", kDweight);
  return channel_gradient_fits(desc, kResidual);
}

void batch_norm_backward(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kX).dtype,
             [&](auto t) { channels_backward<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
