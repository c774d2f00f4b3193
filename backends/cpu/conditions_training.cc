// Conditions of losses, norms with several outputs, backward ops, optimiser steps and random ops.
// SPDX-License-Identifier: Apache-2.0
#include "conditions_training.h"

namespace hal::cpu {
namespace {

// Operand counts; which inputs may be absent from `optional` on; the outputs after the first may.
Answer operands_are(const Desc& d, uint32_t inputs, uint32_t optional, uint32_t outputs) {
  if (d.input_count != inputs || d.operand_count != inputs + outputs)
    return invalid("the number of operands is wrong");
  for (uint32_t i = 0; i < d.operand_count; ++i) {
    bool may = i < inputs ? i >= optional : i > inputs;
    if (absent(operand(d, i)) && !may) return invalid("a required operand is absent", int32_t(i));
    if (!absent(operand(d, i)) && operand(d, i).rank > 16)
      return no(ANYHAL_REASON_RANK, "more than 16 dims", int32_t(i));
  }
  return yes();
}

// Every output stands apart, but for the first, which may be one of the inputs below `inputs`.
Answer outputs_apart(const Desc& d, uint32_t inputs) {
  for (uint32_t i = d.input_count + 1; i < d.operand_count; ++i)
    if (!absent(operand(d, i)) && operand(d, i).alias_of != 0)
      return no(ANYHAL_REASON_LAYOUT, "this output cannot be the memory of an input", int32_t(i));
  return in_place(d, inputs);
}

Answer equal(const Desc& d, uint32_t a, uint32_t b) {
  return all(same_dtype(d, a, b), dims_equal(d, a, b));
}

Answer is_vector(const Desc& d, uint32_t i, uint32_t main) {
  if (absent(operand(d, i))) return yes();
  const Description& t = operand(d, i);
  return all(mistake_unless(t.rank == 1 && t.dims[0] == dim(operand(d, main), -1),
                            "this operand must be [N]", int32_t(i)),
             same_dtype(d, main, i));
}

Answer has_dtype(const Desc& d, uint32_t i, uint32_t dtype, const char* why) {
  return require(operand(d, i).dtype == dtype, ANYHAL_REASON_DTYPE, why, int32_t(i));
}

Answer axis_within(int32_t axis, const Description& x) {
  return mistake_unless(is_axis(axis, x), kBadAxis, 0);
}

// The last `count` dims lie like one dim: a line that one stride walks.
bool is_line(const Description& t, int32_t count) {
  bool first = true;
  int64_t next = 0;
  for (uint32_t i = t.rank; i-- > t.rank - uint32_t(count);) {
    if (t.dims[i] == 1) continue;
    if (!first && t.strides[i] != next) return false;
    first = false;
    next = t.strides[i] * t.dims[i];
  }
  return true;
}

Answer pair_fits(const Desc& d, int32_t axis) {
  Answer a = operands_are(d, 2, 2, 1);
  if (!a.yes()) return a;
  return all(axis_within(axis, operand(d, 0)), equal(d, 0, 1), equal(d, 0, 2), in_place(d, 2));
}

Answer norm_backward_fits(const Desc& d, uint32_t outputs) {
  Answer a = operands_are(d, 3, 2, outputs);
  if (!a.yes()) return a;
  if (operand(d, 1).rank == 0) return invalid("x needs a dim", 1);
  a = all(equal(d, 1, 0), equal(d, 1, 3), is_vector(d, 2, 1), outputs_apart(d, 0));
  for (uint32_t i = 4; a.yes() && i < d.operand_count; ++i) a = is_vector(d, i, 1);
  return a;
}

template <class Attributes>
Answer loss_fits(const Desc& d, uint32_t loss) {
  const Description &logits = operand(d, 0), &targets = operand(d, 1);
  bool fits = logits.rank == targets.rank + 1;
  for (uint32_t i = 0; fits && i < targets.rank; ++i) fits = logits.dims[i] == targets.dims[i];
  int64_t rows = 1;
  for (uint32_t i = 0; i < targets.rank; ++i) rows *= targets.dims[i];
  if (!fits || (rows != 0 && dim(logits, -1) == 0))
    return invalid("logits must be [..., C] with a class at least, and targets [...]", 1);
  int32_t reduction = sdk::attributes<Attributes>(d).reduction;
  bool each = reduction == ANYHAL_LOSS_REDUCTION_NONE;
  return all(
      require(reduction >= ANYHAL_LOSS_REDUCTION_NONE && reduction <= ANYHAL_LOSS_REDUCTION_SUM,
              ANYHAL_REASON_ATTRIBUTE, "an unknown reduction", -1),
      require(is_index(targets), ANYHAL_REASON_DTYPE, "targets must be i64 or i32", 1),
      has_dtype(d, loss, ANYHAL_DTYPE_F32, "losses are f32 here"),
      each ? dims_equal(d, 1, loss)
           : mistake_unless(operand(d, loss).rank == 0, "the loss is one number", int32_t(loss)));
}

Answer lse_fits(const Desc& d, uint32_t i) {
  if (absent(operand(d, i))) return yes();
  return all(has_dtype(d, i, ANYHAL_DTYPE_F32, "lse is f32 here"), dims_equal(d, 1, i));
}

Answer key_fits(const Desc& d, uint32_t i) {
  const Description& key = operand(d, i);
  return mistake_unless(key.dtype == ANYHAL_DTYPE_U64 && key.rank == 1 && key.dims[0] == 2,
                        "the key must be two u64 numbers", int32_t(i));
}

Answer numbers_fit(const Desc& d, Dtypes made) {
  Answer a = operands_are(d, 1, 1, 1);
  if (!a.yes()) return a;
  return all(key_fits(d, 0),
             require(made.has(output(d).dtype), ANYHAL_REASON_DTYPE, "no numbers of that dtype", 1),
             in_place(d, 0));
}

}  // namespace

Answer layer_norm_fits(const Desc& d) {
  Answer a = operands_are(d, 4, 1, 2);
  if (!a.yes()) return a;
  const Description& x = operand(d, 0);
  int32_t axes = sdk::attributes<anyhal_attrs_layer_norm>(d).axes;
  if (axes < 1 || axes > int32_t(x.rank)) return invalid("axes is not a number of x's dims", 0);
  for (uint32_t i : {1u, 2u}) {
    const Description& t = operand(d, i);
    if (absent(t)) continue;
    bool fits = t.rank == uint32_t(axes);
    for (uint32_t n = 0; fits && n < t.rank; ++n) fits = t.dims[n] == x.dims[x.rank - t.rank + n];
    a = all(mistake_unless(fits, "this operand must be [N...]", int32_t(i)), same_dtype(d, 0, i));
    if (!a.yes()) return a;
  }
  for (uint32_t i : {3u, 4u, 5u}) {
    a = absent(operand(d, i)) ? yes() : equal(d, 0, i);
    if (!a.yes()) return a;
  }
  for (uint32_t i = 0; i < 6; ++i)
    if (!absent(operand(d, i)) && !is_line(operand(d, i), axes))
      return no(ANYHAL_REASON_LAYOUT, "the normalised dims must lie like one dim", int32_t(i));
  if (absent(operand(d, 3)) != absent(operand(d, 5)))
    return invalid("the sum is given with a residual, and only then", 5);
  return outputs_apart(d, 1);
}

Answer log_softmax_fits(const Desc& d) {
  Answer a = operands_are(d, 1, 1, 1);
  if (!a.yes()) return a;
  return all(axis_within(sdk::attributes<anyhal_attrs_log_softmax>(d).axis, operand(d, 0)),
             equal(d, 0, 1), in_place(d, 1));
}

Answer softmax_backward_fits(const Desc& d) {
  return pair_fits(d, sdk::attributes<anyhal_attrs_softmax_backward>(d).axis);
}

Answer log_softmax_backward_fits(const Desc& d) {
  return pair_fits(d, sdk::attributes<anyhal_attrs_log_softmax_backward>(d).axis);
}

Answer rms_norm_backward_fits(const Desc& d) { return norm_backward_fits(d, 2); }

Answer layer_norm_backward_fits(const Desc& d) { return norm_backward_fits(d, 3); }

Answer cross_entropy_fits(const Desc& d) {
  Answer a = operands_are(d, 2, 2, 2);
  if (!a.yes()) return a;
  return all(loss_fits<anyhal_attrs_cross_entropy>(d, 2), lse_fits(d, 3), outputs_apart(d, 0));
}

Answer cross_entropy_backward_fits(const Desc& d) {
  Answer a = operands_are(d, 4, 3, 1);
  if (!a.yes()) return a;
  return all(loss_fits<anyhal_attrs_cross_entropy_backward>(d, 2), lse_fits(d, 3), equal(d, 0, 4),
             in_place(d, 0));
}

Answer attention_backward_fits(const Desc& d) {
  Answer a = operands_are(d, 8, 4, 4);
  if (!a.yes()) return a;
  const auto attributes = sdk::attributes<anyhal_attrs_attention_backward>(d);
  if (!absent(operand(d, 6)) || !absent(operand(d, 7)) || !absent(operand(d, 11)))
    return no(ANYHAL_REASON_ATTRIBUTE, "sinks and dlse have no kernel here", 6);
  if (attributes.window != 0 || attributes.softcap != 0)
    return no(ANYHAL_REASON_ATTRIBUTE, "window and softcap have no kernel here", -1);
  for (uint32_t i : {0u, 1u, 2u, 3u, 8u, 9u, 10u}) {
    if (absent(operand(d, i)) || operand(d, i).rank != 4)
      return invalid("q, k, v and their gradients have four dims", int32_t(i));
    a = same_dtype(d, 1, i);
    if (!a.yes()) return a;
  }
  const Description &dout = operand(d, 0), &q = operand(d, 1), &k = operand(d, 2),
                    &v = operand(d, 3), &length = operand(d, 4), &mask = operand(d, 5);
  bool fits = k.dims[0] == q.dims[0] && v.dims[0] == q.dims[0] && v.dims[1] == k.dims[1] &&
              v.dims[2] == k.dims[2] && k.dims[3] == q.dims[3] && dout.dims[3] == v.dims[3];
  for (int i = 0; i < 3; ++i) fits = fits && dout.dims[i] == q.dims[i];
  fits = fits && (k.dims[1] != 0 ? q.dims[1] % k.dims[1] == 0 : q.dims[1] == 0);
  if (!absent(length)) {
    if (!is_index(length)) return no(ANYHAL_REASON_DTYPE, "kv_length must be i64 or i32", 4);
    fits = fits && (length.rank == 0 || (length.rank == 1 && length.dims[0] == q.dims[0]));
  }
  if (!absent(mask)) {
    if (mask.dtype != ANYHAL_DTYPE_BOOL && mask.dtype != q.dtype)
      return no(ANYHAL_REASON_DTYPE, "the mask must be bool or have q's dtype", 5);
    const int64_t full[4] = {q.dims[0], q.dims[1], q.dims[2], k.dims[2]};
    fits = fits && mask.rank == 4;
    for (int i = 0; fits && i < 4; ++i) fits = mask.dims[i] == full[i];
  }
  return all(mistake_unless(fits, "the dims do not fit q[B,H,T,D] k[B,Hkv,S,D] v[B,Hkv,S,Dv]", -1),
             require(attributes.causal >= ANYHAL_CAUSAL_NONE &&
                         attributes.causal <= ANYHAL_CAUSAL_LAST_KEY,
                     ANYHAL_REASON_ATTRIBUTE, "an unknown causal rule", -1),
             dims_equal(d, 1, 8), dims_equal(d, 2, 9), dims_equal(d, 3, 10), outputs_apart(d, 0));
}

Answer adamw_step_fits(const Desc& d) {
  Answer a = operands_are(d, 6, 6, 3);
  if (!a.yes()) return a;
  const Description &param = operand(d, 0), &lr = operand(d, 4), &step = operand(d, 5);
  uint32_t wide = param.dtype == ANYHAL_DTYPE_F64 ? ANYHAL_DTYPE_F64 : ANYHAL_DTYPE_F32;
  a = all(equal(d, 0, 3), dims_equal(d, 0, 1), dims_equal(d, 0, 2),
          has_dtype(d, 1, wide, "m must be f32, or f64 beside f64"),
          has_dtype(d, 2, wide, "v must be f32, or f64 beside f64"),
          mistake_unless(lr.rank == 0 && step.rank == 0, "lr and step are numbers", 4),
          require(lr.dtype == ANYHAL_DTYPE_F32 || lr.dtype == ANYHAL_DTYPE_F64, ANYHAL_REASON_DTYPE,
                  "lr must be f32 or f64", 4),
          require(is_index(step), ANYHAL_REASON_DTYPE, "the step must be i64 or i32", 5));
  for (uint32_t i = 0; a.yes() && i < 3; ++i) {
    const Description& out = operand(d, 6 + i);
    if (absent(out)) return invalid("a required operand is absent", int32_t(6 + i));
    bool same = out.alias_of == i + 1 || sdk::element_count(out) == 0;
    for (uint32_t n = 0; same && n < out.rank; ++n)
      same = out.dims[n] == 1 || sdk::element_count(out) == 0 ||
             out.strides[n] == operand(d, i).strides[n];
    a = all(equal(d, i, 6 + i),
            require(same, ANYHAL_REASON_LAYOUT, "each output must be the input of its place",
                    int32_t(6 + i)));
  }
  return a;
}

Answer random_floats_fit(const Desc& d) { return numbers_fit(d, kFloats); }

Answer random_integers_fit(const Desc& d) { return numbers_fit(d, sdk::kInts); }

Answer dropout_fits(const Desc& d) {
  Answer a = operands_are(d, 2, 2, 2);
  if (!a.yes()) return a;
  if (absent(operand(d, 3))) return invalid("a required operand is absent", 3);
  float p = sdk::attributes<anyhal_attrs_dropout>(d).p;
  return all(mistake_unless(p >= 0 && p <= 1, "p must be from 0 to 1", -1), key_fits(d, 1),
             equal(d, 0, 2), dims_equal(d, 0, 3),
             has_dtype(d, 3, ANYHAL_DTYPE_BOOL, "the mask must be bool"), outputs_apart(d, 0));
}

}  // namespace hal::cpu
