// matmul: a[..., M, K] x b[..., K, N] -> out[..., M, N]; transposes and broadcasts are strides.
// SPDX-License-Identifier: Apache-2.0
#include "product.h"

namespace hal::cpu_ref {
namespace {

// Floats are summed in f64. Integers are summed as unsigned numbers, which wrap as asked.
template <class T, class Out, class Acc>
void multiply(const Call& call) {
  const Tensor& out = sdk::operand(call.desc(), 2);
  Out* data = call.view<Out>(2).data();
  const int64_t column = sdk::stride(out, -1);
  rows_of_product<Acc, T, 1>(call, {&out}, [&](Acc sum, const int64_t (&at)[1], int64_t n) {
    if constexpr (sdk::kIsFloat<T>) {
      data[at[0] + n * column] = sdk::convert<Out>(sum);
    } else {
      data[at[0] + n * column] = static_cast<Out>(sum);
    }
  });
}

sdk::Dtypes outputs_of(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F16:
    case ANYHAL_DTYPE_BF16:
      return sdk::dtypes(dtype, ANYHAL_DTYPE_F32);
    case ANYHAL_DTYPE_I8:
    case ANYHAL_DTYPE_U8:
      return sdk::dtypes(ANYHAL_DTYPE_I32);
    default:
      return sdk::dtypes(dtype);
  }
}

}  // namespace

Answer matmul_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  return all({dtypes_equal(desc, 1, 0), dtype_in(desc, 2, outputs_of(sdk::operand(desc, 0).dtype)),
              product_dims_fit(desc), output_is_single(desc), output_may_alias(desc, {})});
}

void matmul(const Call& call) {
  const bool to_f32 = sdk::operand(call.desc(), 2).dtype == ANYHAL_DTYPE_F32;
  switch (sdk::operand(call.desc(), 0).dtype) {
    case ANYHAL_DTYPE_F32:
      return multiply<float, float, double>(call);
    case ANYHAL_DTYPE_F64:
      return multiply<double, double, double>(call);
    case ANYHAL_DTYPE_F16:
      return to_f32 ? multiply<sdk::f16, float, double>(call)
                    : multiply<sdk::f16, sdk::f16, double>(call);
    case ANYHAL_DTYPE_BF16:
      return to_f32 ? multiply<sdk::bf16, float, double>(call)
                    : multiply<sdk::bf16, sdk::bf16, double>(call);
    case ANYHAL_DTYPE_I8:
      return multiply<int8_t, int32_t, uint32_t>(call);
    case ANYHAL_DTYPE_U8:
      return multiply<uint8_t, int32_t, uint32_t>(call);
    case ANYHAL_DTYPE_I32:
      return multiply<int32_t, int32_t, uint32_t>(call);
    case ANYHAL_DTYPE_I64:
      return multiply<int64_t, int64_t, uint64_t>(call);
  }
}

}  // namespace hal::cpu_ref
