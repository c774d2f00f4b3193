// cross_entropy_backward: (softmax(logits) - weights) * dloss, over the rows that count for a mean.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "training.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kLogits, kTargets, kDloss, kLse, kOut };

template <class T>
void differentiate(const Call& call) {
  const Tensor& logits = sdk::operand(call.desc(), kLogits);
  const Tensor& targets = sdk::operand(call.desc(), kTargets);
  const Tensor& dloss = sdk::operand(call.desc(), kDloss);
  const Tensor& lse = sdk::operand(call.desc(), kLse);
  const Tensor& out = sdk::operand(call.desc(), kOut);
  const auto attributes = sdk::attributes<anyhal_attrs_cross_entropy_backward>(call.desc());
  const int64_t classes = sdk::dim(logits, -1), stride = sdk::stride(logits, -1);
  const int64_t out_stride = sdk::stride(out, -1);
  const int64_t count =
      count_targets(call, "cross_entropy_backward", classes, attributes.ignore_index);
  const bool each = attributes.reduction == ANYHAL_LOSS_REDUCTION_NONE;
  const double part = static_cast<double>(attributes.label_smoothing);
  const double other = part / static_cast<double>(classes);
  sdk::Odometer<5> walk;
  for (uint32_t d = 0; d < targets.rank; ++d)
    walk.add(targets.dims[d], {logits.strides[d], targets.strides[d], each ? dloss.strides[d] : 0,
                               absent(lse) ? 0 : lse.strides[d], out.strides[d]});
  if (walk.empty()) return;
  do {
    const T* row = call.view<const T>(kLogits).data() + walk.at(0);
    const int64_t target = index_at(targets, call.data(kTargets), walk.at(1));
    T* to = call.view<T>(kOut).data() + walk.at(4);
    const bool counts = target != attributes.ignore_index;
    double scale = value_of(call.view<const Wide<T>>(kDloss).data()[walk.at(2)]);
    if (attributes.reduction == ANYHAL_LOSS_REDUCTION_MEAN) scale /= static_cast<double>(count);
    const LogSum whole(row, stride, classes);
    for (int64_t c = 0; c < classes; ++c) {
      const double x = value_of(row[c * stride]);
      double p = std::exp(x - whole.top) / whole.total;  // one rounded difference
      if (!absent(lse))
        p = std::exp(x - value_of(call.view<const Wide<T>>(kLse).data()[walk.at(3)]));
      const double weight = (c == target ? 1 - part : 0) + other;
      to[c * out_stride] = sdk::convert<T>(counts ? (p - weight) * scale : 0.0);
    }
  } while (walk.next());
}

}  // namespace

Answer cross_entropy_backward_fits(const Desc& desc) {
  Answer count = operands_are(desc, 4, 3);
  if (!count.yes()) return count;
  Answer fits = loss_fits<anyhal_attrs_cross_entropy_backward>(desc, kDloss);
  if (!fits.yes()) return fits;
  if (!absent(sdk::operand(desc, kLse))) {
    Answer same = all({is_wide(desc, kLse, kLogits), dims_equal(desc, kLse, kTargets)});
    if (!same.yes()) return same;
  }
  return all({dtypes_equal(desc, kOut, kLogits), dims_equal(desc, kOut, kLogits),
              outputs_stand_alone(desc)});
}

void cross_entropy_backward(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kLogits).dtype,
             [&](auto t) { differentiate<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
