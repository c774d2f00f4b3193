/* cast: the same values in another dtype; block formats are decoded.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "../dayone.h"

refusal check_cast(const anyhal_plan* plan) {
  const uint32_t from = plan->t[0].dtype, to = plan->t[1].dtype;
  if (!same_dims(&plan->t[0], &plan->t[1])) return wrong("the dims of the operands differ");
  if (block_elements(from) > 1) return is_float(to) ? fits : bad_dtype();
  return is_plain(from) && is_plain(to) ? fits : bad_dtype();
}

/* Toward zero, saturated to the target's range, NaN gives 0. */
static int64_t float_to_int(uint32_t dtype, double v) {
  if (dtype == ANYHAL_DTYPE_BOOL) return v != 0;
  if (v != v) return 0;
  const int bits = 8 * (int)element_bytes(dtype);
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
  for (int64_t i = 0; i < count; ++i) {
    if (is_float(from) && is_float(to)) {
      v[1].f[i] = v[0].f[i];
    } else if (is_float(from)) {
      v[1].z[i] = float_to_int(to, v[0].f[i]);
    } else if (is_float(to)) {
      v[1].f[i] = int_to_float(to, v[0].z[i], is_unsigned(from));
    } else {
      v[1].z[i] = v[0].z[i];
    }
  }
}

/* Rows of blocks. Decoding straight into dense f32 is what a language model spends its time on. */
static void cast_blocks(const tensor* x, char* from, const tensor* out, char* to) {
  const uint32_t last = x->rank - 1;
  const int64_t blocks = x->dims[last] / 32, stride = out->strides[last];
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
      float values[32];
      double wide[32];
      decode_blocks(x->dtype, n.p[0] + b * element_bytes(x->dtype), 1, values);
      load_f64(ANYHAL_DTYPE_F32, (const char*)values, 1, 32, wide);
      store_f64(out->dtype, n.p[1] + 32 * b * stride * element_bytes(out->dtype), stride, 32, wide);
    }
  } while (nest_next(&n));
}

RUN(cast) {
  (void)workspace, (void)error;
  if (block_elements(plan->t[0].dtype) > 1) {
    cast_blocks(&plan->t[0], data[0], &plan->t[1], data[1]);
  } else {
    each_chunk(plan, data, compute);
  }
  return ANYHAL_STATUS_OK;
}
