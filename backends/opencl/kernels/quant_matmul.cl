// quant_matmul: x[..., M, K] x decode(w[N, K])^T with an epilogue.
// SPDX-License-Identifier: Apache-2.0
#define LANES 32

// Twin of QuantProduct in quant_matmul.cc.
typedef struct {
  long m, n, k;
  long x, out, bias, multiplier, residual;  // strides along the last dim
  long w_row;                               // bytes
  float scale;
  int padding;
} QuantProduct;

float sigmoid(float v) {
  const float e = exp(-fabs(v));
  return DIVIDE(v >= 0 ? 1.0f : e, 1.0f + e);
}
float gated(float v, float gate) { return v == -INFINITY ? -0.0f : v * gate; }
#define act_none(v) (v)
#define act_relu(v) ((v) < 0 ? 0.0f : (v))
#define act_gelu(v) gated(v, erfc(-(v) * 0.70710678118654752440f) / 2)
#define act_gelu_tanh(v) \
  gated(v, sigmoid(1.5957691216057308f * ((v) + 0.044715f * (v) * (v) * (v))))
#define act_silu(v) gated(v, sigmoid(v))
#define act_sigmoid(v) sigmoid(v)
#define act_tanh(v) tanh(v)

#ifdef X_DENSE
#define X_AT(r, k) LOAD(X)(x + x_at, from[r] + (k))
#else
#define X_AT(r, k) LOAD(X)(x + x_at, from[r] + (k) * p.x)
#endif

#ifdef BIAS
#define BIAS_OPERAND In bias, ulong bias_at,
#define ADD_BIAS(v) ((v) + LOAD(BIAS)(bias + bias_at, n * p.bias))
#else
#define BIAS_OPERAND
#define ADD_BIAS(v) (v)
#endif
#ifdef MULTIPLIER
#define MULTIPLIER_OPERAND In multiplier, ulong multiplier_at,
#define MULTIPLIED(v) \
  ((v) * LOAD(MULTIPLIER)(multiplier + multiplier_at, place(&rows, 2, m) + n * p.multiplier))
#else
#define MULTIPLIER_OPERAND
#define MULTIPLIED(v) (v)
#endif
#ifdef RESIDUAL
#define RESIDUAL_OPERAND In residual, ulong residual_at,
#define ADD_RESIDUAL(v) \
  ((v) + LOAD(RESIDUAL)(residual + residual_at, place(&rows, 3, m) + n * p.residual))
#else
#define RESIDUAL_OPERAND
#define ADD_RESIDUAL(v) (v)
#endif
#define OPERANDS                                                                          \
  In x, ulong x_at, In w, ulong w_at, Out out, ulong out_at,                              \
      BIAS_OPERAND MULTIPLIER_OPERAND RESIDUAL_OPERAND const Walk rows, const QuantProduct p
#define FINISH(sum)                                                                      \
  {                                                                                      \
    float v = p.scale * (sum);                                                           \
    v = ADD_BIAS(v);                                                                     \
    v = ACTIVATION(v);                                                                   \
    v = MULTIPLIED(v);                                                                   \
    v = ADD_RESIDUAL(v);                                                                 \
    STORE(Y)(out + out_at, place(&rows, 1, m) + n * p.out, v);                           \
  }

// Walk `rows`: x, out, multiplier, residual. Each weight is decoded once for ROWS products.
#ifdef BY_ROW
// Processors: an item for each column, CHUNK weights at once, so that compilers see short loops.
#define CHUNK 32
__kernel void quant_matmul(OPERANDS) {
  const long n = get_global_id(0), first = (long)get_global_id(1) * ROWS;
  if (n >= p.n) return;
  long from[ROWS];
  float sums[ROWS][CHUNK];
  for (int r = 0; r < ROWS; ++r) {
    from[r] = place(&rows, 0, first + r < p.m ? first + r : first);
    for (int i = 0; i < CHUNK; ++i) sums[r][i] = 0;
  }
  In block = w + w_at + n * p.w_row;
  for (long k = 0; k < p.k; k += BLOCK_ELEMENTS, block += BLOCK_BYTES) {
    for (int e = 0; e < BLOCK_ELEMENTS; e += CHUNK) {
      float weights[CHUNK];
      for (int i = 0; i < CHUNK; ++i) weights[i] = DECODE(block, e + i);
      for (int r = 0; r < ROWS; ++r)
        for (int i = 0; i < CHUNK; ++i)
          sums[r][i] = MULTIPLY_ADD(X_AT(r, k + e + i), weights[i], sums[r][i]);
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    const long m = first + r;
    if (m >= p.m) continue;
    for (int half_size = CHUNK / 2; half_size > 0; half_size /= 2)
      for (int i = 0; i < half_size; ++i) sums[r][i] += sums[r][i + half_size];
    FINISH(sums[r][0])
  }
}
#else
// Others: LANES neighbouring items for each column, so that neighbours read neighbouring bytes.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void quant_matmul(OPERANDS) {
  __local float partial[ROWS][LANES];
  const int lane = get_local_id(0);
  const long n = get_group_id(0), first = (long)get_group_id(1) * ROWS;
  long from[ROWS];
  float sums[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    from[r] = place(&rows, 0, first + r < p.m ? first + r : first);
    sums[r] = 0;
  }
  In row = w + w_at + n * p.w_row;
  for (long k = lane; k < p.k; k += LANES) {
    const float weight = DECODE(row + k / BLOCK_ELEMENTS * BLOCK_BYTES, k % BLOCK_ELEMENTS);
    for (int r = 0; r < ROWS; ++r) sums[r] = MULTIPLY_ADD(X_AT(r, k), weight, sums[r]);
  }
  for (int r = 0; r < ROWS; ++r) partial[r][lane] = sums[r];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int r = lane; r < ROWS; r += LANES) {
    const long m = first + r;
    if (m >= p.m) continue;
    float sum = 0;
    for (int i = 0; i < LANES; ++i) sum += partial[r][i];
    FINISH(sum)
  }
}
#endif
