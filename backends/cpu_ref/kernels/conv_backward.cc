// conv_backward: dx, dw and dbias of a convolution, one product at a time, in f64, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "training.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kDout, kX, kW, kDx, kDw, kDbias };
constexpr uint32_t kSpatialMax = 3;

// Writes sums of the workspace, which are in the order of its dims, to an output.
template <class T>
void store(const Call& call, uint32_t i, const double* sums) {
  const Tensor& out = sdk::operand(call.desc(), i);
  if (absent(out)) return;
  sdk::Odometer<1> walk;
  for (uint32_t d = 0; d < out.rank; ++d) walk.add(out.dims[d], {out.strides[d]});
  if (walk.empty()) return;
  do {
    call.view<T>(i).data()[walk.at(0)] = sdk::convert<T>(*sums++);
  } while (walk.next());
}

template <class T>
void differentiate(const Call& call) {
  const auto a = sdk::attributes<anyhal_attrs_conv_backward>(call.desc());
  const Tensor& dout = sdk::operand(call.desc(), kDout);
  const Tensor& x = sdk::operand(call.desc(), kX);
  const Tensor& w = sdk::operand(call.desc(), kW);
  const uint32_t spatial = x.rank - 2;
  const int64_t inner = w.dims[1], features = w.dims[0] / a.groups;
  double* dx = reinterpret_cast<double*>(call.workspace());
  double* dw = dx + sdk::element_count(x);
  double* dbias = dw + sdk::element_count(w);
  for (double* p = dx; p < dbias + w.dims[0]; ++p) *p = 0;
  int64_t taps = 1, places = 1, size = 1;
  for (uint32_t d = 0; d < spatial; ++d) {
    taps *= w.dims[d + 2];
    places *= dout.dims[d + 2];
    size *= x.dims[d + 2];
  }
  for (int64_t n = 0; n < x.dims[0]; ++n) {
    for (int64_t o = 0; o < w.dims[0]; ++o) {
      for (int64_t p = 0; p < places; ++p) {
        int64_t at[kSpatialMax], from = n * dout.strides[0] + o * dout.strides[1], rest = p;
        for (uint32_t d = spatial; d-- > 0; rest /= dout.dims[d + 2]) {
          at[d] = rest % dout.dims[d + 2];
          from += at[d] * dout.strides[d + 2];
        }
        const double gradient = value_of(call.view<const T>(kDout).data()[from]);
        dbias[o] += gradient;
        for (int64_t t = 0; t < taps; ++t) {
          int64_t x_at = 0, w_at = o * w.strides[0], flat = 0, scale = 1, left = t;
          bool inside = true;
          for (uint32_t d = spatial; d-- > 0; left /= w.dims[d + 2]) {
            const int64_t k = left % w.dims[d + 2];
            const int64_t i = at[d] * a.strides[d] - a.pads[d] + k * a.dilations[d];
            inside = inside && i >= 0 && i < x.dims[d + 2];
            x_at += i * x.strides[d + 2];
            w_at += k * w.strides[d + 2];
            flat += i * scale;
            scale *= x.dims[d + 2];
          }
          for (int64_t c = 0; c < inner; ++c) {
            const int64_t channel = o / features * inner + c;
            double input = 0;
            if (inside) {
              input = value_of(
                  call.view<const T>(kX).data()[n * x.strides[0] + channel * x.strides[1] + x_at]);
              dx[(n * x.dims[1] + channel) * size + flat] +=
                  gradient * value_of(call.view<const T>(kW).data()[w_at + c * w.strides[1]]);
            }
            dw[(o * inner + c) * taps + t] += gradient * input;
          }
        }
      }
    }
  }
  store<T>(call, kDx, dx);
  store<T>(call, kDw, dw);
  store<T>(call, kDbias, dbias);
}

}  // namespace

Answer conv_backward_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3, 3, 3);
  if (!count.yes()) return count;
  const auto a = sdk::attributes<anyhal_attrs_conv_backward>(desc);
  const Tensor& dout = sdk::operand(desc, kDout);
  const Tensor& x = sdk::operand(desc, kX);
  const Tensor& w = sdk::operand(desc, kW);
  if (x.rank < 3 || x.rank > 2 + kSpatialMax || w.rank != x.rank || dout.rank != x.rank)
    return sdk::invalid("x, w and dout must have one to three spatial axes");
  if (a.groups < 1 || w.dims[0] % a.groups != 0 || w.dims[1] * a.groups != x.dims[1] ||
      dout.dims[0] != x.dims[0] || dout.dims[1] != w.dims[0])
    return sdk::invalid("x, w and dout must be [N,C,...], [O,C/groups,...] and [N,O,...]");
  for (uint32_t d = 0; d + 2 < x.rank; ++d) {
    const bool counts =
        a.strides[d] >= 1 && a.dilations[d] >= 1 && a.pads[d] >= 0 && a.pads[kSpatialMax + d] >= 0;
    const int64_t room = x.dims[d + 2] + a.pads[d] + a.pads[kSpatialMax + d] - 1 -
                         (w.dims[d + 2] - 1) * a.dilations[d];
    if (!counts || w.dims[d + 2] < 1 || room < 0 || dout.dims[d + 2] != room / a.strides[d] + 1)
      return sdk::invalid("the spatial sizes of dout do not fit x, w and the attributes", kDout);
  }
  const Tensor& dbias = sdk::operand(desc, kDbias);
  if (!absent(dbias)) {
    Answer fits = all({rank_is(desc, kDbias, 1), dtypes_equal(desc, kDbias, kX)});
    if (!fits.yes()) return fits;
    if (dbias.dims[0] != w.dims[0]) return sdk::invalid("dbias must be [O]", kDbias);
  }
  if (absent(sdk::operand(desc, kDw))) return sdk::invalid("dw is absent", kDw);
  return all({dtypes_equal(desc, kDout, kX), dtypes_equal(desc, kW, kX),
              dtypes_equal(desc, kDx, kX), dims_equal(desc, kDx, kX), dtypes_equal(desc, kDw, kX),
              dims_equal(desc, kDw, kW), outputs_stand_alone(desc)});
}

// The sums of the three gradients.
uint64_t conv_backward_workspace(const Desc& desc) {
  const Tensor& w = sdk::operand(desc, kW);
  const int64_t numbers =
      sdk::element_count(sdk::operand(desc, kX)) + sdk::element_count(w) + w.dims[0];
  return static_cast<uint64_t>(numbers) * sizeof(double);
}

void conv_backward(const Call& call) {
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kX).dtype,
             [&](auto t) { differentiate<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
