// group_norm_backward: dx, dweight and dbias, computed in f64 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "channel_gradient.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kDout, kX, kWeight, kResidual, kDx, kDweight, kDbias };

template <class T>
void groups_backward(const Call& call) {
  // Squares of f32 fit in f64; those of f64 need the longer exponent of long double.
  using Acc = Squares<T>;
  using Walks = ChannelWalk<T>;
  const auto attrs = sdk::attributes<anyhal_attrs_group_norm_backward>(call.desc());
  const Tensor& x = sdk::operand(call.desc(), kX);
  const Tensor& weight = sdk::operand(call.desc(), kWeight);
  const int64_t channels = x.dims[1], width = channels / attrs.groups;
  double* weight_sums = reinterpret_cast<double*>(call.workspace());
  double* bias_sums = weight_sums + channels;
  for (int64_t c = 0; c < 2 * channels; ++c) weight_sums[c] = 0;
  const Walks walks(call, kResidual, kDx);
  const T* w = absent(weight) ? nullptr : call.view<const T>(kWeight).data();
  typename Walks::Walk places;
  for (uint32_t d = 2; d < x.rank; ++d) walks.add(places, x.dims[d], d);
  typename Walks::Walk rows;
  walks.add(rows, x.dims[0], 0);
  walks.add(rows, attrs.groups, 1, width);
  const Acc count = static_cast<Acc>(width * (places.empty() ? 0 : places.count()));
  int64_t group = 0;
  if (!rows.empty() && count != 0) {
    do {
      Acc mean = 0, squares = 0, along = 0, level = 0;
      auto at = [&](int k, int64_t i) {
        const Tensor& operand = sdk::operand(call.desc(), walks.number[k]);
        const int64_t step = walks.data[k] == nullptr ? 0 : operand.strides[1];
        return rows.at(k) + places.at(k) + i * step;
      };
      auto value = [&](int64_t i) {
        return static_cast<Acc>(walks.sum(at(Walks::kX, i), at(Walks::kResidual, i))) - mean;
      };
      auto d = [&](int64_t i) { return static_cast<Acc>(walks.gradient(at(Walks::kDout, i))); };
      auto g = [&](int64_t i) {
        if (w == nullptr) return d(i);
        return d(i) * static_cast<Acc>(value_of(w[(group * width + i) * weight.strides[0]]));
      };
      auto each = [&](auto&& visit) {
        for (int64_t i = 0; i < width; ++i) {
          do visit(i);
          while (places.next());
        }
      };
      Acc sum = 0;
      each([&](int64_t i) { sum += value(i); });
      mean = sum / count;
      each([&](int64_t i) { squares += value(i) * value(i); });
      const Acc factor = 1 / std::sqrt(squares / count + static_cast<Acc>(attrs.eps));
      each([&](int64_t i) {
        const Acc unit = value(i) * factor;
        along += g(i) * unit / count;
        level += g(i) / count;
        weight_sums[group * width + i] += static_cast<double>(d(i) * unit);
        bias_sums[group * width + i] += static_cast<double>(d(i));
      });
      each([&](int64_t i) {
        const Acc found = factor * (g(i) - level - value(i) * factor * along);
        walks.data[Walks::kDx][at(Walks::kDx, i)] = sdk::convert<T>(static_cast<double>(found));
      });
      group = group + 1 == attrs.groups ? 0 : group + 1;
    } while (rows.next());
  }
  for (int64_t c = 0; c < channels; ++c) {
    write_channel<T>(call, kDweight, c, weight_sums[c]);
    write_channel<T>(call, kDbias, c, bias_sums[c]);
  }
}

}  // namespace

Answer group_norm_backward_fits(const Desc& desc) {
  Answer count = operands_are(desc, 4, 2, 3);
  if (!count.yes()) return count;
  Answer fits = channel_gradient_fits(desc, kResidual);
  if (!fits.yes()) return fits;
  const int32_t groups = sdk::attributes<anyhal_attrs_group_norm_backward>(desc).groups;
  if (groups < 1 || sdk::operand(desc, kX).dims[1] % groups != 0)
    return sdk::invalid("the groups must divide the channels of x [N, C, ...]", kX);
  if (absent(sdk::operand(desc, kWeight)) && !absent(sdk::operand(desc, kDweight)))
    return sdk::invalid("there is no dweight without a weight", kDweight);
  return sdk::yes();
}

// The sums over rows, C numbers each.
uint64_t group_norm_backward_workspace(const Desc& desc) {
  return static_cast<uint64_t>(sdk::operand(desc, kX).dims[1]) * 2 * sizeof(double);
}

void group_norm_backward(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kX).dtype,
             [&](auto t) { groups_backward<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
