/* What the files of this backend share: tensors, plans, and the rows of its op table.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BACKENDS_DAYONE_DAYONE_H_
#define BACKENDS_DAYONE_DAYONE_H_

#include <stdbool.h>
#include <stdint.h>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

enum { RANK_MAX = 8, OPERANDS_MAX = 4 };

/* An operand as prepared: everything but its address. Strides count elements (blocks). */
typedef struct tensor {
  uint32_t dtype;
  uint32_t rank;
  uint32_t flags;
  uint32_t alias_of;
  int64_t dims[RANK_MAX];
  int64_t strides[RANK_MAX];
} tensor;

/* Why a description is refused. */
typedef struct refusal {
  anyhal_status status; /* OK, UNSUPPORTED, or INVALID_ARGUMENT for the caller's mistakes */
  int32_t reason;       /* anyhal_reason of UNSUPPORTED */
  const char* text;     /* why; see what_to_do in backend.c */
  int32_t operand;      /* whose fault it is, -1 where it is no single one's */
} refusal;

typedef struct op_row op_row;

/* Plans are immutable after prepare: every thread may run them at once. */
struct anyhal_plan {
  const op_row* row;
  int32_t fn;        /* unary, binary, reduce; of cast: overflow */
  uint64_t axes;     /* reduce: bit mask; gather and scatter_add: the axis */
  uint32_t operands; /* inputs, then the output */
  tensor t[OPERANDS_MAX];
  anyhal_prepared prepared;
};

/* One op: `dtypes` and `formats` are what the device declares; they and `check` answer op_query and
 * op_prepare, so that none says other than the rest; `run` is op_enqueue. What has no row is
 * unsupported, and the core runs it through the ops that have one. */
struct op_row {
  uint32_t op;
  const char* name;
  refusal (*check)(const anyhal_plan* plan);
  anyhal_status (*run)(const anyhal_plan* plan, char* const* data, char* workspace,
                       anyhal_error* error);
  uint32_t inputs;
  uint32_t attributes_size;
  uint32_t main;    /* the operand whose dtype is declared: the first, but for where */
  uint64_t dtypes;  /* it may be: bit d is dtype d */
  uint64_t formats; /* the same of dtypes from 64 on: block formats, packed integers */
};

/* Fills an error record and returns `status`. The text says why and what to do; what failed and
 * where ("add (binary) on mychip:0") is put before it by the core, which alone knows both. */
anyhal_status fail(anyhal_error* error, anyhal_status status, int32_t reason, const char* format,
                   ...) __attribute__((format(printf, 4, 5)));

/* ---- elements.c: reading and writing runs of elements, whatever their dtype ---- */

uint32_t element_bytes(uint32_t dtype);  /* of a block for block formats, 0 for unknown dtypes */
uint32_t block_elements(uint32_t dtype); /* of packed integers 2, of block formats 32 or 256 */
bool is_float(uint32_t dtype);
bool is_f8(uint32_t dtype);
bool is_packed(uint32_t dtype);
bool is_unsigned(uint32_t dtype);
bool is_number(uint32_t dtype); /* floats and integers that ops compute with */

/* Arithmetic here has three types only: double for floats, which is exact enough to round once at
 * the end, and 64-bit integers, whose low bits are those of every narrower type. */
void load_f64(uint32_t dtype, const char* from, int64_t stride, int64_t count, double* to);
void load_i64(uint32_t dtype, const char* from, int64_t stride, int64_t count, int64_t* to);
void store_f64(uint32_t dtype, char* to, int64_t stride, int64_t count, const double* from);
void store_i64(uint32_t dtype, char* to, int64_t stride, int64_t count, const int64_t* from);
float half_to_float(uint16_t half);

/* ---- formats.c: 8-bit floats, packed integers, block formats of GGUF files ---- */

double f8_value(uint32_t dtype, uint8_t code);
/* The nearest code, ties to even; past the largest it is the largest, or infinity or NaN. */
uint8_t f8_code(uint32_t dtype, double value, bool saturate);
/* Pairs of i4 or u4; count is even. */
void load_pairs(uint32_t dtype, const char* from, int64_t count, int64_t* to);
void store_pairs(char* to, int64_t count, const int64_t* from);
enum { BLOCK_MAX = 256 };
/* One block, exactly. */
void decode_block(uint32_t dtype, const char* from, double* to);
void decode_blocks(uint32_t dtype, const char* from, int64_t blocks, float* to);

/* ---- walk.c: strided operands ---- */

/* A loop nest over several operands at once. The innermost dim is the row, which kernels loop over
 * themselves; `p` says where it starts in each operand. Outer strides are in bytes. */
typedef struct nest {
  int outer;
  int operands;
  int64_t dims[2 * RANK_MAX];
  int64_t at[2 * RANK_MAX];
  int64_t strides[OPERANDS_MAX][2 * RANK_MAX];
  int64_t row;
  int64_t row_strides[OPERANDS_MAX]; /* in elements */
  char* p[OPERANDS_MAX];
  bool empty;
} nest;

void nest_add(nest* n, int64_t dim, const int64_t* strides);
bool nest_next(nest* n);
nest nest_of(const tensor* const* t, char* const* data, int operands);
/* Copies an operand to another of the same dims and dtype. */
void move(const tensor* from, char* source, const tensor* to, char* target);

/* Elements handled at a time, in one of the wide types; the lanes of a call fit on the stack. */
enum { CHUNK = 256 };
typedef union lane {
  double f[CHUNK];  /* of floats */
  int64_t z[CHUNK]; /* of everything else */
} lane;

/* Loads the inputs chunk by chunk, lets `compute` fill the output's lane, and stores it. */
typedef void (*compute_fn)(const anyhal_plan* plan, lane* v, int64_t count);
void each_chunk(const anyhal_plan* plan, char* const* data, compute_fn compute);

extern const refusal fits;
refusal wrong(const char* text); /* the caller's mistake */
refusal refuse(int32_t reason, const char* text);
refusal bad_dtype(void);
bool same_dims(const tensor* a, const tensor* b);
refusal check_elementwise(const anyhal_plan* plan, uint32_t first);
bool is_plain(uint32_t dtype);
bool is_stored(uint32_t dtype); /* elements with bytes of their own: is_plain, and 8-bit floats */
bool is_integer(uint32_t dtype);
bool is_index(uint32_t dtype);
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- kernels/<op>.c ---- */

/* Of gather and scatter_add: see gather.c. */
bool replaces_axis(const tensor* t, const tensor* whole, const tensor* indices, uint32_t axis);
tensor without(const tensor* t, uint32_t axis, uint32_t count);
nest index_walk(const tensor* indices, char* data, const tensor* t, char* place, uint32_t axis);
anyhal_status check_indices(const anyhal_plan* plan, nest walk, int64_t limit, anyhal_error* error);
uint64_t scatter_add_workspace(const anyhal_plan* plan);

/* One op's two functions. */
#define RUN(OP)                                                                       \
  anyhal_status run_##OP(const anyhal_plan* plan, char* const* data, char* workspace, \
                         anyhal_error* error)
#define KERNEL(OP)                             \
  refusal check_##OP(const anyhal_plan* plan); \
  RUN(OP)

KERNEL(copy);
KERNEL(fill);
KERNEL(cast);
KERNEL(unary);
KERNEL(binary);
KERNEL(where);
KERNEL(reduce);
KERNEL(matmul);
KERNEL(gather);
KERNEL(scatter_add);

#endif
