/* cast: the same values in another dtype; block formats are decoded.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "../dayone.h"

refusal check_cast(const anyhal_plan* plan) {
  const uint32_t from = plan->t[0].dtype, to = plan->t[1].dtype;
  if (!same_dims(&plan->t[0], &plan->t[1])) return wrong("the dims of the operands differ");
  const bool stated = plan->fn == ANYHAL_OVERFLOW_SATURATE || plan->fn == ANYHAL_OVERFLOW_NONFINITE;
  if (is_f8(to) ? !stated : plan->fn != 0 && plan->fn != ANYHAL_OVERFLOW_UNSTATED)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "overflow must be stated for 8-bit floats alone");
  if (block_elements(from) > 2) return is_float(to) ? fits : bad_dtype();
  return (is_stored(from) || is_packed(from)) && (is_stored(to) || is_packed(to)) ? fits
                                                                                  : bad_dtype();
}

/* Toward zero, saturated to the target's range, NaN gives 0. */
static int64_t float_to_int(uint32_t dtype, double v) {
  if (dtype == ANYHAL_DTYPE_BOOL) return v != 0;
  if (v != v) return 0;
  const int bits = is_packed(dtype) ? 4 : 8 * (int)element_bytes(dtype);
  if (is_unsigned(dtype)) {
    if (v <= 0) return 0;
    if (v >= ldexp(1, bits)) return bits == 64 ? -1 : ((int64_t)1 << bits) - 1;
    return (int64_t)(uint64_t)v;
  }
  const int64_t limit = (int64_t)(((uint64_t)1 << (bits - 1)) - 1);
  if (v >= ldexp(1, bits - 1)) return limit;
  return v <= -ldexp(1, bits - 1) ? -limit - 1 : (int64_t)v;
}

/* To a double for a float of `dtype`. One that keeps fewer digits than the integer has is rounded
 * twice, so the first rounding leaves its mark in the last bit. */
static double int_to_float(uint32_t dtype, int64_t v, bool unsigned_value) {
  const bool large =
      unsigned_value ? (uint64_t)v >> 52 != 0 : v > INT64_C(1) << 52 || v < -(INT64_C(1) << 52);
  if (large && dtype != ANYHAL_DTYPE_F64) {
    const int64_t low = v & 0xfff;
    v = (int64_t)((uint64_t)v - (uint64_t)low) | (low != 0 ? 0x800 : 0);
  }
  return unsigned_value ? (double)(uint64_t)v : (double)v;
}

static void compute(const anyhal_plan* plan, lane* v, int64_t count) {
  const uint32_t from = plan->t[0].dtype, to = plan->t[1].dtype;
  const bool saturate = plan->fn == ANYHAL_OVERFLOW_SATURATE, whole = !is_float(from);
  for (int64_t i = 0; i < count; ++i) {
    if (whole && !is_f8(from) && !is_float(to) && !is_f8(to)) {
      v[1].z[i] = v[0].z[i];
      continue;
    }
    double x;
    if (is_f8(from)) {
      x = f8_value(from, (uint8_t)v[0].z[i]);
    } else {
      x = whole ? int_to_float(to, v[0].z[i], is_unsigned(from)) : v[0].f[i];
    }
    if (is_float(to)) {
      v[1].f[i] = x;
    } else {
      v[1].z[i] = is_f8(to) ? f8_code(to, x, saturate) : float_to_int(to, x);
    }
  }
}

/* Rows in which one side holds pairs: that side is dense there. */
static void cast_pairs(const anyhal_plan* plan, char* const* data) {
  const tensor *x = &plan->t[0], *out = &plan->t[1];
  const uint32_t last = x->rank - 1;
  nest n = {.operands = 2, .p = {data[0], data[1]}};
  for (uint32_t d = 0; d < last; ++d)
    nest_add(&n, x->dims[d],
             (int64_t[]){x->strides[d] * element_bytes(x->dtype),
                         out->strides[d] * element_bytes(out->dtype)});
  if (n.empty) return;
  do {
    for (int64_t i = 0; i < x->dims[last]; i += CHUNK) {
      lane v[2];
      const int64_t count = least(CHUNK, x->dims[last] - i);
      const char* from =
          n.p[0] + (is_packed(x->dtype) ? i / 2 : i * x->strides[last] * element_bytes(x->dtype));
      char* to =
          n.p[1] +
          (is_packed(out->dtype) ? i / 2 : i * out->strides[last] * element_bytes(out->dtype));
      if (is_packed(x->dtype)) {
        load_pairs(x->dtype, from, count, v[0].z);
      } else if (is_float(x->dtype)) {
        load_f64(x->dtype, from, x->strides[last], count, v[0].f);
      } else {
        load_i64(x->dtype, from, x->strides[last], count, v[0].z);
      }
      compute(plan, v, count);
      if (is_packed(out->dtype)) {
        store_pairs(to, count, v[1].z);
      } else if (is_float(out->dtype)) {
        store_f64(out->dtype, to, out->strides[last], count, v[1].f);
      } else {
        store_i64(out->dtype, to, out->strides[last], count, v[1].z);
      }
    }
  } while (nest_next(&n));
}

/* Rows of blocks. Decoding straight into dense f32 is what a language model spends its time on. */
static void cast_blocks(const tensor* x, char* from, const tensor* out, char* to) {
  const uint32_t last = x->rank - 1;
  const int64_t size = block_elements(x->dtype);
  const int64_t blocks = x->dims[last] / size, stride = out->strides[last];
  nest n = {.operands = 2, .p = {from, to}};
  for (uint32_t d = 0; d < last; ++d)
    nest_add(&n, x->dims[d],
             (int64_t[]){x->strides[d] * element_bytes(x->dtype),
                         out->strides[d] * element_bytes(out->dtype)});
  if (n.empty) return;
  do {
    if (out->dtype == ANYHAL_DTYPE_F32 && stride == 1) {
      decode_blocks(x->dtype, n.p[0], blocks, (float*)n.p[1]);
      continue;
    }
    for (int64_t b = 0; b < blocks; ++b) {
      double values[BLOCK_MAX];
      decode_block(x->dtype, n.p[0] + b * element_bytes(x->dtype), values);
      store_f64(out->dtype, n.p[1] + size * b * stride * element_bytes(out->dtype), stride, size,
                values);
    }
  } while (nest_next(&n));
}

RUN(cast) {
  (void)workspace, (void)error;
  if (is_packed(plan->t[0].dtype) || is_packed(plan->t[1].dtype)) {
    cast_pairs(plan, data);
  } else if (block_elements(plan->t[0].dtype) > 1) {
    cast_blocks(&plan->t[0], data[0], &plan->t[1], data[1]);
  } else {
    each_chunk(plan, data, compute);
  }
  return ANYHAL_STATUS_OK;
}
