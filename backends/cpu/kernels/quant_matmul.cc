// quant_matmul: x · dequant(w)ᵀ with exact activations, on weights repacked 16 rows side by side.
// SPDX-License-Identifier: Apache-2.0
//
// Where the caller allows it, activations are rounded to bf16 (panels) or to 8 bits (int8_rows.h).
#include "direct.h"
#include "gemm.h"
#include "int8_rows.h"
#include "kernel.h"
#include "packed_rows.h"
#include "pairs.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int64_t kFewRows = 33;           // from here on, dequantising whole panels pays
constexpr int64_t kGrainWeights = 160000;  // of one thread: about 2 µs

struct State {
  int64_t m, n, k;
  int64_t batch;
  int32_t batch_rank;
  int64_t batch_dims[kRankMax];
  int64_t batch_strides[4][kRankMax];  // bytes: x, multiplier, residual, out
  int64_t x_row, x_column;             // bytes
  int64_t w_row;                       // bytes
  int64_t blocks;                      // of one row
  int64_t packed_bytes;
  bool few;     // rows of x: few enough to read the weights as they are packed
  bool pairs;   // factors are rounded to bf16
  bool int8;    // x is rounded to 8 bits
  bool repack;  // the weights are not constant: packed at each call
  ReadRow read_x;
  PackPanel<float> pack_x;
  Finish finish;
  SideOperand sides[3];  // strides and readers; data comes with the call
  int64_t out_row, out_column;
  uint32_t dtype, x_dtype;
  int64_t x_bytes;  // workspace of x as f32
};

// ------------------------------------------------------------------------------------ packing

template <class Q>
void pack_group(const State& s, const char* weights, int64_t group, char* packed) {
  constexpr uint32_t kDtype = Q::kPerWord == 8 ? ANYHAL_DTYPE_Q4_1 : ANYHAL_DTYPE_Q8_0;
  constexpr int64_t kSource = Q::kPerWord == 8 ? 20 : 34;
  static_assert(kDtype != 0);
  char* to = packed + group * s.blocks * Q::kBytes;
  memset(to, 0, static_cast<size_t>(s.blocks * Q::kBytes));
  for (int64_t r = 0; r < kGroup && group * kGroup + r < s.n; ++r) {
    const char* row = weights + (group * kGroup + r) * s.w_row;
    for (int64_t b = 0; b < s.blocks; ++b) {
      const uint8_t* from = reinterpret_cast<const uint8_t*>(row + b * kSource);
      char* block = to + b * Q::kBytes;
      memcpy(block + 2 * r, from, 2);
      uint32_t words[8] = {};
      if constexpr (Q::kPerWord == 8) {
        memcpy(block + 32 + 2 * r, from + 2, 2);
        for (int i = 0; i < 32; ++i) {
          uint32_t nibble = i < 16 ? from[4 + i] & 15u : from[4 + i - 16] >> 4;
          words[i / 8] |= nibble << (4 * (i % 8));
        }
      } else {
        memcpy(words, from + 2, 32);
      }
      for (int i = 0; i < 32 / Q::kPerWord; ++i)
        memcpy(block + Q::kHeader + i * 64 + r * 4, &words[i], 4);
    }
  }
}

template <class Q>
void pack_weights(const Plan& plan, const char* source, char* packed) {
  const State& s = plan.get_state<State>();
  int64_t groups = round_up(s.n, kRowUnit) / kGroup;
  split_range(plan.team, groups, 64, 1, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) pack_group<Q>(s, source, g, packed);
  });
}

// ---------------------------------------------------------------------------------- few rows

// kRows rows of x against kGroups groups; tile is [kRows][kGroups * 16].
template <class Q, int kRows, int kGroups, int kChains>
inline void few_rows(const State& s, const char* packed, int64_t group, const float* x,
                     int64_t x_row, float* tile) {
  constexpr int kVectors = kGroups * kVectorsPerGroup;
  constexpr int kWords = static_cast<int>(kBlock) / Q::kPerWord;
  F32 sum[kRows][kVectors][kChains];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) sum[r][v][c] = F32{};
  const char* from = packed + group * s.blocks * Q::kBytes;
  for (int64_t b = 0; b < s.blocks; ++b, from += Q::kBytes, x += kBlock) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const char* block = from + v / kVectorsPerGroup * s.blocks * Q::kBytes;
      int part = v % kVectorsPerGroup;
      Scales<Q> scales = load_scales<Q>(block, part);
      const char* words = block + Q::kHeader + part * kF32Lanes * 4;
