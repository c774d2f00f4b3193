// one_hot: off_value everywhere, on_value where the new axis counts the index.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void spread(const Call& call, uint32_t axis, float on_value, float off_value) {
  const Tensor& indices = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  const T on = sdk::convert<T>(static_cast<double>(on_value));
  const T off = sdk::convert<T>(static_cast<double>(off_value));
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d < indices.rank; ++d)
    walk.add(indices.dims[d], {indices.strides[d], out.strides[d < axis ? d : d + 1]});
  if (walk.empty()) return;
  do {
    const int64_t index = index_at(indices, call.data(0), walk.at(0));
    T* to = call.view<T>(1).data() + walk.at(1);
    for (int64_t i = 0; i < out.dims[axis]; ++i) to[i * out.strides[axis]] = i == index ? on : off;
  } while (walk.next());
}

}  // namespace

Answer one_hot_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const Tensor& indices = sdk::operand(desc, 0);
  const Tensor& out = sdk::operand(desc, 1);
  const int32_t axis = sdk::attributes<anyhal_attrs_one_hot>(desc).axis;
  Answer ranks = all({rank_is(desc, 1, indices.rank + 1), axis_in(axis, out.rank)});
  if (!ranks.yes()) return ranks;
  for (uint32_t d = 0; d < indices.rank; ++d) {
    if (indices.dims[d] != out.dims[d < static_cast<uint32_t>(axis) ? d : d + 1])
      return sdk::invalid("the output's dims do not fit", 1);
  }
  return all({dtype_in(desc, 1, sdk::kPlain), output_is_single(desc), output_may_alias(desc, {})});
}

void one_hot(const Call& call) {
  auto attributes = sdk::attributes<anyhal_attrs_one_hot>(call.desc());
  const Tensor& out = sdk::operand(call.desc(), 1);
  const uint32_t axis = static_cast<uint32_t>(attributes.axis);
  check_indices(sdk::operand(call.desc(), 0), call.data(0), out.dims[axis]);
  sdk::visit(sdk::PlainTypes{}, out.dtype, [&](auto t) {
    spread<typename decltype(t)::is>(call, axis, attributes.on_value, attributes.off_value);
  });
}

}  // namespace hal::cpu_ref
