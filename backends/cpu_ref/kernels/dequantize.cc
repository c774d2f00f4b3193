// dequantize: (q - zero_point) * scale, in f64 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "groups.h"

namespace hal::cpu_ref {
namespace {

double code_at(uint32_t dtype, const char* data, int64_t at) {
  if (is_packed(dtype) || sdk::kF8.has(dtype)) return small_at(dtype, data, at);
  return static_cast<double>(integer_at(dtype, data, at));
}

}  // namespace

Answer dequantize_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3, 2);
  if (!count.yes()) return count;
  const bool zero = !absent(sdk::operand(desc, 2));
  if (zero && sdk::kF8.has(sdk::operand(desc, 0).dtype))
    return sdk::invalid("8-bit floats have no zero point", 2);
  const bool wide = sdk::operand(desc, 1).dtype == ANYHAL_DTYPE_F64;
  return all({dtype_in(desc, 1, sdk::kFloats),
              dtype_in(desc, 3, wide ? sdk::dtypes(ANYHAL_DTYPE_F64) : sdk::kSmallFloats),
              groups_fit(desc, sdk::attributes<anyhal_attrs_dequantize>(desc).block_size)});
}

void dequantize(const Call& call) {
  const Tensor& q = sdk::operand(call.desc(), 0);
  const Tensor& scale = sdk::operand(call.desc(), 1);
  const Tensor& zero = sdk::operand(call.desc(), 2);
  const Tensor& out = sdk::operand(call.desc(), 3);
  const bool shifts = !absent(zero);
  each_scaled(call, sdk::attributes<anyhal_attrs_dequantize>(call.desc()).block_size,
              [&](int64_t i, int64_t s, int64_t z, int64_t o) {
                double code = code_at(q.dtype, call.data(0), i);
                if (shifts) code -= static_cast<double>(integer_at(zero.dtype, call.data(2), z));
                put_float(out.dtype, call.data(3), o,
                          code * float_at(scale.dtype, call.data(1), s));
              });
}

}  // namespace hal::cpu_ref