#pragma GCC unroll 8
      for (int w = 0; w < kWords; ++w) {
        each_weight<Q>(load_words(words + w * 64), scales, [&](int i, F32 value) {
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            F32 factor = splat(x[r * x_row + w * Q::kPerWord + i]);
            F32& chain = sum[r][v][i % kChains];
            chain = multiply_add<float>(factor, value, chain);
          }
        });
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      F32 total = sum[r][v][0];
#pragma GCC unroll 4
      for (int c = 1; c < kChains; ++c) total += sum[r][v][c];
      store(tile + r * kGroups * kGroup + v * kF32Lanes, total);
    }
  }
}

struct Call {
  const char* x;
  const char* packed;
  char* out;
  Finish finish;
};

// kRows rows of x against the 32 weight rows of one unit.
template <class Q, int kRows>
inline void rows_of_unit(const State& s, const Call& call, const float* x, int64_t row,
                         int64_t unit) {
  // Eight accumulators hide the latency of the additions, however they are made up.
  constexpr int kGroups = kRows == 8 ? 1 : 2;
  constexpr int kChains = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  constexpr int64_t kColumns = kGroups * kGroup;
  alignas(64) float tile[kRows * kColumns];
  int64_t end = (unit + 1) * kRowUnit < s.n ? (unit + 1) * kRowUnit : s.n;
  for (int64_t column = unit * kRowUnit; column < end; column += kColumns) {
    few_rows<Q, kRows, kGroups, kChains>(s, call.packed, column / kGroup, x + row * s.k, s.k, tile);
    int64_t columns = end - column < kColumns ? end - column : kColumns;
    finish_rows(call.finish, tile, kColumns, row, kRows, column, columns, call.out, s.out_row,
                s.out_column);
  }
}

#if defined(__AVX512F__)
// The 8-bit rows are made first; rows that are not finite are multiplied as they are.
template <class Q>
void run_int8(const Plan& plan, const State& s, const Call& call, char* workspace) {
  const int64_t stride = int8_row_bytes(s.k);
  float* x = reinterpret_cast<float*>(workspace + s.m * stride);
  const bool copied = s.x_bytes != 0;
  if (!copied) x = reinterpret_cast<float*>(const_cast<char*>(call.x));
  split_range(plan.team, s.m, kParallelGrain / s.k, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (copied) s.read_x(call.x + r * s.x_row, s.x_column, s.k, x + r * s.k);
      round_row<Q>(x + r * s.k, s.k, workspace + r * stride);
    }
  });
  int64_t units = round_up(s.n, kRowUnit) / kRowUnit;
  int64_t grain = 4 * kGrainWeights / (kRowUnit * s.k * s.m);
  split_range(plan.team, units, grain, 1, [&](int64_t begin, int64_t end) {
    alignas(64) float tile[kInt8Rows * kGroup];
    for (int64_t row = 0; row < s.m; row += kInt8Rows) {
      const int64_t rows = s.m - row < kInt8Rows ? s.m - row : kInt8Rows;
      const char* rounded = workspace + row * stride;
      const bool finite = rows_finite(rounded, stride, rows, s.blocks);
      for (int64_t unit = begin; unit < end; ++unit) {
        if (!finite) {
          for (int64_t r = 0; r < rows; ++r) rows_of_unit<Q, 1>(s, call, x, row + r, unit);
          continue;
        }
        for (int64_t column = unit * kRowUnit; column < (unit + 1) * kRowUnit && column < s.n;
             column += kGroup) {
          int8_rows<Q>(call.packed + column / kGroup * s.blocks * Q::kBytes, s.blocks, rounded,
                       stride, rows, tile);
          const int64_t columns = s.n - column < kGroup ? s.n - column : kGroup;
          finish_rows(call.finish, tile, kGroup, row, rows, column, columns, call.out, s.out_row,
                      s.out_column);
        }
      }
    }
  });
}

