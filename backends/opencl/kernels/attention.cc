// attention: softmax(scale * q k^T + mask) v over the visible keys, grouped heads.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

enum Operand : uint32_t { kQ, kK, kV, kLength, kMask, kSinks, kOut, kLse };
constexpr int64_t kWidthMax = 1024;  // what a group keeps of a row of v

// Twin of Attention in attention.cl.
struct Attention {
  int64_t heads, queries, keys, depth, width, group;
  int64_t q[4], k[4], v[4], out[4], mask[4], lse[3];
  int64_t length, sink;
  uint64_t window;
  float scale, softcap;
  int32_t causal, padding;
};

Answer dims_fit(const Desc& desc) {
  const int64_t* q = sdk::operand(desc, kQ).dims;
  const int64_t* k = sdk::operand(desc, kK).dims;
  const int64_t* v = sdk::operand(desc, kV).dims;
  const int64_t* out = sdk::operand(desc, kOut).dims;
  if (k[0] != q[0] || v[0] != q[0] || v[1] != k[1] || v[2] != k[2] || k[3] != q[3] ||
      (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) || out[0] != q[0] || out[1] != q[1] ||
      out[2] != q[2] || out[3] != v[3])
    return sdk::invalid("q, k, v and out must be [B,H,T,D], [B,G,S,D], [B,G,S,E] and [B,H,T,E]");
  if (v[3] > kWidthMax) return sdk::no(ANYHAL_REASON_SHAPE_LIMIT, "v is wider than 1024", kV);
  return sdk::yes();
}

Answer length_fits(const Desc& desc) {
  const Tensor& length = sdk::operand(desc, kLength);
  if (absent(length)) return sdk::yes();
  if (length.rank > 1 || (length.rank == 1 && length.dims[0] != sdk::operand(desc, kQ).dims[0]))
    return sdk::invalid("kv_length must be one number or one for each batch entry", kLength);
  return dtype_in(desc, kLength, sdk::kIndices);
}

Answer mask_fits(const Desc& desc) {
  const Tensor &mask = sdk::operand(desc, kMask), &q = sdk::operand(desc, kQ);
  if (absent(mask)) return sdk::yes();
  Answer fits =
      all({rank_is(desc, kMask, 4), dtype_in(desc, kMask, sdk::kBool | sdk::dtypes(q.dtype))});
  if (!fits.yes()) return fits;
  for (uint32_t d = 0; d < 4; ++d)
    if (mask.dims[d] != (d < 3 ? q.dims[d] : sdk::operand(desc, kK).dims[2]))
      return sdk::invalid("the mask must be [B,H,T,S], broadcast by strides of 0", kMask);
  return sdk::yes();
}

Answer rest_fits(const Desc& desc) {
  const Tensor &q = sdk::operand(desc, kQ), &sinks = sdk::operand(desc, kSinks);
  if (!absent(sinks) && (sinks.rank != 1 || sinks.dims[0] != q.dims[1] || sinks.dtype != q.dtype))
    return sdk::invalid("the sinks must be [H] in q's dtype", kSinks);
  const Tensor& lse = sdk::operand(desc, kLse);
  if (absent(lse)) return sdk::yes();
  const uint32_t wide = q.dtype == ANYHAL_DTYPE_F64 ? ANYHAL_DTYPE_F64 : ANYHAL_DTYPE_F32;
  if (lse.rank != 3 || lse.dims[0] != q.dims[0] || lse.dims[1] != q.dims[1] ||
      lse.dims[2] != q.dims[2] || lse.dtype != wide)
    return sdk::invalid("the log-sum-exp must be [B,H,T] in f32, or f64 for f64", kLse);
  return sdk::yes();
}

// Strides of an operand, zeros for an absent one.
void take_strides(const Builder& builder, uint32_t i, int64_t* to, uint32_t rank) {
  for (uint32_t d = 0; d < rank; ++d)
    to[d] = builder.present(i) ? builder.operand(i).strides[d] : 0;
}

Attention numbers_of(const Builder& builder) {
  const Tensor &q = builder.operand(kQ), &k = builder.operand(kK);
  const auto attributes = sdk::attributes<anyhal_attrs_attention>(builder.desc());
  Attention a = {};
  a.heads = q.dims[1], a.queries = q.dims[2], a.keys = k.dims[2];
  a.depth = q.dims[3], a.width = builder.operand(kV).dims[3];
  a.group = k.dims[1] == 0 ? 1 : q.dims[1] / k.dims[1];
  take_strides(builder, kQ, a.q, 4);
  take_strides(builder, kK, a.k, 4);
  take_strides(builder, kV, a.v, 4);
  take_strides(builder, kOut, a.out, 4);
  take_strides(builder, kMask, a.mask, 4);
  take_strides(builder, kLse, a.lse, 3);
  if (builder.present(kLength) && builder.operand(kLength).rank == 1)
    a.length = builder.operand(kLength).strides[0];
  if (builder.present(kSinks)) a.sink = builder.operand(kSinks).strides[0];
  a.window = attributes.window;
  a.scale = attributes.scale, a.softcap = attributes.softcap, a.causal = attributes.causal;
  return a;
}

}  // namespace

Answer attention_fits(const Desc& desc) {
  Answer count = operands_are(desc, 6, 3, 2);
  if (!count.yes()) return count;
  for (uint32_t i : {kQ, kK, kV, kOut}) {
    Answer rank = all({rank_is(desc, i, 4), dtypes_equal(desc, i, kQ)});
    if (!rank.yes()) return rank;
  }
  return all(
      {dims_fit(desc), length_fits(desc), mask_fits(desc), rest_fits(desc),
       choice_in(sdk::attributes<anyhal_attrs_attention>(desc).causal, ANYHAL_CAUSAL_LAST_KEY),
       output_is_single(desc), output_may_alias(desc, {})});
}

void attention_plan(Builder& builder) {
  const Tensor& q = builder.operand(kQ);
  const Attention numbers = numbers_of(builder);
  if (builder.present(kLength)) builder.check_indices(kLength, numbers.keys + 1);
  if (q.dims[0] == 0 || q.dims[1] == 0 || q.dims[2] == 0) return;
  const size_t group = builder.group(64);
  Options options;
  options.dtype("X", q).set("GROUP", static_cast<int64_t>(group));
  const int64_t widths =
      (numbers.width + static_cast<int64_t>(group) - 1) / static_cast<int64_t>(group);
  options.set("WIDTHS", widths > 0 ? widths : 1);
  if (builder.present(kLength)) options.dtype("INDEX", builder.operand(kLength));
  if (builder.present(kMask)) options.dtype("MASK", builder.operand(kMask));
  if (builder.present(kMask) && builder.operand(kMask).dtype == ANYHAL_DTYPE_BOOL)
    options.set("TRUTHS");
  if (builder.present(kSinks)) options.set("SINKS");
  if (builder.present(kLse)) options.dtype("LSE", builder.operand(kLse));
  LaunchBuilder launch = builder.launch(kAttentionSource, "attention", options);
  launch.operand(kQ).operand(kK).operand(kV).operand(kOut);
  if (builder.present(kLength)) launch.operand(kLength).fault();
  for (uint32_t i : {kMask, kSinks, kLse})
    if (builder.present(i)) launch.operand(i);
  launch.value(numbers).run({static_cast<size_t>(q.dims[2]), static_cast<size_t>(q.dims[1]),
                             static_cast<size_t>(q.dims[0])},
                            {group, 1, 1});
}

}  // namespace hal::opencl
