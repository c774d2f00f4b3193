// quant_matmul: x[..., M, K] x decode(w[N, K])^T with an epilogue. x is never rounded.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

enum Operand : uint32_t { kX, kW, kBias, kMultiplier, kResidual, kOut };
constexpr size_t kLanes = 32;    // items that share a column
constexpr size_t kColumns = 16;  // of a group, where each item has its own

// Twin of QuantProduct in quant_matmul.cl.
struct QuantProduct {
  int64_t m, n, k;
  int64_t x, out, bias, multiplier, residual;
  int64_t w_row;
  float scale;
  int32_t padding;
};

const char* const kActivations[] = {"",          "none", "relu",    "gelu",
                                    "gelu_tanh", "silu", "sigmoid", "tanh"};

Answer extra_fits(const Desc& desc, uint32_t i, const sdk::Dtypes& allowed) {
  const Tensor &extra = sdk::operand(desc, i), &out = sdk::output(desc);
  if (absent(extra)) return sdk::yes();
  const bool same = i == kBias ? extra.rank == 1 && extra.dims[0] == sdk::dim(out, -1)
                               : sdk::same_dims(extra, out);
  if (!same) return sdk::invalid("its dims do not fit the output", static_cast<int32_t>(i));
  return dtype_in(desc, i, allowed);
}

}  // namespace

Answer quant_matmul_fits(const Desc& desc) {
  Answer count = operands_are(desc, 5, 2);
  if (!count.yes()) return count;
  const Tensor &x = sdk::operand(desc, kX), &w = sdk::operand(desc, kW), &out = sdk::output(desc);
  bool fits = x.rank >= 2 && w.rank == 2 && out.rank == x.rank && w.dims[1] == sdk::dim(x, -1) &&
              w.dims[0] == sdk::dim(out, -1);
  for (uint32_t d = 0; fits && d + 1 < x.rank; ++d) fits = x.dims[d] == out.dims[d];
  if (!fits) return sdk::invalid("x must be [..., M, K], w [N, K] and out [..., M, N]");
  sdk::Dtypes allowed = sdk::dtypes(x.dtype);
  if (sdk::kHalves.has(x.dtype)) allowed = allowed | sdk::dtypes(ANYHAL_DTYPE_F32);
  return all({dtype_in(desc, kW, sdk::kBlocks), extra_fits(desc, kBias, allowed),
              extra_fits(desc, kMultiplier, allowed), extra_fits(desc, kResidual, allowed),
              choice_in(sdk::attributes<anyhal_attrs_quant_matmul>(desc).activation,
                        ANYHAL_ACTIVATION_TANH),
              dtype_in(desc, kOut, allowed), output_is_single(desc),
              output_may_alias(desc, {kMultiplier, kResidual})});
}

void quant_matmul_plan(Builder& builder) {
  const Tensor &x = builder.operand(kX), &w = builder.operand(kW), &out = builder.operand(kOut);
  const Tensor &multiplier = builder.operand(kMultiplier), &residual = builder.operand(kResidual);
  const auto attributes = sdk::attributes<anyhal_attrs_quant_matmul>(builder.desc());
  const auto step = [&](uint32_t i, int d) {
    return builder.present(i) ? sdk::stride(builder.operand(i), d) : 0;
  };
  Walk rows;
  for (uint32_t d = 0; d + 1 < x.rank; ++d)
    rows.add(x.dims[d],
             {x.strides[d], out.strides[d], absent(multiplier) ? 0 : multiplier.strides[d],
              absent(residual) ? 0 : residual.strides[d]});
  const sdk::DtypeFacts block = sdk::dtype_facts(w.dtype);
  const QuantProduct p = {rows.count(),
                          w.dims[0],
                          w.dims[1],
                          sdk::stride(x, -1),
                          sdk::stride(out, -1),
                          step(kBias, -1),
                          step(kMultiplier, -1),
                          step(kResidual, -1),
                          w.strides[0] * block.block_bytes,
                          attributes.scale,
                          0};
  if (p.m == 0 || p.n == 0) return;
  const int64_t at_once = p.m >= 8 ? 8 : p.m >= 4 ? 4 : 1;
  Options options;
  options.dtype("X", x).dtype("Y", out).set("DECODED", "float").set("ROWS", at_once);
  options.set("DECODE", std::string("decode_") + token(w.dtype))
      .set("BLOCK_ELEMENTS", block.block_elements)
      .set("BLOCK_BYTES", block.block_bytes)
      .set("ACTIVATION", std::string("act_") + kActivations[attributes.activation]);
  if (builder.present(kBias)) options.dtype("BIAS", builder.operand(kBias));
  if (builder.present(kMultiplier)) options.dtype("MULTIPLIER", multiplier);
  if (builder.present(kResidual)) options.dtype("RESIDUAL", residual);
  const bool by_row = (builder.facts().type & kDeviceTypeCpu) != 0;
  if (by_row) options.set("BY_ROW");
  if (p.x == 1) options.set("X_DENSE");
  LaunchBuilder launch =
      builder.launch(std::string(kBlocksSource) + kQuantMatmulSource, "quant_matmul", options);
  launch.operand(kX).operand(kW).operand(kOut);
  for (uint32_t i : {kBias, kMultiplier, kResidual})
    if (builder.present(i)) launch.operand(i);
  launch.walk(rows).value(p);
  const size_t n = static_cast<size_t>(p.n);
  const size_t m = static_cast<size_t>((p.m + at_once - 1) / at_once);
  if (by_row) {
    launch.run({(n + kColumns - 1) / kColumns, m}, {kColumns, 1});
  } else {
    launch.run({n, m}, {kLanes, 1});
  }
}

}  // namespace hal::opencl