// For any number of rows faster than what else is allowed (benchmarks/gemm.py --numerics int8).
bool use_int8(const Plan& plan, const State& s) {
  return plan.accumulate == ANYHAL_ACCUMULATE_INT8 && plan.dots_int8 && !plan.ordered && s.k > 0 &&
         s.m > 0;
}
#else
template <class Q>
void run_int8(const Plan&, const State&, const Call&, char*) {}
bool use_int8(const Plan&, const State&) { return false; }
constexpr int64_t int8_row_bytes(int64_t) { return 0; }
#endif

template <class Q>
void run_few(const Plan& plan, const State& s, const Call& call, char* workspace) {
  const float* x = reinterpret_cast<const float*>(call.x);
  if (s.x_bytes != 0) {
    float* copy = reinterpret_cast<float*>(workspace);
    for (int64_t r = 0; r < s.m; ++r)
      s.read_x(call.x + r * s.x_row, s.x_column, s.k, copy + r * s.k);
    x = copy;
  }
  int64_t units = round_up(s.n, kRowUnit) / kRowUnit;
  int64_t grain = kGrainWeights / (kRowUnit * (s.k < 1 ? 1 : s.k) * (s.m < 1 ? 1 : s.m));
  split_range(plan.team, units, grain < 1 ? 1 : grain, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t row = 0;
      for (; row + 8 <= s.m; row += 8) rows_of_unit<Q, 8>(s, call, x, row, unit);
      for (; row + 4 <= s.m; row += 4) rows_of_unit<Q, 4>(s, call, x, row, unit);
      for (; row + 2 <= s.m; row += 2) rows_of_unit<Q, 2>(s, call, x, row, unit);
      if (row < s.m) rows_of_unit<Q, 1>(s, call, x, row, unit);
    }
  });
}

// --------------------------------------------------------------------------------- many rows

template <class Q>
void dequantise_panel(const Product<float>& p, int64_t panel, int64_t k, int64_t depth, float* to) {
  constexpr int64_t kColumns = Tile<float>::kColumns;
  constexpr int kWords = static_cast<int>(kBlock) / Q::kPerWord;
  const State& s = *static_cast<const State*>(p.b_context);
  for (int v = 0; v < Tile<float>::kVectors; ++v) {
    int64_t column = panel * kColumns + v * kF32Lanes;
    int part = static_cast<int>(column % kGroup) / kF32Lanes;
    const char* block = p.b + (column / kGroup * s.blocks + k / kBlock) * Q::kBytes;
    float* line = to + v * kF32Lanes;
    for (int64_t b = 0; b < depth / kBlock; ++b, block += Q::kBytes) {
      Scales<Q> scales = load_scales<Q>(block, part);
      const char* words = block + Q::kHeader + part * kF32Lanes * 4;
#pragma GCC unroll 8
      for (int w = 0; w < kWords; ++w) {
        each_weight<Q>(load_words(words + w * 64), scales, [&](int, F32 value) {
          store(line, value);
          line += kColumns;
        });
      }
    }
  }
}

#if defined(__AVX512F__)
// dequantise_panel with k and depth in pairs.
template <class Q>
HAL_CPU_BF16 void dequantise_pairs(const Product<float>& p, int64_t panel, int64_t k, int64_t depth,
                                   float* to) {
  constexpr int64_t kColumns = Tile<float>::kColumns, kPairs = kBlock / 2;
  constexpr int kWords = static_cast<int>(kBlock) / Q::kPerWord;
  const State& s = *static_cast<const State*>(p.b_context);
  for (int v = 0; v < Tile<float>::kVectors; ++v) {
    int64_t column = panel * kColumns + v * kF32Lanes;
    const char* block = p.b + (column / kGroup * s.blocks + k / kPairs) * Q::kBytes;
    float* line = to + v * kF32Lanes;
    for (int64_t b = 0; b < depth / kPairs; ++b, block += Q::kBytes) {
      Scales<Q> scales = load_scales<Q>(block, 0);
      for (int w = 0; w < kWords; ++w) {
        F32 values[Q::kPerWord];
        each_weight<Q>(load_words(block + Q::kHeader + w * 64), scales,
                       [&](int i, F32 value) { values[i] = value; });
#pragma GCC unroll 4
        for (int i = 0; i < Q::kPerWord; i += 2, line += kColumns)
          _mm512_storeu_si512(line, pairs_of(reinterpret_cast<__m512>(values[i]),
                                             reinterpret_cast<__m512>(values[i + 1])));
      }
    }
  }
}

