// conv: act(sum over channels of the group and taps of x * w + bias) + residual, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "product.h"
#include "window.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kX, kW, kBias, kResidual, kOut };

template <class T>
class Convolution {
 public:
  explicit Convolution(const Call& call)
      : call_(call),
        attributes_(sdk::attributes<anyhal_attrs_conv>(call.desc())),
        x_(sdk::operand(call.desc(), kX)),
        w_(sdk::operand(call.desc(), kW)),
        bias_(sdk::operand(call.desc(), kBias)),
        residual_(sdk::operand(call.desc(), kResidual)),
        out_(sdk::operand(call.desc(), kOut)),
        windows_(x_, out_, attributes_) {
    windows_.take_kernel(w_);
  }

  void run() const {
    const int64_t planes = out_.dims[0] * out_.dims[1];
    const int64_t work = sdk::element_count(out_) * sdk::element_count(w_) / (w_.dims[0] + 1);
    in_parallel(call_, planes, work, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane)
        one_plane(plane / out_.dims[1], plane % out_.dims[1]);
    });
  }

 private:
  // The output of batch entry n and feature o.
  void one_plane(int64_t n, int64_t o) const {
    const int64_t per = w_.dims[1], group = o / (w_.dims[0] / attributes_.groups);
    const T* x = call_.view<const T>(kX).data() + n * x_.strides[0] + group * per * x_.strides[1];
    const T* w = call_.view<const T>(kW).data() + o * w_.strides[0];
    T* out = call_.view<T>(kOut).data() + n * out_.strides[0] + o * out_.strides[1];
    windows_.each_place([&](const int64_t (&p)[kSpatial], int64_t to) {
      double sum = 0;
      windows_.each_tap([&](const int64_t (&k)[kSpatial], int64_t tap) {
        const int64_t from = windows_.seen(p, k);
        for (int64_t c = 0; c < per; ++c) {
          const double value = from < 0 ? 0.0 : static_cast<double>(x[from + c * x_.strides[1]]);
          sum += value * static_cast<double>(w[tap + c * w_.strides[1]]);
        }
      });
      out[to] = sdk::convert<T>(finished(sum, n, o, p));
    });
  }

  double finished(double value, int64_t n, int64_t o, const int64_t (&p)[kSpatial]) const {
    if (!absent(bias_))
      value += static_cast<double>(call_.view<const T>(kBias).data()[o * bias_.strides[0]]);
    value = activate(attributes_.activation, value);
    if (absent(residual_)) return value;
    int64_t at = n * residual_.strides[0] + o * residual_.strides[1];
    for (uint32_t a = 0; a < windows_.count; ++a) at += p[a] * residual_.strides[a + 2];
    return value + static_cast<double>(call_.view<const T>(kResidual).data()[at]);
  }

  const Call& call_;
  const anyhal_attrs_conv attributes_;
  const Tensor& x_;
  const Tensor& w_;
  const Tensor& bias_;
  const Tensor& residual_;
  const Tensor& out_;
  Windows windows_;
};

}  // namespace

Answer conv_fits(const Desc& desc) {
  Answer count = operands_are(desc, 4, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, kX);
  const Tensor& w = sdk::operand(desc, kW);
  const Tensor& out = sdk::output(desc);
  auto attributes = sdk::attributes<anyhal_attrs_conv>(desc);
  Answer ranks = all({spatial_fits(desc), rank_is(desc, kW, x.rank)});
  if (!ranks.yes()) return ranks;
  const int64_t groups = attributes.groups;
  if (groups < 1 || w.dims[0] % groups != 0 || w.dims[1] * groups != x.dims[1] ||
      out.dims[1] != w.dims[0])
    return sdk::invalid("the weights do not fit the channels and groups", kW);
  Windows windows(x, out, attributes);
  windows.take_kernel(w);
  if (!windows.output_fits(false))
    return sdk::invalid("the output's dims do not fit the windows", kOut);
  const Tensor& bias = sdk::operand(desc, kBias);
  if (!absent(bias) && (bias.rank != 1 || bias.dims[0] != w.dims[0]))
    return sdk::invalid("the bias must have one number for each feature", kBias);
  if (!absent(sdk::operand(desc, kResidual))) {
    Answer same = dims_equal(desc, kResidual, kOut);
    if (!same.yes()) return same;
  }
  for (uint32_t i = kW; i <= kOut; ++i) {
    Answer same = absent(sdk::operand(desc, i)) ? sdk::yes() : dtypes_equal(desc, i, kX);
    if (!same.yes()) return same;
  }
  return all({choice_in(attributes.activation, ANYHAL_ACTIVATION_TANH), output_is_single(desc),
              output_may_alias(desc, {})});
}

void conv(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kX).dtype,
             [&](auto t) { Convolution<typename decltype(t)::is>(call).run(); });
}

}  // namespace hal::cpu_ref
