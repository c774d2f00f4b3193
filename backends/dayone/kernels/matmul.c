/* matmul: a[..., M, K] x b[..., K, N] -> out[..., M, N], any strides.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "../dayone.h"

static bool output_fits(uint32_t in, uint32_t out) {
  switch (in) {
    case ANYHAL_DTYPE_F16:
    case ANYHAL_DTYPE_BF16:
      return out == in || out == ANYHAL_DTYPE_F32;
    case ANYHAL_DTYPE_I8:
    case ANYHAL_DTYPE_U8:
      return out == ANYHAL_DTYPE_I32;
    case ANYHAL_DTYPE_F32:
    case ANYHAL_DTYPE_F64:
    case ANYHAL_DTYPE_I32:
    case ANYHAL_DTYPE_I64:
      return out == in;
    default:
      return false;
  }
}

refusal check_matmul(const anyhal_plan* plan) {
  const tensor *a = &plan->t[0], *b = &plan->t[1], *out = &plan->t[2];
  if (a->dtype != b->dtype || !output_fits(a->dtype, out->dtype)) return bad_dtype();
  if (out->rank < 2 || a->rank != out->rank || b->rank != out->rank)
    return wrong("the operands of a product must have one rank of at least 2");
  const uint32_t m = out->rank - 2, n = out->rank - 1;
  bool agree = a->dims[n] == b->dims[m] && a->dims[m] == out->dims[m] && b->dims[n] == out->dims[n];
  for (uint32_t d = 0; d < m; ++d)
    agree = agree && a->dims[d] == out->dims[d] && b->dims[d] == out->dims[d];
  return agree ? fits : wrong("the dims of the product do not agree");
}

/* One matrix of the batch. Strides count elements. */
typedef struct product {
  int64_t rows, columns, inner;
  int64_t a_row, a_inner, b_inner, b_column, out_row, out_column;
} product;

/* Sixteen partial sums that do not depend on each other are what lets the compiler use vectors:
 * it may not reorder a single sum. */
static float dot(const float* a, const float* b, int64_t count) {
  float sums[16] = {0};
  int64_t k = 0;
  for (; k + 16 <= count; k += 16) {
    for (int i = 0; i < 16; ++i) sums[i] += a[k + i] * b[k + i];
  }
  for (int i = 0; k < count; ++k, ++i) sums[i] += a[k] * b[k];
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

/* b's columns lie in memory as rows, as the weights of a model do: each is read once for all rows
 * of a. */
static void multiply_by_columns(const product* p, const float* a, const float* b, float* out) {
  for (int64_t n = 0; n < p->columns; ++n) {
    for (int64_t m = 0; m < p->rows; ++m)
      out[m * p->out_row + n * p->out_column] =
          dot(a + m * p->a_row, b + n * p->b_column, p->inner);
  }
}

/* b's rows are dense: whole rows of b are added up, a tile of columns at a time. */
static void multiply_by_rows(const product* p, const float* a, const float* b, float* out) {
  for (int64_t m = 0; m < p->rows; ++m) {
    for (int64_t n = 0; n < p->columns; n += CHUNK) {
      float sums[CHUNK] = {0};
      const int64_t count = least(CHUNK, p->columns - n);
      for (int64_t k = 0; k < p->inner; ++k) {
        const float factor = a[m * p->a_row + k * p->a_inner];
        const float* row = b + k * p->b_inner + n;
        for (int64_t i = 0; i < count; ++i) sums[i] += factor * row[i];
      }
      for (int64_t i = 0; i < count; ++i) out[m * p->out_row + (n + i) * p->out_column] = sums[i];
    }
  }
}

/* Every other dtype and layout, through the wide types. */
static void multiply_any(const product* p, uint32_t dtype, const char* a, const char* b,
                         uint32_t out_dtype, char* out) {
  const int64_t bytes = element_bytes(dtype);
  for (int64_t m = 0; m < p->rows; ++m) {
    for (int64_t n = 0; n < p->columns; ++n) {
      double total = 0;
      uint64_t wrapped = 0;
      for (int64_t k = 0; k < p->inner; k += CHUNK) {
        double x[CHUNK], y[CHUNK];
        int64_t i[CHUNK], j[CHUNK];
        const int64_t count = least(CHUNK, p->inner - k);
        const char* from = a + (m * p->a_row + k * p->a_inner) * bytes;
        const char* with = b + (n * p->b_column + k * p->b_inner) * bytes;
        if (is_float(dtype)) {
          load_f64(dtype, from, p->a_inner, count, x);
          load_f64(dtype, with, p->b_inner, count, y);
          for (int64_t c = 0; c < count; ++c) total += x[c] * y[c];
        } else {
          load_i64(dtype, from, p->a_inner, count, i);
          load_i64(dtype, with, p->b_inner, count, j);
          for (int64_t c = 0; c < count; ++c) wrapped += (uint64_t)i[c] * (uint64_t)j[c];
        }
      }
      const int64_t number = (int64_t)wrapped;
      char* to = out + (m * p->out_row + n * p->out_column) * element_bytes(out_dtype);
      if (is_float(dtype)) {
        store_f64(out_dtype, to, 1, 1, &total);
      } else {
        store_i64(out_dtype, to, 1, 1, &number);
      }
    }
  }
}

RUN(matmul) {
  (void)workspace, (void)error;
  const tensor *a = &plan->t[0], *b = &plan->t[1], *out = &plan->t[2];
  const uint32_t m = out->rank - 2, n = out->rank - 1;
  const product p = {out->dims[m],  out->dims[n],  a->dims[n],      a->strides[m],  a->strides[n],
                     b->strides[m], b->strides[n], out->strides[m], out->strides[n]};
  nest batch = {.operands = 3, .p = {data[0], data[1], data[2]}};
  for (uint32_t d = 0; d < m; ++d)
    nest_add(&batch, out->dims[d],
             (int64_t[]){a->strides[d] * element_bytes(a->dtype),
                         b->strides[d] * element_bytes(b->dtype),
                         out->strides[d] * element_bytes(out->dtype)});
  if (batch.empty) return ANYHAL_STATUS_OK;
  const bool f32 = a->dtype == ANYHAL_DTYPE_F32;
  do {
    const float *x = (const float*)batch.p[0], *y = (const float*)batch.p[1];
    if (f32 && p.a_inner == 1 && p.b_inner == 1) {
      multiply_by_columns(&p, x, y, (float*)batch.p[2]);
    } else if (f32 && p.b_column == 1) {
      multiply_by_rows(&p, x, y, (float*)batch.p[2]);
    } else {
      multiply_any(&p, a->dtype, batch.p[0], batch.p[1], out->dtype, batch.p[2]);
    }
  } while (nest_next(&batch));
  return ANYHAL_STATUS_OK;
}