template <class Q>
void take_pairs(const State& s, Product<float>* p) {
  if (!s.pairs) return;
  constexpr int kRows = Tile<float>::kRows;
  p->k = s.k / 2;
  p->a_along *= 2;
  p->pack_a = s.x_dtype == ANYHAL_DTYPE_F32 ? pack_pairs<float, kRows> : pack_pairs<BF16, kRows>;
  p->fill_b = dequantise_pairs<Q>;
  p->tile = run_pairs_tile;
}

bool use_pairs(const Plan& plan, const State& s) {
  return s.x_dtype != ANYHAL_DTYPE_F16 && pairs_pay(plan, s.m, s.n, s.k);
}
#else
template <class Q>
void take_pairs(const State&, Product<float>*) {}
bool use_pairs(const Plan&, const State&) { return false; }
#endif

template <class Q>
void run_many(const Plan& plan, const State& s, const Call& call, char* workspace) {
  Product<float> p = {};
  p.m = s.m;
  p.n = s.n;
  p.k = s.k;
  p.a = call.x;
  p.a_across = s.x_row;
  p.a_along = s.x_column;
  p.pack_a = s.pack_x;
  p.b = call.packed;
  p.fill_b = dequantise_panel<Q>;
  p.b_context = &s;
  p.out = call.out;
  p.out_row_stride = s.out_row;
  p.out_column_stride = s.out_column;
  p.finish = &call.finish;
  take_pairs<Q>(s, &p);
  run_product(p, plan.team, workspace);
}

// -------------------------------------------------------------------------------------- calls

template <class Q>
anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.m == 0 || s.n == 0 || s.batch == 0) return ANYHAL_STATUS_OK;
  const char* packed = data[1];
  if (s.repack) {
    pack_weights<Q>(plan, data[1], workspace);
    packed = workspace;
    workspace += s.packed_bytes;
  }
  for (int64_t i = 0; i < s.batch; ++i) {
    int64_t offsets[4] = {};
    int64_t rest = i;
    for (int32_t d = s.batch_rank - 1; d >= 0; --d) {
      int64_t at = rest % s.batch_dims[d];
      rest /= s.batch_dims[d];
      for (int t = 0; t < 4; ++t) offsets[t] += at * s.batch_strides[t][d];
    }
    Call call = {data[0] + offsets[0], packed, data[5] + offsets[3], s.finish};
    SideOperand* sides[] = {&call.finish.bias, &call.finish.multiplier, &call.finish.residual};
    for (int t = 0; t < 3; ++t) {
      *sides[t] = s.sides[t];
      if (s.sides[t].read != nullptr) sides[t]->data = data[2 + t] + (t > 0 ? offsets[t] : 0);
    }
    if (s.int8)
      run_int8<Q>(plan, s, call, workspace);
    else if (s.few)
      run_few<Q>(plan, s, call, workspace);
    else
      run_many<Q>(plan, s, call, workspace);
  }
  return ANYHAL_STATUS_OK;
}

// Merges x's leading dims into its rows as far as all row operands allow; the rest is the batch.
void collapse_rows(State& s, const Tensor* const* tensors) {
  const Tensor& out = *tensors[3];
  int64_t row_strides[4] = {};
  int64_t rows = 1;
  s.batch = 1;
  s.batch_rank = 0;
  bool merging = true;
  for (int64_t d = static_cast<int64_t>(out.rank) - 2; d >= 0; --d) {
    if (out.dims[d] == 1) continue;
    int64_t strides[4] = {};
    bool fits = merging;
    for (int t = 0; t < 4; ++t) {
      if (tensors[t] == nullptr) continue;
      strides[t] = tensors[t]->strides[d] * element_bytes(tensors[t]->dtype);
      if (rows != 1) fits = fits && strides[t] == row_strides[t] * rows;
    }
    if (fits) {
      if (rows == 1)
        for (int t = 0; t < 4; ++t) row_strides[t] = strides[t];
      rows *= out.dims[d];
      continue;
    }
    merging = false;
    for (int t = 0; t < 4; ++t) s.batch_strides[t][s.batch_rank] = strides[t];
    s.batch_dims[s.batch_rank++] = out.dims[d];
    s.batch *= out.dims[d];
  }
  s.m = rows;
  s.x_row = row_strides[0];
  s.sides[1].row_stride = row_strides[1];
  s.sides[2].row_stride = row_strides[2];
  s.out_row = row_strides[3];
}

