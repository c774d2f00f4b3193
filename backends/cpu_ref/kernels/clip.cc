// clip: minimum(maximum(x, min), max); NaN stays, and an absent bound does not apply.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void bound(const Call& call) {
  using C = sdk::Compute<T>;
  const Desc& desc = call.desc();
  // What is absent is walked as x, and not read.
  const bool has_low = !absent(sdk::operand(desc, 1)), has_high = !absent(sdk::operand(desc, 2));
  const uint32_t low = has_low ? 1 : 0, high = has_high ? 2 : 0;
  sdk::Rows<4> rows({&sdk::operand(desc, 0), &sdk::operand(desc, low), &sdk::operand(desc, high),
                     &sdk::operand(desc, 3)});
  rows.each([&](const int64_t (&at)[4]) {
    auto value = [&](int k, uint32_t operand, int64_t i) {
      return static_cast<C>(call.view<const T>(operand).data()[at[k] + i * rows.row_strides[k]]);
    };
    for (int64_t i = 0; i < rows.row_count; ++i) {
      C x = value(0, 0, i);
      if (has_low) {
        const C y = value(1, low, i);
        x = y != y || y > x ? y : x;
      }
      if (has_high) {
        const C y = value(2, high, i);
        x = y != y || y < x ? y : x;
      }
      call.view<T>(3).data()[at[3] + i * rows.row_strides[3]] = sdk::convert<T>(x);
    }
  });
}

}  // namespace

Answer clip_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3, 1);
  if (!count.yes()) return count;
  for (uint32_t i : {1u, 2u}) {
    if (absent(sdk::operand(desc, i))) continue;
    Answer fits = all({dtypes_equal(desc, i, 0), dims_equal(desc, i, 3)});
    if (!fits.yes()) return fits;
  }
  return all({dtypes_equal(desc, 3, 0), dims_equal(desc, 0, 3), output_is_single(desc),
              output_may_alias(desc, {0, 1, 2})});
}

void clip(const Call& call) {
  sdk::visit(sdk::NumberTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { bound<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
