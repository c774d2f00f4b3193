// rms_norm: t / sqrt(mean(t^2) + eps) * weight along the last axis of t = x + residual.
// SPDX-License-Identifier: Apache-2.0
typedef VALUE(X) T;

// Squares of f32 fit in f64; without it, and for f64 itself, rows are scaled by a power of two.
#if defined(DOUBLES)
typedef double Wide;
#define LARGE 0x1p400
#define SMALL 0x1p-400
#define DOWN 0x1p-600
#define UP 0x1p500
#else
typedef float Wide;
#define LARGE 0x1p40f
#define SMALL 0x1p-40f
#define DOWN 0x1p-80f
#define UP 0x1p80f
#endif

Wide folded(__local Wide* partial, Wide mine, bool sums) {
  const uint item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  partial[item] = mine;
  for (uint half_size = GROUP / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_size) {
      const Wide a = partial[item], b = partial[item + half_size];
      partial[item] = sums ? a + b : b > a ? b : a;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return partial[0];
}

// Walk: x, out, residual, total over the rows. Twin of Norm in rms_norm.cc.
typedef struct {
  long size;
  long x, out, residual, total, weight;  // strides along the row
  float eps;
  int padding;
} Norm;

#ifdef RESIDUAL
#define SUM_AT(j)                                                            \
  (LOAD(X)(x + x_at, x_from + (j) * norm.x) +                                \
   LOAD(X)(residual + residual_at, residual_from + (j) * norm.residual))
#else
#define SUM_AT(j) LOAD(X)(x + x_at, x_from + (j) * norm.x)
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rms_norm(
    In x, ulong x_at, Out out, ulong out_at,
#ifdef WEIGHT
    In weight, ulong weight_at,
#endif
#ifdef RESIDUAL
    In residual, ulong residual_at, Out total, ulong total_at,
#endif
    const Walk rows, const Norm norm) {
  __local Wide partial[GROUP];
  const ulong i = get_group_id(0);
  const long x_from = place(&rows, 0, i), out_from = place(&rows, 1, i);
#ifdef RESIDUAL
  const long residual_from = place(&rows, 2, i), total_from = place(&rows, 3, i);
#endif
  Wide largest = 0;
  for (long j = get_local_id(0); j < norm.size; j += GROUP) {
    const Wide t = fabs((Wide)SUM_AT(j));
    largest = t > largest ? t : largest;
  }
  largest = folded(partial, largest, false);
  const Wide eps = norm.eps;
  const Wide scale = largest > LARGE ? DOWN : largest < SMALL && eps < SMALL * SMALL ? UP : 1;
  Wide squares = 0;
  for (long j = get_local_id(0); j < norm.size; j += GROUP) {
    const Wide t = (Wide)SUM_AT(j) * scale;
    squares += t * t;
  }
  squares = folded(partial, squares, true);
  const Wide root = sqrt(squares / (Wide)norm.size + eps * scale * scale);
  for (long j = get_local_id(0); j < norm.size; j += GROUP) {
    const VALUE(X) sum = SUM_AT(j);
    Wide y = (Wide)sum * scale / root;
#ifdef WEIGHT
    y *= (Wide)LOAD(X)(weight + weight_at, j * norm.weight);
#endif
#ifdef RESIDUAL
    STORE(X)(total + total_at, total_from + j * norm.total, sum);
#endif
    STORE(X)(out + out_at, out_from + j * norm.out, (VALUE(X))y);
  }
}