int64_t last_stride(const Tensor& t) {
  return t.rank == 0 ? 0 : t.strides[t.rank - 1] * element_bytes(t.dtype);
}

PackPanel<float> row_packer(uint32_t dtype) {
  constexpr int kRows = Tile<float>::kRows;
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return pack_panel<float, float, kRows>;
    case ANYHAL_DTYPE_F16:
      return pack_panel<F16, float, kRows>;
    default:
      return pack_panel<BF16, float, kRows>;
  }
}

}  // namespace

bool prepare_quant_matmul(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor& x = plan.input(0);
  const Tensor& w = plan.input(1);
  const Tensor& out = plan.output();
  const auto& attrs = plan.attribute<anyhal_attrs_quant_matmul>();
  s = {};
  const Tensor* rows[4] = {&x, nullptr, nullptr, &out};
  for (uint32_t t = 0; t < 3; ++t) {
    const Tensor& side = plan.input(2 + t);
    if (side.absent()) continue;
    s.sides[t] = {nullptr, 0, last_stride(side), reader_of(side.dtype)};
    if (t > 0) rows[t] = &side;
  }
  collapse_rows(s, rows);
  s.n = w.dims[w.rank - 2];
  s.k = w.dims[w.rank - 1];
  s.x_column = last_stride(x);
  s.out_column = last_stride(out);
  s.w_row = w.strides[w.rank - 2] * element_bytes(w.dtype);
  s.blocks = s.k / kBlock;
  s.dtype = w.dtype;
  s.x_dtype = x.dtype;
  s.few = s.m < kFewRows && !plan.ordered;
  s.pairs = !s.few && use_pairs(plan, s);
  s.int8 = use_int8(plan, s);
  if (s.pairs || s.int8) plan.accumulated = plan.accumulate;
  s.read_x = reader_of(x.dtype);
  s.pack_x = row_packer(x.dtype);
  s.finish = {attrs.scale, attrs.activation, {}, {}, {}, writer_of(out.dtype)};
  bool q4 = w.dtype == ANYHAL_DTYPE_Q4_1;
  int64_t block_bytes = q4 ? Q4::kBytes : Q8::kBytes;
  s.packed_bytes = round_up(s.n, kRowUnit) / kGroup * s.blocks * block_bytes;
  s.repack = !w.constant();
  bool in_place =
      x.dtype == ANYHAL_DTYPE_F32 && s.x_column == 4 && (s.m == 1 || s.x_row == s.k * 4);
  s.x_bytes = (s.few || s.int8) && !in_place ? round_up(s.m * s.k * 4, 64) : 0;
  int64_t work =
      s.int8  ? s.x_bytes + s.m * int8_row_bytes(s.k)
      : s.few ? s.x_bytes
              : product_workspace<float>(s.m, s.n, s.pairs ? s.k / 2 : s.k, plan.team.threads);
  plan.workspace_bytes = static_cast<uint64_t>(work + (s.repack ? s.packed_bytes : 0));
  plan.run = q4 ? run<Q4> : run<Q8>;
  plan.kernel = s.int8    ? "16 rows interleaved, 8-bit dot products"
                : s.few   ? "16 rows interleaved, few rows"
                : s.pairs ? "16 rows interleaved, panels, bf16 dot products"
                          : "16 rows interleaved, panels";
  plan.library = "";
  if (!s.repack && s.packed_bytes > 0) {
    plan.pack = q4 ? pack_weights<Q4> : pack_weights<Q8>;
    plan.pack_operand = 1;
    plan.pack_bytes = static_cast<uint64_t>(s.packed_bytes);
    plan.pack_key = q4 ? "q4_1 rows16 words" : "q8_0 rows16 words";
  }
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
