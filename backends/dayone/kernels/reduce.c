/* reduce: one function over whole axes; out has x's rank, with 1 where x was reduced.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "../dayone.h"

refusal check_reduce(const anyhal_plan* plan) {
  const tensor *x = &plan->t[0], *out = &plan->t[1];
  const int32_t fn = plan->fn;
  if (fn < ANYHAL_REDUCE_FN_SUM || fn > ANYHAL_REDUCE_FN_ALL)
    return refuse(ANYHAL_REASON_ATTRIBUTE, "this function is unknown here");
  bool takes = is_number(x->dtype);
  if (fn == ANYHAL_REDUCE_FN_MEAN) takes = is_float(x->dtype);
  if (fn >= ANYHAL_REDUCE_FN_ANY) takes = x->dtype == ANYHAL_DTYPE_BOOL;
  const bool widens = fn == ANYHAL_REDUCE_FN_SUM || fn == ANYHAL_REDUCE_FN_PROD;
  if (!takes ||
      !(out->dtype == x->dtype || (widens && is_integer(x->dtype) && is_integer(out->dtype))))
    return bad_dtype();
  if (out->rank != x->rank || plan->axes >> x->rank != 0) return wrong("the axes do not fit");
  bool outputs = true, nothing = false;
  for (uint32_t d = 0; d < x->rank; ++d) {
    const bool reduced = plan->axes >> d & 1;
    if (out->dims[d] != (reduced ? 1 : x->dims[d])) return wrong("the output's dims do not fit");
    outputs = outputs && out->dims[d] != 0;
    nothing = nothing || (reduced && x->dims[d] == 0);
  }
  if ((fn == ANYHAL_REDUCE_FN_MAX || fn == ANYHAL_REDUCE_FN_MIN) && outputs && nothing)
    return wrong("nothing has no maximum or minimum");
  return fits;
}

static double fold_f64(int32_t fn, double total, const double* x, int64_t count) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_PROD:
      for (int64_t i = 0; i < count; ++i) total *= x[i];
      return total;
    case ANYHAL_REDUCE_FN_MAX: /* NaN wins */
      for (int64_t i = 0; i < count; ++i) total = total != total || x[i] <= total ? total : x[i];
      return total;
    case ANYHAL_REDUCE_FN_MIN:
      for (int64_t i = 0; i < count; ++i) total = total != total || x[i] >= total ? total : x[i];
      return total;
    default:
      for (int64_t i = 0; i < count; ++i) total += x[i];
      return total;
  }
}

static int64_t fold_i64(int32_t fn, bool unsigned_value, int64_t total, const int64_t* x,
                        int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const bool greater = unsigned_value ? (uint64_t)x[i] > (uint64_t)total : x[i] > total;
    switch (fn) {
      case ANYHAL_REDUCE_FN_SUM:
        total = (int64_t)((uint64_t)total + (uint64_t)x[i]);
        break;
      case ANYHAL_REDUCE_FN_PROD:
        total = (int64_t)((uint64_t)total * (uint64_t)x[i]);
        break;
      case ANYHAL_REDUCE_FN_MAX:
      case ANYHAL_REDUCE_FN_ANY:
        total = greater ? x[i] : total;
        break;
      default:
        total = greater ? total : x[i];
        break; /* min, all */
    }
  }
  return total;
}

/* What a fold starts from. Maximum and minimum start from the ends of the number line. */
static double start_f64(int32_t fn) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_PROD:
      return 1;
    case ANYHAL_REDUCE_FN_MAX:
      return -HUGE_VAL;
    case ANYHAL_REDUCE_FN_MIN:
      return HUGE_VAL;
    default:
      return 0;
  }
}

static int64_t start_i64(int32_t fn, bool unsigned_value) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_PROD:
    case ANYHAL_REDUCE_FN_ALL:
      return 1;
    case ANYHAL_REDUCE_FN_MAX:
      return unsigned_value ? 0 : INT64_MIN;
    case ANYHAL_REDUCE_FN_MIN:
      return unsigned_value ? -1 : INT64_MAX;
    default:
      return 0;
  }
}

/* Folds all rows of `inner`, whose p[0] stands at the first element of one output's share. */
static void fold_one(const anyhal_plan* plan, nest* inner, int64_t row_stride, int64_t total_count,
                     char* out) {
  const uint32_t x = plan->t[0].dtype, to = plan->t[1].dtype;
  const int32_t fn = plan->fn;
  double f = start_f64(fn);
  int64_t z = start_i64(fn, is_unsigned(x));
  if (!inner->empty && inner->row > 0) {
    do {
      for (int64_t i = 0; i < inner->row; i += CHUNK) {
        double values[CHUNK];
        int64_t numbers[CHUNK];
        const int64_t count = least(CHUNK, inner->row - i);
        const char* from = inner->p[0] + i * row_stride * element_bytes(x);
        if (is_float(x)) {
          load_f64(x, from, row_stride, count, values);
          f = fold_f64(fn, f, values, count);
        } else {
          load_i64(x, from, row_stride, count, numbers);
          z = fold_i64(fn, is_unsigned(x), z, numbers, count);
        }
      }
    } while (nest_next(inner));
  }
  if (fn == ANYHAL_REDUCE_FN_MEAN) f /= (double)total_count; /* 0 / 0 = NaN over nothing */
  if (is_float(x)) {
    store_f64(to, out, 1, 1, &f);
  } else {
    store_i64(to, out, 1, 1, &z);
  }
}

RUN(reduce) {
  (void)workspace, (void)error;
  const tensor *x = &plan->t[0], *out = &plan->t[1];
  const int64_t bytes = element_bytes(x->dtype);
  nest kept = {.operands = 2, .p = {data[0], data[1]}};
  nest inner = {.operands = 1, .row = 1};
  int64_t count = 1, row_stride = 0;
  for (uint32_t d = 0; d < x->rank; ++d) {
    if (plan->axes >> d & 1) { /* the last of the axes is the row */
      count *= x->dims[d];
      if (plan->axes >> (d + 1) == 0) {
        inner.row = x->dims[d];
        row_stride = x->strides[d];
      } else {
        nest_add(&inner, x->dims[d], (int64_t[]){x->strides[d] * bytes});
      }
    } else {
      nest_add(&kept, x->dims[d],
               (int64_t[]){x->strides[d] * bytes, out->strides[d] * element_bytes(out->dtype)});
    }
  }
  if (kept.empty) return ANYHAL_STATUS_OK;
  do {
    inner.p[0] = kept.p[0];
    fold_one(plan, &inner, row_stride, count, kept.p[1]);
  } while (nest_next(&kept));
  return ANYHAL_STATUS_OK;
}
