// attention: a group for each query; keys pass in tiles of GROUP, with a running maximum and sum.
// SPDX-License-Identifier: Apache-2.0
typedef VALUE(X) T;

// Twin of Attention in attention.cc; strides in the order of the dims.
typedef struct {
  long heads, queries, keys, depth, width, group;
  long q[4], k[4], v[4], out[4], mask[4], lse[3];
  long length, sink;
  ulong window;
  float scale, softcap;
  int causal, padding;  // 1 none, 2 first key, 3 last key
} Attention;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention(
    In q, ulong q_at, In k, ulong k_at, In v, ulong v_at, Out out, ulong out_at,
#ifdef INDEX
    In length, ulong length_at, __global const Fault* fault,
#endif
#ifdef MASK
    In mask, ulong mask_at,
#endif
#ifdef SINKS
    In sinks, ulong sinks_at,
#endif
#ifdef LSE
    Out lse, ulong lse_at,
#endif
    const Attention p) {
  __local T weights[GROUP];
  const int item = get_local_id(0);
  const long t = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
  long keys = p.keys;
#ifdef INDEX
  if (fault->set) return;  // the same for the whole group
  keys = LOAD(INDEX)(length + length_at, b * p.length);
#endif
  // The keys visible to query t but for a mask.
  long begin = 0, end = keys;
  if (p.causal != 1) {
    const long past = (p.causal == 3 ? keys - p.queries : 0) + t + 1;
    if (p.window != 0 && past >= 0 && p.window < (ulong)past) begin = past - (long)p.window;
    end = past < 0 ? 0 : past < keys ? past : keys;
  }
  const long q_from = b * p.q[0] + h * p.q[1] + t * p.q[2];
  const long k_from = b * p.k[0] + h / p.group * p.k[1];
  const long v_from = b * p.v[0] + h / p.group * p.v[1];
  T top = (T)(-INFINITY), total = 0;
#ifdef SINKS
  top = LOAD(X)(sinks + sinks_at, h * p.sink);
  total = top == (T)(-INFINITY) ? (T)0 : exp(top - top);  // NaN stays
#endif
  T sums[WIDTHS];
  for (int w = 0; w < WIDTHS; ++w) sums[w] = 0;

  for (long first = begin; first < end; first += GROUP) {
    const long j = first + item;
    bool hidden = j >= end;
    T score = (T)(-INFINITY);
#if defined(MASK) && defined(TRUTHS)
    if (!hidden)
      hidden = !LOAD(MASK)(mask + mask_at,
                           b * p.mask[0] + h * p.mask[1] + t * p.mask[2] + j * p.mask[3]);
#endif
    if (!hidden) {
      T dot_product = 0;
      for (long d = 0; d < p.depth; ++d)
        dot_product = MULTIPLY_ADD(LOAD(X)(q + q_at, q_from + d * p.q[3]),
                                   LOAD(X)(k + k_at, k_from + j * p.k[2] + d * p.k[3]),
                                   dot_product);
      score = dot_product * (T)p.scale;
      if (p.softcap != 0) score = (T)p.softcap * tanh(DIVIDE(score, (T)p.softcap));
#if defined(MASK) && !defined(TRUTHS)
      score += LOAD(MASK)(mask + mask_at,
                          b * p.mask[0] + h * p.mask[1] + t * p.mask[2] + j * p.mask[3]);
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // the last tile's weights have been read
    weights[item] = score;
    barrier(CLK_LOCAL_MEM_FENCE);
    T higher = top;
    for (int i = 0; i < GROUP; ++i) higher = weights[i] > higher ? weights[i] : higher;
    const T kept = top == (T)(-INFINITY) ? (T)0 : exp(top - higher);
    top = higher;
    barrier(CLK_LOCAL_MEM_FENCE);  // every item has seen the scores
    T weight = score != score ? score : top == (T)(-INFINITY) ? (T)0 : exp(score - top);
    weights[item] = hidden ? (T)(-1) : weight;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int count = end - first < GROUP ? (int)(end - first) : GROUP;
    total *= kept;
    for (int i = 0; i < count; ++i)
      if (weights[i] != -1) total += weights[i];
    for (int w = 0; w < WIDTHS; ++w) {
      const long d = item + w * GROUP;
      if (d >= p.width) continue;
      T sum = sums[w] * kept;
      // What is hidden has no part, also where it is NaN.
      for (int i = 0; i < count; ++i)
        if (weights[i] != -1)
          sum = MULTIPLY_ADD(weights[i],
                             LOAD(X)(v + v_at, v_from + (first + i) * p.v[2] + d * p.v[3]), sum);
      sums[w] = sum;
    }
  }
  for (int w = 0; w < WIDTHS; ++w) {
    const long d = item + w * GROUP;
    if (d < p.width)
      STORE(X)(out + out_at, b * p.out[0] + h * p.out[1] + t * p.out[2] + d * p.out[3],
               total == 0 ? (T)0 : DIVIDE(sums[w], total));
  }
#ifdef LSE
  if (item == 0)
    STORE(LSE)(lse + lse_at, b * p.lse[0] + h * p.lse[1] + t * p.lse[2],
               total == 0 ? (T)(-INFINITY) : top + log(total));
#endif
}
