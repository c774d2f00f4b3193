// quant_matmul: x[..., M, K] x decode(w[N, K])^T with an epilogue; LANES items for each column.
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

// Walk `rows`: x, out, multiplier, residual. A group is LANES items of ROWS rows and one column:
// each weight is decoded once for ROWS products.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void quant_matmul(
    In x, ulong x_at, In w, ulong w_at, Out out, ulong out_at,
#ifdef BIAS
    In bias, ulong bias_at,
#endif
#ifdef MULTIPLIER
    In multiplier, ulong multiplier_at,
#endif
#ifdef RESIDUAL
    In residual, ulong residual_at,
#endif
    const Walk rows, const QuantProduct p) {
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
    for (int r = 0; r < ROWS; ++r)
      sums[r] = MULTIPLY_ADD(LOAD(X)(x + x_at, from[r] + k * p.x), weight, sums[r]);
  }
  for (int r = 0; r < ROWS; ++r) partial[r][lane] = sums[r];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int r = lane; r < ROWS; r += LANES) {
    const long m = first + r;
    if (m >= p.m) continue;
    float sum = 0;
    for (int i = 0; i < LANES; ++i) sum += partial[r][i];
    float v = p.scale * sum;
#ifdef BIAS
    v += LOAD(BIAS)(bias + bias_at, n * p.bias);
#endif
    v = ACTIVATION(v);
#ifdef MULTIPLIER
    v *= LOAD(MULTIPLIER)(multiplier + multiplier_at, place(&rows, 2, m) + n * p.multiplier);
#endif
#ifdef RESIDUAL
    v += LOAD(RESIDUAL)(residual + residual_at, place(&rows, 3, m) + n * p.residual);
#endif
    STORE(Y)(out + out_at, place(&rows, 1, m) + n * p.out, v);
  }
}
