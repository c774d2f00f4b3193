// matmul: a[..., M, K] x b[..., K, N] -> out[..., M, N]; transposes and broadcasts are strides.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

constexpr int64_t kFewRows = 4;  // with fewer, most of a tile would be empty

// Twin of Product in matmul.cl.
struct Product {
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column, out_row, out_column;
};

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

const char* sum_of(uint32_t dtype) {
  if (dtype == ANYHAL_DTYPE_F64) return "double";
  if (sdk::kFloats.has(dtype)) return "float";
  return dtype == ANYHAL_DTYPE_I64 ? "ulong" : "uint";
}

}  // namespace

Answer matmul_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  return all({dtypes_equal(desc, 1, 0), dtype_in(desc, 2, outputs_of(sdk::operand(desc, 0).dtype)),
              product_dims_fit(desc), output_is_single(desc), output_may_alias(desc, {})});
}

void matmul_plan(Builder& builder) {
  const Tensor &a = builder.operand(0), &b = builder.operand(1), &out = builder.operand(2);
  Walk batch;
  for (uint32_t d = 0; d + 2 < out.rank; ++d)
    batch.add(out.dims[d], {a.strides[d], b.strides[d], out.strides[d]});
  const Product p = {sdk::dim(out, -2),  sdk::dim(out, -1),    sdk::dim(a, -1),
                     sdk::stride(a, -2), sdk::stride(a, -1),   sdk::stride(b, -2),
                     sdk::stride(b, -1), sdk::stride(out, -2), sdk::stride(out, -1)};
  if (batch.count() == 0 || p.m == 0 || p.n == 0) return;
  const size_t tile = builder.facts().group_size >= 256 ? 16 : 8;
  const bool tiled = p.m >= kFewRows && builder.facts().group_size >= tile * tile;
  Options options;
  options.dtype("X", a).dtype("Y", out).set("SUM", sum_of(a.dtype));
  options.set("TILE", static_cast<int64_t>(tile));
  if (sdk::kFloats.has(a.dtype)) options.set("FLOATS");
  LaunchBuilder launch =
      builder.launch(kMatmulSource, tiled ? "matmul_tile" : "matmul_item", options);
  launch.operand(0).operand(1).operand(2).walk(batch).value(p);
  const size_t m = static_cast<size_t>(p.m), n = static_cast<size_t>(p.n);
  const size_t z = static_cast<size_t>(batch.count()), group = builder.group(64);
  if (tiled) {
    launch.run({(n + tile - 1) / tile, (m + tile - 1) / tile, z}, {tile, tile, 1});
  } else {
    launch.run({(n + group - 1) / group, m, z}, {group, 1, 1});
  }
}

}  // namespace hal::opencl
