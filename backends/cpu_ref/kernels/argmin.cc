// argmin: index of the smallest element along one axis; the lowest index wins, NaN is the smallest.
// SPDX-License-Identifier: Apache-2.0
#include "place.h"

namespace hal::cpu_ref {

Answer argmin_fits(const Desc& desc) {
  return place_fits(desc, sdk::attributes<anyhal_attrs_argmin>(desc).axis);
}

void argmin(const Call& call) {
  const int32_t axis = sdk::attributes<anyhal_attrs_argmin>(call.desc()).axis;
  sdk::visit(sdk::NumberTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    find_place<typename decltype(t)::is>(call, static_cast<uint32_t>(axis),
                                         [](auto value, auto best) { return value >= best; });
  });
}

}  // namespace hal::cpu_ref
