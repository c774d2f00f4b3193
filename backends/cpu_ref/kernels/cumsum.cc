// cumsum: running sums along one axis; floats in f64 or longer, integers in 64 bits that wrap.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class T, class Out, class Sum>
void run(const Call& call) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  const auto attrs = sdk::attributes<anyhal_attrs_cumsum>(call.desc());
  const uint32_t axis = static_cast<uint32_t>(attrs.axis);
  const int64_t size = x.dims[axis];
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (d != axis) walk.add(x.dims[d], {x.strides[d], out.strides[d]});
  }
  if (walk.empty()) return;
  do {
    const T* from = call.view<const T>(0).data() + walk.at(0);
    Out* to = call.view<Out>(1).data() + walk.at(1);
    Sum sum = 0;
    for (int64_t n = 0; n < size; ++n) {
      const int64_t i = attrs.reverse != 0 ? size - 1 - n : n;
      const Sum before = sum;
      sum += static_cast<Sum>(static_cast<sdk::Compute<T>>(from[i * x.strides[axis]]));
      const Sum value = attrs.exclusive != 0 ? before : sum;
      if constexpr (sdk::kIsFloat<T>) {
        to[i * out.strides[axis]] = sdk::convert<Out>(static_cast<double>(value));
      } else {
        to[i * out.strides[axis]] = static_cast<Out>(value);
      }
    }
  } while (walk.next());
}

}  // namespace

Answer cumsum_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const auto attrs = sdk::attributes<anyhal_attrs_cumsum>(desc);
  const bool floats = sdk::kFloats.has(sdk::operand(desc, 0).dtype);
  return all({axis_in(attrs.axis, sdk::operand(desc, 0).rank),
              floats ? dtypes_equal(desc, 1, 0) : dtype_in(desc, 1, sdk::kInts),
              dims_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {})});
}

void cumsum(const Call& call) {
  const uint32_t from = sdk::operand(call.desc(), 0).dtype;
  const uint32_t to = sdk::operand(call.desc(), 1).dtype;
  sdk::visit(sdk::FloatTypes{}, from, [&](auto t) {
    using T = typename decltype(t)::is;
    run<T, T, std::conditional_t<std::is_same_v<T, double>, long double, double>>(call);
  });
  sdk::visit(sdk::IntTypes{}, from, [&](auto t) {
    sdk::visit(sdk::IntTypes{}, to, [&](auto o) {
      run<typename decltype(t)::is, typename decltype(o)::is, uint64_t>(call);
    });
  });
}

}  // namespace hal::cpu_ref
