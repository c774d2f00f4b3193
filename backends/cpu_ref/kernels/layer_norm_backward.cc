// layer_norm_backward: dx, dweight and dbias, computed in f64 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "norm_backward.h"

namespace hal::cpu_ref {

Answer layer_norm_backward_fits(const Desc& desc) { return norm_backward_fits(desc, 3); }

uint64_t layer_norm_backward_workspace(const Desc& desc) { return norm_backward_workspace(desc); }

void layer_norm_backward(const Call& call) {
  const float eps = sdk::attributes<anyhal_attrs_layer_norm_backward>(call.desc()).eps;
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 1).dtype,
             [&](auto t) { norm_backward<typename decltype(t)::is, true>(call, eps); });
}

}  // namespace hal::cpu_ref
