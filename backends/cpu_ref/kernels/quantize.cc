// quantize: saturate(round(x / scale) + zero_point); the quotient is rounded once to f32 or f64.
// SPDX-License-Identifier: Apache-2.0
#include "groups.h"

namespace hal::cpu_ref {
namespace {

void put_code(uint32_t dtype, char* data, int64_t at, double value) {
  if (is_packed(dtype) || sdk::kF8.has(dtype)) return put_small(dtype, data, at, value, true);
  sdk::visit(sdk::IntTypes{}, dtype, [&](auto t) {
    using T = typename decltype(t)::is;
    reinterpret_cast<T*>(data)[at] = sdk::convert<T>(value);
  });
}

}  // namespace

Answer quantize_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3, 2);
  if (!count.yes()) return count;
  const uint32_t x = sdk::operand(desc, 0).dtype, out = sdk::operand(desc, 3).dtype;
  const bool zero = !absent(sdk::operand(desc, 2));
  if (zero && sdk::kF8.has(out)) return sdk::invalid("8-bit floats have no zero point", 2);
  const uint32_t computed =
      x == ANYHAL_DTYPE_F64 ? uint32_t{ANYHAL_DTYPE_F64} : uint32_t{ANYHAL_DTYPE_F32};
  return all({dtype_in(desc, 1, sdk::dtypes(x, computed)), dtype_in(desc, 3, kQuantised),
              groups_fit(desc, sdk::attributes<anyhal_attrs_quantize>(desc).block_size)});
}

void quantize(const Call& call) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& scale = sdk::operand(call.desc(), 1);
  const Tensor& zero = sdk::operand(call.desc(), 2);
  const Tensor& out = sdk::operand(call.desc(), 3);
  const bool rounds = !sdk::kF8.has(out.dtype), shifts = !absent(zero);
  each_scaled(call, sdk::attributes<anyhal_attrs_quantize>(call.desc()).block_size,
              [&](int64_t i, int64_t s, int64_t z, int64_t o) {
                const double value = float_at(x.dtype, call.data(0), i);
                const double by = float_at(scale.dtype, call.data(1), s);
                double code =
                    x.dtype == ANYHAL_DTYPE_F64
                        ? value / by
                        : static_cast<double>(static_cast<float>(value) / static_cast<float>(by));
                if (rounds) code = std::nearbyint(code);
                if (shifts) code += static_cast<double>(integer_at(zero.dtype, call.data(2), z));
                put_code(out.dtype, call.data(3), o, code);
              });
}

}  // namespace hal::cpu_ref
