// matmul: a[..., M, K] x b[..., K, N] of X into Y, summed in SUM; transposes are strides.
// SPDX-License-Identifier: Apache-2.0
typedef SUM Acc;

#ifdef FLOATS
#define ADD_PRODUCT(a, b, s) MULTIPLY_ADD(a, b, s)
#else
#define ADD_PRODUCT(a, b, s) ((s) + (a) * (b))  // unsigned: wraps
#endif

// Twin of Product in matmul.cc.
typedef struct {
  long m, n, k;
  long a_row, a_column, b_row, b_column, out_row, out_column;
} Product;

// A square of TILE x TILE results for each group; both factors pass through local memory.
__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void matmul_tile(
    In a, ulong a_at, In b, ulong b_at, Out out, ulong out_at, const Walk batch, const Product p) {
  __local Acc a_tile[TILE][TILE], b_tile[TILE][TILE];
  const int column = get_local_id(0), row = get_local_id(1);
  const long n = (long)get_group_id(0) * TILE + column, m = (long)get_group_id(1) * TILE + row;
  const ulong z = get_group_id(2);
  const long a_from = place(&batch, 0, z), b_from = place(&batch, 1, z);
  Acc sum = 0;
  for (long k = 0; k < p.k; k += TILE) {
    a_tile[row][column] =
        m < p.m && k + column < p.k
            ? (Acc)LOAD(X)(a + a_at, a_from + m * p.a_row + (k + column) * p.a_column)
            : (Acc)0;
    b_tile[row][column] =
        n < p.n && k + row < p.k
            ? (Acc)LOAD(X)(b + b_at, b_from + (k + row) * p.b_row + n * p.b_column)
            : (Acc)0;
    barrier(CLK_LOCAL_MEM_FENCE);
    // Zeros past the end of K must not meet an infinity of the other factor.
    const int end = p.k - k < TILE ? (int)(p.k - k) : TILE;
    for (int j = 0; j < end; ++j) sum = ADD_PRODUCT(a_tile[row][j], b_tile[j][column], sum);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (m < p.m && n < p.n)
    STORE(Y)(out + out_at, place(&batch, 2, z) + m * p.out_row + n * p.out_column,
             (VALUE(Y))sum);
}

// One result for each item: for few rows, where tiles would be mostly empty.
__kernel void matmul_item(In a, ulong a_at, In b, ulong b_at, Out out, ulong out_at,
                          const Walk batch, const Product p) {
  const long n = get_global_id(0), m = get_global_id(1);
  const ulong z = get_global_id(2);
  if (n >= p.n) return;
  const long a_from = place(&batch, 0, z) + m * p.a_row;
  const long b_from = place(&batch, 1, z) + n * p.b_column;
  Acc sum = 0;
  for (long k = 0; k < p.k; ++k)
    sum = ADD_PRODUCT((Acc)LOAD(X)(a + a_at, a_from + k * p.a_column),
                      (Acc)LOAD(X)(b + b_at, b_from + k * p.b_row), sum);
  STORE(Y)(out + out_at, place(&batch, 2, z) + m * p.out_row + n * p.out_column, (VALUE(Y))sum);
}
