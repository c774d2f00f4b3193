// max_pool: the largest element of each window; NaN wins, padding never does.
// SPDX-License-Identifier: Apache-2.0
#include "window.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void pool(const Call& call, const Windows& windows) {
  using C = sdk::Compute<T>;
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  for (int64_t n = 0; n < out.dims[0]; ++n) {
    for (int64_t c = 0; c < out.dims[1]; ++c) {
      const T* from = call.view<const T>(0).data() + n * x.strides[0] + c * x.strides[1];
      T* to = call.view<T>(1).data() + n * out.strides[0] + c * out.strides[1];
      windows.each_place([&](const int64_t (&p)[kSpatial], int64_t at) {
        C top = 0;
        bool any = false;
        windows.each_tap([&](const int64_t (&k)[kSpatial], int64_t) {
          const int64_t place = windows.seen(p, k);
          if (place < 0) return;
          const C value = from[place];
          if (!any || value > top || value != value) top = value;
          any = true;
        });
        to[at] = static_cast<T>(top);
      });
    }
  }
}

}  // namespace

Answer max_pool_fits(const Desc& desc) { return pool_fits<anyhal_attrs_max_pool>(desc); }

void max_pool(const Call& call) {
  const Windows windows =
      pool_windows(call.desc(), sdk::attributes<anyhal_attrs_max_pool>(call.desc()));
  sdk::visit(sdk::NumberTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { pool<typename decltype(t)::is>(call, windows); });
}

}  // namespace hal::cpu_ref
