// argmax: index of the largest element along one axis; the lowest index wins, NaN is the largest.
// SPDX-License-Identifier: Apache-2.0
#include "place.h"

namespace hal::cpu_ref {

Answer argmax_fits(const Desc& desc) {
  return place_fits(desc, sdk::attributes<anyhal_attrs_argmax>(desc).axis);
}

void argmax(const Call& call) {
  const int32_t axis = sdk::attributes<anyhal_attrs_argmax>(call.desc()).axis;
  sdk::visit(sdk::NumberTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    find_place<typename decltype(t)::is>(call, static_cast<uint32_t>(axis),
                                         [](auto value, auto best) { return value <= best; });
  });
}

}  // namespace hal::cpu_ref
