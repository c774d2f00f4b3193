// What each op's description must look like before a kernel may be prepared for it.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

#include "anyhal/sdk/exact.hpp"
#include "checks.h"
#include "conditions_training.h"

namespace hal::cpu {
namespace {

using sdk::known_attributes;
using sdk::no_attributes;

Answer copy(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  return a.yes() ? all(dims_equal(d, 0, 1), same_dtype(d, 0, 1), in_place(d, 1)) : a;
}

Answer fill(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  if (!a.yes()) return a;
  return all(mistake_unless(operand(d, 0).rank == 0, "the value must be 0-d", 0),
             same_dtype(d, 0, 1), in_place(d, 0));
}

Answer cast(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  if (!a.yes()) return a;
  bool block = sdk::kBlocks.has(operand(d, 0).dtype);
  uint32_t out = output(d).dtype;
  int32_t overflow = sdk::attributes<anyhal_attrs_cast>(d).overflow;
  bool stated = overflow == ANYHAL_OVERFLOW_SATURATE || overflow == ANYHAL_OVERFLOW_NONFINITE;
  bool unstated = overflow == 0 || overflow == ANYHAL_OVERFLOW_UNSTATED;
  return all(dims_equal(d, 0, 1),
             require(block ? kFloats.has(out) : (kStored | sdk::kPacked).has(out),
                     ANYHAL_REASON_DTYPE, "no cast to that dtype", 1),
             require(sdk::kF8.has(out) ? stated : unstated, ANYHAL_REASON_ATTRIBUTE,
                     "overflow must be stated for 8-bit floats alone", -1),
             in_place(d, 0));
}

Answer unary(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  if (!a.yes()) return a;
  int32_t fn = sdk::attributes<anyhal_attrs_unary>(d).fn;
  bool test = (fn >= ANYHAL_UNARY_FN_ISNAN && fn <= ANYHAL_UNARY_FN_ISFINITE) ||
              fn == ANYHAL_UNARY_FN_SIGNBIT;
  uint32_t wanted = test ? uint32_t{ANYHAL_DTYPE_BOOL} : operand(d, 0).dtype;
  return all(
      dims_equal(d, 0, 1),
      require(output(d).dtype == wanted, ANYHAL_REASON_DTYPE, "the output's dtype is wrong", 1),
      in_place(d, 1));
}

Answer binary(const Desc& d) {
  Answer a = shape_of_call(d, 3, 3);
  if (!a.yes()) return a;
  int32_t fn = sdk::attributes<anyhal_attrs_binary>(d).fn;
  bool test = fn >= ANYHAL_BINARY_FN_EQUAL && fn <= ANYHAL_BINARY_FN_GREATER_EQUAL;
  uint32_t wanted = test ? uint32_t{ANYHAL_DTYPE_BOOL} : operand(d, 0).dtype;
  return all(
      dims_equal(d, 0, 2), dims_equal(d, 1, 2), same_dtype(d, 0, 1),
      require(output(d).dtype == wanted, ANYHAL_REASON_DTYPE, "the output's dtype is wrong", 2),
      in_place(d, 2));
}

Answer where(const Desc& d) {
  Answer a = shape_of_call(d, 4, 4);
  if (!a.yes()) return a;
  return all(require(operand(d, 0).dtype == ANYHAL_DTYPE_BOOL, ANYHAL_REASON_DTYPE,
                     "the condition must be bool", 0),
             dims_equal(d, 0, 3), dims_equal(d, 1, 3), dims_equal(d, 2, 3), same_dtype(d, 1, 2),
             same_dtype(d, 1, 3), in_place(d, 3));
}

Answer reduce(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  if (!a.yes()) return a;
  const Description &x = operand(d, 0), &out = output(d);
  uint64_t axes = sdk::attributes<anyhal_attrs_reduce>(d).axes;
  if (x.rank != out.rank || axes >> x.rank != 0)
    return invalid("the output has x's rank, with size 1 on the reduced axes", 1);
  for (uint32_t i = 0; i < x.rank; ++i) {
    if (out.dims[i] != ((axes >> i & 1) != 0 ? 1 : x.dims[i]))
      return invalid("the output has x's dims, with size 1 on the reduced axes", 1);
  }
  return in_place(d, 0);
}

// The dims of a batched product, and dtypes of operands beside it.
Answer product(const Desc& d) {
  const Description &a = operand(d, 0), &b = operand(d, 1), &out = output(d);
  if (a.rank < 2 || a.rank != b.rank || a.rank != out.rank)
    return invalid("a, b and the output need one rank, at least 2");
  bool fits = dim(a, -1) == dim(b, -2) && dim(a, -2) == dim(out, -2) && dim(b, -1) == dim(out, -1);
  for (uint32_t i = 0; i + 2 < out.rank; ++i)
    fits = fits && a.dims[i] == out.dims[i] && b.dims[i] == out.dims[i];
  return mistake_unless(fits, "the dims do not fit [...,M,K] x [...,K,N] -> [...,M,N]", -1);
}

Answer product_dtype(const Desc& d) {
  uint32_t in = operand(d, 0).dtype, out = output(d).dtype;
  bool half = in == ANYHAL_DTYPE_F16 || in == ANYHAL_DTYPE_BF16;
  bool narrow = in == ANYHAL_DTYPE_I8 || in == ANYHAL_DTYPE_U8;
  bool fits = narrow ? out == ANYHAL_DTYPE_I32 : out == in || (half && out == ANYHAL_DTYPE_F32);
  return require(fits, ANYHAL_REASON_DTYPE, "no product with that output dtype",
                 int32_t(d.input_count));
}

Answer matmul(const Desc& d) {
  Answer a = shape_of_call(d, 3, 3);
  return a.yes() ? all(same_dtype(d, 0, 1), product(d), product_dtype(d), in_place(d, 0)) : a;
}

// bias [N], multiplier and residual with the output's dims.
Answer side_operands(const Desc& d) {
  const Description& out = output(d);
  for (uint32_t i = 2; i < 5; ++i) {
    const Description& t = operand(d, i);
    if (absent(t)) continue;
    if (!kComputed.has(t.dtype))
      return no(ANYHAL_REASON_DTYPE, "this operand must be f32, f16 or bf16", int32_t(i));
    bool fits = i == 2 ? t.rank == 1 && t.dims[0] == dim(out, -1) : same_dims(t, out);
    if (!fits) return invalid("the dims of this operand do not fit the output", int32_t(i));
  }
  return yes();
}

Answer activation(const Desc& d) {
  int32_t a = sdk::attributes<anyhal_attrs_matmul_epilogue>(d).activation;
  return require(a >= ANYHAL_ACTIVATION_NONE && a <= ANYHAL_ACTIVATION_TANH,
                 ANYHAL_REASON_ATTRIBUTE, "an unknown activation", -1);
}

Answer matmul_epilogue(const Desc& d) {
  Answer a = shape_of_call(d, 6, 2);
  if (!a.yes()) return a;
  a = all(same_dtype(d, 0, 1), product(d), product_dtype(d));
  return a.yes() ? all(side_operands(d), activation(d), in_place(d, 0)) : a;
}

Answer quant_matmul(const Desc& d) {
  Answer a = shape_of_call(d, 6, 2);
  if (!a.yes()) return a;
  const Description &x = operand(d, 0), &w = operand(d, 1), &out = output(d);
  if (!kBlocks.has(w.dtype)) return no(ANYHAL_REASON_DTYPE, "the weights must be q4_1 or q8_0", 1);
  bool fits = x.rank >= 1 && w.rank == 2 && out.rank == x.rank && dim(x, -1) == dim(w, -1) &&
              dim(out, -1) == dim(w, -2);
  for (uint32_t i = 0; fits && i + 1 < out.rank; ++i) fits = x.dims[i] == out.dims[i];
  if (!fits) return invalid("the dims do not fit [...,M,K] x [N,K] -> [...,M,N]");
  return all(product_dtype(d), side_operands(d), activation(d), in_place(d, 0));
}

Answer gather(const Desc& d) {
  Answer a = shape_of_call(d, 3, 3);
  if (!a.yes()) return a;
  const Description &x = operand(d, 0), &indices = operand(d, 1), &out = output(d);
  int32_t axis = sdk::attributes<anyhal_attrs_gather>(d).axis;
  if (!is_axis(axis, x)) return invalid(kBadAxis);
  if (out.rank + 1 != x.rank + indices.rank) return invalid("the output's rank is wrong", 2);
  if (sdk::dtype_facts(x.dtype).block_elements > 1 && axis + 1 == int32_t(x.rank))
    return no(ANYHAL_REASON_LAYOUT, "blocks cannot be cut along their own dim", 0);
  for (uint32_t i = 0; i < out.rank; ++i) {
    uint32_t at = uint32_t(axis);
    int64_t wanted = i < at                  ? x.dims[i]
                     : i < at + indices.rank ? indices.dims[i - at]
                                             : x.dims[i + 1 - indices.rank];
    if (out.dims[i] != wanted) return invalid("the output's dims are wrong", 2);
  }
  return all(require(is_index(indices), ANYHAL_REASON_DTYPE, "indices must be i64 or i32", 1),
             same_dtype(d, 0, 2), in_place(d, 0));
}

Answer scatter_add(const Desc& d) {
  Answer a = shape_of_call(d, 4, 4);
  if (!a.yes()) return a;
  const Description &target = operand(d, 0), &indices = operand(d, 1), &updates = operand(d, 2);
  int32_t axis = sdk::attributes<anyhal_attrs_scatter_add>(d).axis;
  if (!is_axis(axis, target)) return invalid(kBadAxis);
  if (updates.rank + 1 != target.rank + indices.rank)
    return invalid("the updates' rank is wrong", 2);
  for (uint32_t i = 0; i < updates.rank; ++i) {
    uint32_t at = uint32_t(axis);
    int64_t wanted = i < at                  ? target.dims[i]
                     : i < at + indices.rank ? indices.dims[i - at]
                                             : target.dims[i + 1 - indices.rank];
    if (updates.dims[i] != wanted) return invalid("the updates' dims are wrong", 2);
  }
  return all(require(is_index(indices), ANYHAL_REASON_DTYPE, "indices must be i64 or i32", 1),
             dims_equal(d, 0, 3), same_dtype(d, 0, 2), same_dtype(d, 0, 3), in_place(d, 1));
}

Answer attention(const Desc& d) {
  if (d.input_count != 6 || d.operand_count != 8) return invalid("the number of operands is wrong");
  for (uint32_t i : {0u, 1u, 2u, 6u})
    if (absent(operand(d, i))) return invalid("a required operand is absent", int32_t(i));
  const auto attrs = sdk::attributes<anyhal_attrs_attention>(d);
  if (attrs.window != 0 || attrs.softcap != 0 || !absent(operand(d, 5)) || !absent(operand(d, 7)))
    return no(ANYHAL_REASON_ATTRIBUTE, "no window, softcap, sinks or log-sum-exp here", -1);
  const Description &q = operand(d, 0), &k = operand(d, 1), &v = operand(d, 2), &out = output(d);
  for (uint32_t i : {0u, 1u, 2u, 6u})
    if (operand(d, i).rank != 4)
      return invalid("q, k, v and the output have four dims", int32_t(i));
  bool fits = k.dims[0] == q.dims[0] && v.dims[0] == q.dims[0] && v.dims[1] == k.dims[1] &&
              v.dims[2] == k.dims[2] && k.dims[3] == q.dims[3] && out.dims[3] == v.dims[3];
  for (int i = 0; i < 3; ++i) fits = fits && out.dims[i] == q.dims[i];
  fits = fits && (k.dims[1] != 0 ? q.dims[1] % k.dims[1] == 0 : q.dims[1] == 0);
  const Description &length = operand(d, 3), &mask = operand(d, 4);
  if (!absent(length)) {
    if (!is_index(length)) return no(ANYHAL_REASON_DTYPE, "kv_length must be i64 or i32", 3);
    fits = fits && (length.rank == 0 || (length.rank == 1 && length.dims[0] == q.dims[0]));
  }
  if (!absent(mask)) {
    if (mask.dtype != ANYHAL_DTYPE_BOOL && mask.dtype != q.dtype)
      return no(ANYHAL_REASON_DTYPE, "the mask must be bool or have q's dtype", 4);
    fits = fits && mask.rank == 4;
    const int64_t full[4] = {q.dims[0], q.dims[1], q.dims[2], k.dims[2]};
    for (int i = 0; fits && i < 4; ++i) fits = mask.dims[i] == full[i] || mask.dims[i] == 1;
  }
  int32_t causal = attrs.causal;
  return all(mistake_unless(fits, "the dims do not fit q[B,H,T,D] k[B,Hkv,S,D] v[B,Hkv,S,Dv]", -1),
             require(causal >= ANYHAL_CAUSAL_NONE && causal <= ANYHAL_CAUSAL_LAST_KEY,
                     ANYHAL_REASON_ATTRIBUTE, "an unknown causal rule", -1),
             same_dtype(d, 0, 1), same_dtype(d, 0, 2), same_dtype(d, 0, 6), in_place(d, 0));
}

Answer rms_norm(const Desc& d) {
  // Without a residual; x + residual is added by the decomposition.
  bool longer = d.input_count == 3 && d.operand_count == 5;
  if (longer && !(absent(operand(d, 2)) && absent(operand(d, 4))))
    return no(ANYHAL_REASON_OP, "no kernel adds a residual here", 2);
  if (longer && (absent(operand(d, 0)) || absent(output(d))))
    return invalid("a required operand is absent");
  Answer a = longer ? yes() : shape_of_call(d, 3, 1);
  if (!a.yes()) return a;
  const Description &x = operand(d, 0), &weight = operand(d, 1);
  if (x.rank == 0) return invalid("x needs a dim", 0);
  if (!absent(weight)) {
    if (weight.rank != 1 || weight.dims[0] != dim(x, -1))
      return invalid("the weight must be [N]", 1);
    if (!kComputed.has(weight.dtype))
      return no(ANYHAL_REASON_DTYPE, "the weight must be f32, f16 or bf16", 1);
  }
  return all(dims_equal(d, 0, d.input_count), same_dtype(d, 0, d.input_count), in_place(d, 1));
}

Answer softmax(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  if (!a.yes()) return a;
  if (!is_axis(sdk::attributes<anyhal_attrs_softmax>(d).axis, operand(d, 0)))
    return invalid(kBadAxis);
  return all(dims_equal(d, 0, 1), same_dtype(d, 0, 1), in_place(d, 1));
}

Answer rope(const Desc& d) {
  Answer a = shape_of_call(d, 4, 2);
  if (!a.yes()) return a;
  const Description &x = operand(d, 0), &positions = operand(d, 1), &factors = operand(d, 2);
  auto attrs = sdk::attributes<anyhal_attrs_rope>(d);
  if (x.rank < 2 || positions.rank > x.rank - 1) return invalid("x must be [...,T,D]", 0);
  int64_t rotary = attrs.rotary_dims == 0 ? dim(x, -1) : attrs.rotary_dims;
  if (rotary < 0 || rotary % 2 != 0 || rotary > dim(x, -1))
    return invalid("rotary_dims must be even and at most D");
  for (uint32_t i = 0; i < positions.rank; ++i) {
    int64_t whole = x.dims[x.rank - 1 - positions.rank + i];
    if (positions.dims[i] != whole && positions.dims[i] != 1)
      return invalid("the positions do not broadcast to [...,T]", 1);
  }
  bool factors_fit = absent(factors) || (factors.dtype == ANYHAL_DTYPE_F32 && factors.rank == 1 &&
                                         factors.dims[0] == rotary / 2);
  bool pairing =
      attrs.pairing == ANYHAL_PAIRING_HALF_SPLIT || attrs.pairing == ANYHAL_PAIRING_INTERLEAVED;
  return all(require(is_index(positions), ANYHAL_REASON_DTYPE, "positions must be i64 or i32", 1),
             require(pairing, ANYHAL_REASON_ATTRIBUTE, "an unknown pairing", -1),
             mistake_unless(factors_fit, "freq_factors must be f32 [rotary/2]", 2),
             dims_equal(d, 0, 3), same_dtype(d, 0, 3), in_place(d, 1));
}

Answer embedding(const Desc& d) {
  Answer a = shape_of_call(d, 3, 3);
  if (!a.yes()) return a;
  const Description &table = operand(d, 0), &ids = operand(d, 1), &out = output(d);
  bool fits = table.rank == 2 && out.rank == ids.rank + 1 && dim(out, -1) == table.dims[1];
  for (uint32_t i = 0; fits && i < ids.rank; ++i) fits = out.dims[i] == ids.dims[i];
  return all(mistake_unless(fits, "the dims do not fit table[V,D], ids -> [...,D]", -1),
             require(is_index(ids), ANYHAL_REASON_DTYPE, "ids must be i64 or i32", 1),
             require(kFloats.has(out.dtype), ANYHAL_REASON_DTYPE, "the output must be a float", 2),
             in_place(d, 0));
}

Answer cache_append(const Desc& d) {
  Answer a = shape_of_call(d, 4, 4);
  if (!a.yes()) return a;
  const Description &cache = operand(d, 0), &update = operand(d, 1), &position = operand(d, 2);
  if (cache.rank != 4 || update.rank != 4) return invalid("cache and update have four dims");
  bool fits = update.dims[0] == cache.dims[0] && update.dims[1] == cache.dims[1] &&
              update.dims[2] <= cache.dims[2] && update.dims[3] == cache.dims[3] &&
              (position.rank == 0 || (position.rank == 1 && position.dims[0] == cache.dims[0]));
  return all(mistake_unless(fits, "the dims do not fit cache[B,H,C,D], update[B,H,T,D]", -1),
             require(is_index(position), ANYHAL_REASON_DTYPE, "the position must be i64 or i32", 2),
             same_dtype(d, 0, 1), same_dtype(d, 0, 3), dims_equal(d, 0, 3),
             mistake_unless(output(d).alias_of == 1, "the output must be the cache itself", 3),
             in_place(d, 1));
}

Answer argmax(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  if (!a.yes()) return a;
  const Description &x = operand(d, 0), &out = output(d);
  int32_t axis = sdk::attributes<anyhal_attrs_argmax>(d).axis;
  if (!is_axis(axis, x)) return invalid(kBadAxis);
  bool fits = out.rank == x.rank;
  for (uint32_t i = 0; fits && i < x.rank; ++i)
    fits = out.dims[i] == (int32_t(i) == axis ? 1 : x.dims[i]);
  return all(mistake_unless(fits, "the output has x's dims, with size 1 on the axis", 1),
             require(is_index(out), ANYHAL_REASON_DTYPE, "the output must be i64 or i32", 1),
             in_place(d, 0));
}

Answer cumsum(const Desc& d) {
  Answer a = shape_of_call(d, 2, 2);
  if (!a.yes()) return a;
  if (!is_axis(sdk::attributes<anyhal_attrs_cumsum>(d).axis, operand(d, 0)))
    return invalid(kBadAxis);
  Answer dtype = kFloats.has(operand(d, 0).dtype)
                     ? same_dtype(d, 0, 1)
                     : require(sdk::kInts.has(output(d).dtype), ANYHAL_REASON_DTYPE,
                               "the output must be an integer", 1);
  return all(dtype, dims_equal(d, 0, 1), in_place(d, 0));
}

// Values and indices of the first `kept` elements along the axis; all of them when negative.
Answer ordered(const Desc& d, int32_t axis, int64_t kept) {
  if (d.input_count != 1 || d.operand_count != 3) return invalid("the number of operands is wrong");
  const Description &x = operand(d, 0), &values = operand(d, 1), &indices = operand(d, 2);
  for (const Description* t : {&x, &values, &indices})
    if (absent(*t)) return invalid("a required operand is absent");
  if (!is_axis(axis, x)) return invalid(kBadAxis);
  if (x.rank > 16) return no(ANYHAL_REASON_RANK, "more than 16 dims", 0);
  if (kept < 0) kept = x.dims[axis];
  bool fits = values.rank == x.rank && same_dims(values, indices) && kept <= x.dims[axis];
  for (uint32_t i = 0; fits && i < x.rank; ++i)
    fits = values.dims[i] == (int32_t(i) == axis ? kept : x.dims[i]);
  return all(
      mistake_unless(fits, "the outputs have x's dims, k along the axis", 1), same_dtype(d, 0, 1),
      require(indices.dtype == ANYHAL_DTYPE_I64, ANYHAL_REASON_DTYPE, "the indices must be i64", 2),
      require(values.alias_of == 0 && indices.alias_of == 0, ANYHAL_REASON_LAYOUT,
              "this op cannot write over an operand", 1));
}

Answer sort(const Desc& d) { return ordered(d, sdk::attributes<anyhal_attrs_sort>(d).axis, -1); }

Answer topk(const Desc& d) {
  const auto attrs = sdk::attributes<anyhal_attrs_topk>(d);
  if (attrs.k > INT64_MAX) return invalid("k is larger than the axis");
  return ordered(d, attrs.axis, int64_t(attrs.k));
}

Answer concat(const Desc& d) {
  if (d.operand_count > kOperandsMax)
    return no(ANYHAL_REASON_SHAPE_LIMIT, "more than 63 inputs", int32_t(kOperandsMax));
  Answer a = shape_of_call(d, d.operand_count, d.operand_count);
  if (!a.yes()) return a;
  const Description& out = output(d);
  int32_t axis = sdk::attributes<anyhal_attrs_concat>(d).axis;
  if (!is_axis(axis, out)) return invalid(kBadAxis);
  int64_t total = 0;
  for (uint32_t n = 0; n < d.input_count; ++n) {
    const Description& x = operand(d, n);
    a = same_dtype(d, d.input_count, n);
    if (!a.yes()) return a;
    if (x.rank != out.rank) return invalid("the ranks must be equal", int32_t(n));
    for (uint32_t i = 0; i < out.rank; ++i)
      if (int32_t(i) != axis && x.dims[i] != out.dims[i])
        return invalid("the dims must be equal but for the axis", int32_t(n));
    total += x.dims[axis];
  }
  return all(mistake_unless(total == out.dims[axis], "the output's size on the axis is wrong",
                            int32_t(d.input_count)),
             in_place(d, 0));
}

// Products may round their factors to bf16 when the caller allows it; make_plan says where they do.
// Their sums go in an order that only the inner size determines when batch invariance is asked for.
constexpr sdk::Promise kProduct = {1u << ANYHAL_ACCUMULATE_BF16,
                                   1u << ANYHAL_DETERMINISM_BATCH_INVARIANT};
constexpr sdk::Promise kQuantised = {kProduct.accumulate | 1u << ANYHAL_ACCUMULATE_INT8,
                                     kProduct.determinism};
constexpr sdk::Promise kAlone = sdk::kBatchInvariant;  // each row, or element, on its own
constexpr sdk::Promise kExact = sdk::kExact;
constexpr sdk::Kernel kByIsa = nullptr;
constexpr sdk::Workspace kOfPlan = nullptr;
template <class T>
constexpr sdk::Condition kHas = known_attributes<T>;
constexpr sdk::Condition kNone = no_attributes;

// What is not listed is unsupported. The order of attention's sums depends on how many rows there
// are, so it promises nothing and is decomposed where batch invariance is asked for.
const sdk::Row kRows[] = {
    // op, name, main operand, its dtypes, attributes, also requires, kernel, workspace, promise,
    // and which calls are exact beyond it
    {ANYHAL_OP_COPY, "copy", 0, kAny, kNone, copy, kByIsa, kOfPlan, kExact},
    {ANYHAL_OP_FILL, "fill", 1, kStored, kNone, fill, kByIsa, kOfPlan, kExact},
    {ANYHAL_OP_CAST, "cast", 0, kAny, sdk::later_attributes<anyhal_attrs_cast>, cast, kByIsa,
     kOfPlan, kExact},
    {ANYHAL_OP_UNARY, "unary", 0, kPlain, kHas<anyhal_attrs_unary>, unary, kByIsa, kOfPlan, kAlone,
     sdk::unary_exact},
    {ANYHAL_OP_BINARY, "binary", 0, kPlain, kHas<anyhal_attrs_binary>, binary, kByIsa, kOfPlan,
     kAlone, sdk::binary_exact},
    {ANYHAL_OP_WHERE, "where", 1, kStored, kNone, where, kByIsa, kOfPlan, kExact},
    {ANYHAL_OP_REDUCE, "reduce", 0, kPlain, kHas<anyhal_attrs_reduce>, reduce, kByIsa, kOfPlan,
     kAlone, sdk::reduce_exact},
    {ANYHAL_OP_MATMUL, "matmul", 0, kProducts, kNone, matmul, kByIsa, kOfPlan, kProduct,
     sdk::integers_exact},
    {ANYHAL_OP_GATHER, "gather", 0, kAny, kHas<anyhal_attrs_gather>, gather, kByIsa, kOfPlan,
     kExact},
    {ANYHAL_OP_SCATTER_ADD, "scatter_add", 0, kNumbers, kHas<anyhal_attrs_scatter_add>, scatter_add,
     kByIsa, kOfPlan, kAlone, sdk::integers_exact},
    {ANYHAL_OP_MATMUL_EPILOGUE, "matmul_epilogue", 0, kComputed, kHas<anyhal_attrs_matmul_epilogue>,
     matmul_epilogue, kByIsa, kOfPlan, kProduct},
    {ANYHAL_OP_QUANT_MATMUL, "quant_matmul", 0, kComputed, kHas<anyhal_attrs_quant_matmul>,
     quant_matmul, kByIsa, kOfPlan, kQuantised},
    {ANYHAL_OP_ATTENTION, "attention", 0, kComputed, kHas<anyhal_attrs_attention>, attention,
     kByIsa},
    {ANYHAL_OP_RMS_NORM, "rms_norm", 0, kComputed, kHas<anyhal_attrs_rms_norm>, rms_norm, kByIsa,
     kOfPlan, kAlone},
    {ANYHAL_OP_SOFTMAX, "softmax", 0, kFloats, kHas<anyhal_attrs_softmax>, softmax, kByIsa, kOfPlan,
     kAlone},
    {ANYHAL_OP_ROPE, "rope", 0, kComputed, kHas<anyhal_attrs_rope>, rope, kByIsa, kOfPlan, kAlone},
    {ANYHAL_OP_EMBEDDING, "embedding", 0, kFloats | sdk::kBlocks, kNone, embedding, kByIsa, kOfPlan,
     kExact},
    {ANYHAL_OP_CACHE_APPEND, "cache_append", 0, kStored, kNone, cache_append, kByIsa, kOfPlan,
     kExact},
    {ANYHAL_OP_ARGMAX, "argmax", 0, kNumbers, kHas<anyhal_attrs_argmax>, argmax, kByIsa, kOfPlan,
     kExact},
    {ANYHAL_OP_CUMSUM, "cumsum", 0, kNumbers, kHas<anyhal_attrs_cumsum>, cumsum, kByIsa, kOfPlan,
     kAlone, sdk::integers_exact},
    {ANYHAL_OP_CONCAT, "concat", 0, kJoined, kHas<anyhal_attrs_concat>, concat, kByIsa, kOfPlan,
     kExact},
    {ANYHAL_OP_TOPK, "topk", 0, kNumbers, kHas<anyhal_attrs_topk>, topk, kByIsa, kOfPlan, kExact},
    {ANYHAL_OP_SORT, "sort", 0, kNumbers, kHas<anyhal_attrs_sort>, sort, kByIsa, kOfPlan, kExact},
    {ANYHAL_OP_LAYER_NORM, "layer_norm", 0, kComputed, kHas<anyhal_attrs_layer_norm>,
     layer_norm_fits, kByIsa},
    {ANYHAL_OP_LOG_SOFTMAX, "log_softmax", 0, kComputed, kHas<anyhal_attrs_log_softmax>,
     log_softmax_fits, kByIsa},
    {ANYHAL_OP_RANDOM_UNIFORM, "random_uniform", 1, kFloats, kNone, random_floats_fit, kByIsa,
     kOfPlan, kExact},
    {ANYHAL_OP_RANDOM_NORMAL, "random_normal", 1, kFloats, kNone, random_floats_fit, kByIsa,
     kOfPlan, kExact},
    {ANYHAL_OP_RANDOM_INTEGERS, "random_integers", 1, sdk::kInts,
     kHas<anyhal_attrs_random_integers>, random_integers_fit, kByIsa, kOfPlan, kExact},
    {ANYHAL_OP_DROPOUT, "dropout", 0, kFloats, kHas<anyhal_attrs_dropout>, dropout_fits, kByIsa,
     kOfPlan, kExact},
    {ANYHAL_OP_CROSS_ENTROPY, "cross_entropy", 0, kComputed, kHas<anyhal_attrs_cross_entropy>,
     cross_entropy_fits, kByIsa},
    {ANYHAL_OP_CROSS_ENTROPY_BACKWARD, "cross_entropy_backward", 0, kComputed,
     kHas<anyhal_attrs_cross_entropy_backward>, cross_entropy_backward_fits, kByIsa},
    {ANYHAL_OP_SOFTMAX_BACKWARD, "softmax_backward", 0, kComputed,
     kHas<anyhal_attrs_softmax_backward>, softmax_backward_fits, kByIsa},
    {ANYHAL_OP_LOG_SOFTMAX_BACKWARD, "log_softmax_backward", 0, kComputed,
     kHas<anyhal_attrs_log_softmax_backward>, log_softmax_backward_fits, kByIsa},
    {ANYHAL_OP_RMS_NORM_BACKWARD, "rms_norm_backward", 0, kComputed,
     kHas<anyhal_attrs_rms_norm_backward>, rms_norm_backward_fits, kByIsa},
    {ANYHAL_OP_LAYER_NORM_BACKWARD, "layer_norm_backward", 0, kComputed,
     kHas<anyhal_attrs_layer_norm_backward>, layer_norm_backward_fits, kByIsa},
    {ANYHAL_OP_ATTENTION_BACKWARD, "attention_backward", 0, kComputed,
     kHas<anyhal_attrs_attention_backward>, attention_backward_fits, kByIsa},
    {ANYHAL_OP_ADAMW_STEP, "adamw_step", 0, kFloats, kHas<anyhal_attrs_adamw_step>, adamw_step_fits,
     kByIsa},
};

}  // namespace

const sdk::OpTable kOps(kRows);

}  // namespace hal::cpu
