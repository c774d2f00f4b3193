// conv_transpose: each output element sums what reaches it, in f64, plus bias, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "window.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kX, kW, kBias, kOut };

// Offset in x of the element whose tap k falls on place p; -1 if there is none.
int64_t origin(const Windows& windows, const int64_t (&p)[kSpatial], const int64_t (&k)[kSpatial]) {
  int64_t offset = 0;
  for (uint32_t i = 0; i < kSpatial; ++i) {
    const Axis& a = windows.axes[i];
    const int64_t spread = p[i] + a.before - k[i] * a.dilation;
    if (spread < 0 || spread % a.stride != 0 || spread / a.stride >= a.in) return -1;
    offset += spread / a.stride * a.in_stride;
  }
  return offset;
}

template <class T>
void transpose(const Call& call, const Windows& windows, int64_t groups) {
  const Tensor& x = sdk::operand(call.desc(), kX);
  const Tensor& w = sdk::operand(call.desc(), kW);
  const Tensor& bias = sdk::operand(call.desc(), kBias);
  const Tensor& out = sdk::operand(call.desc(), kOut);
  const int64_t per = x.dims[1] / groups;
  for (int64_t n = 0; n < out.dims[0]; ++n) {
    for (int64_t o = 0; o < out.dims[1]; ++o) {
      const int64_t first = o / w.dims[1] * per;  // channel of o's group
      const T* from = call.view<const T>(kX).data() + n * x.strides[0] + first * x.strides[1];
      const T* weights =
          call.view<const T>(kW).data() + first * w.strides[0] + o % w.dims[1] * w.strides[1];
      T* to = call.view<T>(kOut).data() + n * out.strides[0] + o * out.strides[1];
      const double start =
          absent(bias) ? 0.0
                       : static_cast<double>(call.view<const T>(kBias).data()[o * bias.strides[0]]);
      windows.each_place([&](const int64_t (&p)[kSpatial], int64_t at) {
        double sum = 0;
        windows.each_tap([&](const int64_t (&k)[kSpatial], int64_t tap) {
          const int64_t place = origin(windows, p, k);
          for (int64_t c = 0; place >= 0 && c < per; ++c)
            sum += static_cast<double>(from[place + c * x.strides[1]]) *
                   static_cast<double>(weights[tap + c * w.strides[0]]);
        });
        to[at] = sdk::convert<T>(sum + start);
      });
    }
  }
}

bool sizes_fit(const Windows& windows) {
  for (uint32_t i = 0; i < windows.count; ++i) {
    const Axis& a = windows.axes[i];
    if (!a.numbers_fit()) return false;
    const int64_t reached = std::max<int64_t>(0, (a.in - 1) * a.stride + a.reach());
    const int64_t more = a.out - (reached - a.before - a.after);
    if (more < 0 || more >= std::max(a.stride, a.dilation)) return false;
  }
  return true;
}

}  // namespace

Answer conv_transpose_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3, 2);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, kX);
  const Tensor& w = sdk::operand(desc, kW);
  const Tensor& out = sdk::output(desc);
  auto attributes = sdk::attributes<anyhal_attrs_conv_transpose>(desc);
  Answer ranks = all({spatial_fits(desc), rank_is(desc, kW, x.rank)});
  if (!ranks.yes()) return ranks;
  const int64_t groups = attributes.groups;
  if (groups < 1 || x.dims[1] % groups != 0 || w.dims[0] != x.dims[1] ||
      out.dims[1] != w.dims[1] * groups)
    return sdk::invalid("the weights do not fit the channels and groups", kW);
  Windows windows(x, out, attributes);
  windows.take_kernel(w);
  if (!sizes_fit(windows)) return sdk::invalid("the output's dims do not fit", kOut);
  const Tensor& bias = sdk::operand(desc, kBias);
  if (!absent(bias)) {
    if (bias.rank != 1 || bias.dims[0] != out.dims[1])
      return sdk::invalid("the bias must have one number for each feature", kBias);
    Answer same = dtypes_equal(desc, kBias, kX);
    if (!same.yes()) return same;
  }
  return all({dtypes_equal(desc, kW, kX), dtypes_equal(desc, kOut, kX), output_is_single(desc),
              output_may_alias(desc, {})});
}

void conv_transpose(const Call& call) {
  auto attributes = sdk::attributes<anyhal_attrs_conv_transpose>(call.desc());
  const Tensor& x = sdk::operand(call.desc(), kX);
  Windows windows(x, sdk::operand(call.desc(), kOut), attributes);
  windows.take_kernel(sdk::operand(call.desc(), kW));
  sdk::visit(sdk::FloatTypes{}, x.dtype, [&](auto t) {
    transpose<typename decltype(t)::is>(call, windows, attributes.groups);
  });
}

}  // namespace hal::cpu_ref
