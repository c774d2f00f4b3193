// sort: the elements along one axis in order, and where they stood.
// SPDX-License-Identifier: Apache-2.0
#include "order.h"

namespace hal::cpu_ref {

Answer sort_fits(const Desc& desc) {
  return order_fits(desc, sdk::attributes<anyhal_attrs_sort>(desc).axis, -1);
}

uint64_t sort_workspace(const Desc& desc) {
  return order_workspace(desc, sdk::attributes<anyhal_attrs_sort>(desc).axis);
}

void sort(const Call& call) {
  const auto attrs = sdk::attributes<anyhal_attrs_sort>(call.desc());
  sdk::visit(sdk::NumberTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    order_axis<typename decltype(t)::is>(call, static_cast<uint32_t>(attrs.axis),
                                         attrs.descending != 0);
  });
}

}  // namespace hal::cpu_ref
