// cross_entropy: minus the weighted log-probabilities of each row, in f64; whole, summed or
// averaged. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "training.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void measure(const Call& call) {
  const Tensor& logits = sdk::operand(call.desc(), 0);
  const Tensor& targets = sdk::operand(call.desc(), 1);
  const Tensor& loss = sdk::operand(call.desc(), 2);
  const Tensor& lse = sdk::operand(call.desc(), 3);
  const auto attributes = sdk::attributes<anyhal_attrs_cross_entropy>(call.desc());
  const int64_t classes = sdk::dim(logits, -1), stride = sdk::stride(logits, -1);
  const int64_t count = count_targets(call, "cross_entropy", classes, attributes.ignore_index);
  const double part = static_cast<double>(attributes.label_smoothing);
  const bool each = attributes.reduction == ANYHAL_LOSS_REDUCTION_NONE;
  Wide<T>* losses = call.view<Wide<T>>(2).data();
  sdk::Odometer<4> walk;  // logits, targets, loss, lse
  for (uint32_t d = 0; d < targets.rank; ++d)
    walk.add(targets.dims[d], {logits.strides[d], targets.strides[d], each ? loss.strides[d] : 0,
                               absent(lse) ? 0 : lse.strides[d]});
  double sum = 0;
  if (!walk.empty()) {
    do {
      const T* row = call.view<const T>(0).data() + walk.at(0);
      const int64_t target = index_at(targets, call.data(1), walk.at(1));
      const LogSum whole(row, stride, classes);
      auto minus_log = [&](int64_t c) {
        return whole.log - (value_of(row[c * stride]) - whole.top);
      };
      if (!absent(lse))
        call.view<Wide<T>>(3).data()[walk.at(3)] = static_cast<Wide<T>>(whole.log + whole.top);
      double value = 0;
      if (target != attributes.ignore_index) {
        if (part < 1) value += (1 - part) * minus_log(target);
        for (int64_t c = 0; part > 0 && c < classes; ++c)
          value += part / static_cast<double>(classes) * minus_log(c);
      }
      if (each) losses[walk.at(2)] = static_cast<Wide<T>>(value);
      sum += value;
    } while (walk.next());
  }
  if (each) return;
  if (attributes.reduction == ANYHAL_LOSS_REDUCTION_MEAN) sum /= static_cast<double>(count);
  *losses = static_cast<Wide<T>>(sum);
}

}  // namespace

Answer cross_entropy_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2, 2, 2);
  if (!count.yes()) return count;
  Answer fits = loss_fits<anyhal_attrs_cross_entropy>(desc, 2);
  if (!fits.yes()) return fits;
  if (!absent(sdk::operand(desc, 3))) {
    Answer same = all({is_wide(desc, 3, 0), dims_equal(desc, 3, 1)});
    if (!same.yes()) return same;
  }
  return outputs_stand_alone(desc);
}

void cross_entropy(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { measure<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
