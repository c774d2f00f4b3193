// Windows over the spatial axes of [N, C, S...]; one and two axes are three with sizes of 1.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_WINDOW_H_
#define BACKENDS_CPU_REF_KERNELS_WINDOW_H_

#include "conditions.h"

namespace hal::cpu_ref {

constexpr uint32_t kSpatial = 3;

struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;
  int64_t in_stride = 0, out_stride = 0, kernel_stride = 0;

  int64_t reach() const { return (kernel - 1) * dilation + 1; }
  bool numbers_fit() const {
    return kernel > 0 && stride > 0 && dilation > 0 && before >= 0 && after >= 0;
  }
};

struct Windows {
  Axis axes[kSpatial];
  uint32_t count;

  // Attributes as the records of conv, conv_transpose and the pools have them.
  template <class Attributes>
  Windows(const Tensor& x, const Tensor& out, const Attributes& attributes) : count(x.rank - 2) {
    for (uint32_t a = 0; a < count; ++a) {
      Axis& axis = axes[a];
      axis.in = x.dims[a + 2], axis.in_stride = x.strides[a + 2];
      axis.out = out.dims[a + 2], axis.out_stride = out.strides[a + 2];
      axis.stride = attributes.strides[a], axis.dilation = attributes.dilations[a];
      axis.before = attributes.pads[a], axis.after = attributes.pads[kSpatial + a];
    }
  }

  void take_kernel(const Tensor& w) {
    for (uint32_t a = 0; a < count; ++a)
      axes[a].kernel = w.dims[a + 2], axes[a].kernel_stride = w.strides[a + 2];
  }

  // The dims that a convolution or pool gives. With `ceil` one more window may stand at the end.
  bool output_fits(bool ceil) const {
    for (const Axis& a : axes) {
      const int64_t room = a.in + a.before + a.after - a.reach();
      if (!a.numbers_fit() || room < 0) return false;
      const int64_t whole = room / a.stride + 1;
      const bool more = ceil && room % a.stride != 0 && whole * a.stride < a.in + a.before;
      if (a.out != whole && !(more && a.out == whole + 1)) return false;
    }
    return true;
  }

  // fn(place, offset in out) for each place of the output.
  template <class Fn>
  void each_place(Fn&& fn) const {
    int64_t p[kSpatial];
    for (p[0] = 0; p[0] < axes[0].out; ++p[0])
      for (p[1] = 0; p[1] < axes[1].out; ++p[1])
        for (p[2] = 0; p[2] < axes[2].out; ++p[2])
          fn(p, p[0] * axes[0].out_stride + p[1] * axes[1].out_stride + p[2] * axes[2].out_stride);
  }

  // fn(kernel place, offset in the kernel) for each tap.
  template <class Fn>
  void each_tap(Fn&& fn) const {
    int64_t k[kSpatial];
    for (k[0] = 0; k[0] < axes[0].kernel; ++k[0])
      for (k[1] = 0; k[1] < axes[1].kernel; ++k[1])
        for (k[2] = 0; k[2] < axes[2].kernel; ++k[2])
          fn(k, k[0] * axes[0].kernel_stride + k[1] * axes[1].kernel_stride +
                    k[2] * axes[2].kernel_stride);
  }

  // Offset in x of what tap k sees at place p; -1 outside of x.
  int64_t seen(const int64_t (&p)[kSpatial], const int64_t (&k)[kSpatial]) const {
    int64_t offset = 0;
    for (uint32_t i = 0; i < kSpatial; ++i) {
      const Axis& a = axes[i];
      const int64_t at = p[i] * a.stride - a.before + k[i] * a.dilation;
      if (at < 0 || at >= a.in) return -1;
      offset += at * a.in_stride;
    }
    return offset;
  }

  // Whether a tap outside of x is within the padding, rather than past it (ceil_mode).
  bool in_padding(const int64_t (&p)[kSpatial], const int64_t (&k)[kSpatial]) const {
    for (uint32_t i = 0; i < kSpatial; ++i) {
      const Axis& a = axes[i];
      if (p[i] * a.stride - a.before + k[i] * a.dilation >= a.in + a.after) return false;
    }
    return true;
  }
};

// x and out are [N, C, S...] with one to three spatial axes and one N.
inline Answer spatial_fits(const Desc& desc) {
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& out = sdk::output(desc);
  if (x.rank < 3 || x.rank > 2 + kSpatial || out.rank != x.rank || out.dims[0] != x.dims[0])
    return sdk::invalid("x and the output must be [N, C, spatial...] with one N", 0);
  return sdk::yes();
}

template <class Attributes>
Windows pool_windows(const Desc& desc, const Attributes& attributes) {
  Windows windows(sdk::operand(desc, 0), sdk::output(desc), attributes);
  for (uint32_t a = 0; a < windows.count; ++a) windows.axes[a].kernel = attributes.kernel[a];
  return windows;
}

template <class Attributes>
Answer pool_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  Answer ranks = spatial_fits(desc);
  if (!ranks.yes()) return ranks;
  auto attributes = sdk::attributes<Attributes>(desc);
  if (sdk::operand(desc, 0).dims[1] != sdk::output(desc).dims[1] ||
      !pool_windows(desc, attributes).output_fits(true))
    return sdk::invalid("the output's dims do not fit the windows", 1);
  return all({dtypes_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {})});
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_WINDOW_H_
