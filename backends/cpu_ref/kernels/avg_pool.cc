// avg_pool: the mean of each window, in f64 and rounded once; padding counts if asked.
// SPDX-License-Identifier: Apache-2.0
#include "window.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void pool(const Call& call, const Windows& windows, bool with_pads) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  for (int64_t n = 0; n < out.dims[0]; ++n) {
    for (int64_t c = 0; c < out.dims[1]; ++c) {
      const T* from = call.view<const T>(0).data() + n * x.strides[0] + c * x.strides[1];
      T* to = call.view<T>(1).data() + n * out.strides[0] + c * out.strides[1];
      windows.each_place([&](const int64_t (&p)[kSpatial], int64_t at) {
        double sum = 0;
        int64_t count = 0;
        windows.each_tap([&](const int64_t (&k)[kSpatial], int64_t) {
          const int64_t place = windows.seen(p, k);
          if (place >= 0) sum += static_cast<double>(from[place]);
          if (place >= 0 || (with_pads && windows.in_padding(p, k))) ++count;
        });
        to[at] = sdk::convert<T>(sum / static_cast<double>(count));
      });
    }
  }
}

}  // namespace

Answer avg_pool_fits(const Desc& desc) { return pool_fits<anyhal_attrs_avg_pool>(desc); }

void avg_pool(const Call& call) {
  auto attributes = sdk::attributes<anyhal_attrs_avg_pool>(call.desc());
  const Windows windows = pool_windows(call.desc(), attributes);
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    pool<typename decltype(t)::is>(call, windows, attributes.count_include_pad != 0);
  });
}

}  // namespace hal::cpu_ref
