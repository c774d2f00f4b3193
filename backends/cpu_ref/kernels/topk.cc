// topk: the k largest or smallest elements along one axis in order, and where they stood.
// SPDX-License-Identifier: Apache-2.0
#include "order.h"

namespace hal::cpu_ref {

Answer topk_fits(const Desc& desc) {
  const auto attrs = sdk::attributes<anyhal_attrs_topk>(desc);
  if (attrs.k > INT64_MAX) return sdk::invalid("k is larger than the axis", 0);
  return order_fits(desc, attrs.axis, static_cast<int64_t>(attrs.k));
}

uint64_t topk_workspace(const Desc& desc) {
  return order_workspace(desc, sdk::attributes<anyhal_attrs_topk>(desc).axis);
}

void topk(const Call& call) {
  const auto attrs = sdk::attributes<anyhal_attrs_topk>(call.desc());
  sdk::visit(sdk::NumberTypes{}, sdk::operand(call.desc(), 0).dtype, [&](auto t) {
    order_axis<typename decltype(t)::is>(call, static_cast<uint32_t>(attrs.axis),
                                         attrs.largest != 0);
  });
}

}  // namespace hal::cpu_ref
