/* Walking strided operands together, and what the checks of several ops ask.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "dayone.h"

void nest_add(nest* n, int64_t dim, const int64_t* strides) {
  n->dims[n->outer] = dim;
  n->at[n->outer] = 0;
  for (int k = 0; k < n->operands; ++k) n->strides[k][n->outer] = strides[k];
  ++n->outer;
  n->empty = n->empty || dim == 0;
}

/* Moves every p to the next row; false after the last, when they stand at the first again. */
bool nest_next(nest* n) {
  for (int d = n->outer; d-- > 0;) {
    for (int k = 0; k < n->operands; ++k) n->p[k] += n->strides[k][d];
    if (++n->at[d] < n->dims[d]) return true;
    for (int k = 0; k < n->operands; ++k) n->p[k] -= n->strides[k][d] * n->dims[d];
    n->at[d] = 0;
  }
  return false;
}

/* Operands of equal dims. Dims that follow each other without a gap in all of them become one, so
 * that a dense tensor is a single row. */
nest nest_of(const tensor* const* t, char* const* data, int operands) {
  nest n = {.operands = operands, .row = 1};
  int kept = 0;
  int64_t dims[RANK_MAX], strides[RANK_MAX][OPERANDS_MAX];
  for (uint32_t d = 0; d < t[0]->rank; ++d) {
    int64_t dim = t[0]->dims[d];
    if (d + 1 == t[0]->rank) dim /= block_elements(t[0]->dtype);
    if (dim == 1) continue;
    bool joins = kept > 0;
    for (int k = 0; k < operands && joins; ++k)
      joins = strides[kept - 1][k] == t[k]->strides[d] * dim;
    if (!joins) dims[kept++] = 1;
    dims[kept - 1] *= dim;
    for (int k = 0; k < operands; ++k) strides[kept - 1][k] = t[k]->strides[d];
  }
  for (int k = 0; k < operands; ++k) n.p[k] = data[k];
  for (int d = 0; d < kept; ++d) {
    if (d + 1 == kept) {
      n.row = dims[d];
      memcpy(n.row_strides, strides[d], sizeof n.row_strides);
    } else {
      for (int k = 0; k < operands; ++k) strides[d][k] *= element_bytes(t[k]->dtype);
      nest_add(&n, dims[d], strides[d]);
    }
  }
  n.empty = n.empty || n.row == 0;
  return n;
}

void move(const tensor* from, char* source, const tensor* to, char* target) {
  if (source == target) return; /* the same place, as alias_of said */
  const int64_t bytes = element_bytes(from->dtype);
  nest n = nest_of((const tensor*[]){from, to}, (char*[]){source, target}, 2);
  if (n.empty) return;
  do {
    if (n.row == 1 || (n.row_strides[0] == 1 && n.row_strides[1] == 1)) {
      memcpy(n.p[1], n.p[0], (size_t)(n.row * bytes));
    } else if (bytes == 4) { /* the common case, with a size that the compiler knows */
      for (int64_t i = 0; i < n.row; ++i)
        memcpy(n.p[1] + i * n.row_strides[1] * 4, n.p[0] + i * n.row_strides[0] * 4, 4);
    } else {
      for (int64_t i = 0; i < n.row; ++i)
        memcpy(n.p[1] + i * n.row_strides[1] * bytes, n.p[0] + i * n.row_strides[0] * bytes,
               (size_t)bytes);
    }
  } while (nest_next(&n));
}

void each_chunk(const anyhal_plan* plan, char* const* data, compute_fn compute) {
  const uint32_t last = plan->operands - 1;
  const tensor* t[OPERANDS_MAX];
  for (uint32_t k = 0; k <= last; ++k) t[k] = &plan->t[k];
  nest n = nest_of(t, data, (int)plan->operands);
  if (n.empty) return;
  do {
    for (int64_t i = 0; i < n.row; i += CHUNK) {
      lane v[OPERANDS_MAX];
      const int64_t count = n.row - i < CHUNK ? n.row - i : CHUNK;
      for (uint32_t k = 0; k < last; ++k) {
        const char* from = n.p[k] + i * n.row_strides[k] * element_bytes(t[k]->dtype);
        if (is_float(t[k]->dtype)) {
          load_f64(t[k]->dtype, from, n.row_strides[k], count, v[k].f);
        } else {
          load_i64(t[k]->dtype, from, n.row_strides[k], count, v[k].z);
        }
      }
      compute(plan, v, count);
      char* to = n.p[last] + i * n.row_strides[last] * element_bytes(t[last]->dtype);
      if (is_float(t[last]->dtype)) {
        store_f64(t[last]->dtype, to, n.row_strides[last], count, v[last].f);
      } else {
        store_i64(t[last]->dtype, to, n.row_strides[last], count, v[last].z);
      }
    }
  } while (nest_next(&n));
}

/* ---- what checks ask ---- */

const refusal fits = {ANYHAL_STATUS_OK, 0, "", -1};

refusal wrong(const char* text) { return (refusal){ANYHAL_STATUS_INVALID_ARGUMENT, 0, text, -1}; }

refusal refuse(int32_t reason, const char* text) {
  return (refusal){ANYHAL_STATUS_UNSUPPORTED, reason, text, -1};
}

bool same_dims(const tensor* a, const tensor* b) {
  return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0;
}

/* All operands have the output's dims, and those from `first` on one dtype. */
refusal check_elementwise(const anyhal_plan* plan, uint32_t first) {
  const tensor* out = &plan->t[plan->operands - 1];
  for (uint32_t i = 0; i < plan->operands; ++i) {
    if (!same_dims(&plan->t[i], out)) return wrong("the dims of the operands differ");
    if (i >= first && plan->t[i].dtype != plan->t[first].dtype)
      return refuse(ANYHAL_REASON_DTYPE, "the dtypes of the operands differ");
  }
  return fits;
}

refusal bad_dtype(void) { return refuse(ANYHAL_REASON_DTYPE, "the op does not take these dtypes"); }

bool is_stored(uint32_t dtype) { return is_plain(dtype) || is_f8(dtype); }

bool is_plain(uint32_t dtype) { return is_number(dtype) || dtype == ANYHAL_DTYPE_BOOL; }

bool is_integer(uint32_t dtype) { return is_number(dtype) && !is_float(dtype); }

bool is_index(uint32_t dtype) { return dtype == ANYHAL_DTYPE_I64 || dtype == ANYHAL_DTYPE_I32; }
