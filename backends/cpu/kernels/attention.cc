// attention: scaled dot products, softmax and weighted sum in one pass over the keys.
// SPDX-License-Identifier: Apache-2.0
//
// Many query rows: lanes are query rows, keys run down the registers, so that the softmax needs no
// sum across lanes and the weights come out in the layout that the second product wants.
// Few query rows (decode): keys are read row by row, scores kept for the whole length.
#include "direct.h"
#include "gemm.h"
#include "kernel.h"
#include "visible.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int64_t kLanesOfRows = Tile<float>::kColumns;                // query rows per panel
constexpr int64_t kKeyRows = Tile<float>::kRows;                       // keys per tile row
constexpr int64_t kKeyTile = kKeyRows * (kVectorBytes == 64 ? 4 : 8);  // keys per step
constexpr int64_t kFewRows = 8;
constexpr float kMinusInfinity = -__builtin_inff();

struct State {
  int64_t b, h, kv_heads, group, t, s, d, dv;
  int64_t q[4], k[4], v[4], mask[4], out[4];  // byte strides over [B, H, T or S, D]
  int64_t length_stride;
  uint32_t length_dtype;
  bool has_length, has_mask, bool_mask;
  int32_t causal;
  float scale;
  ReadRow read, read_mask;
  WriteRow write;
  PackPanel<float> pack_queries, pack_keys, pack_values;
  bool plain;    // f32 with adjacent head dims: read in place
  int64_t rows;  // query rows that share keys: group * t
  int64_t worker_bytes;
};

struct Call {
  const char *q, *k, *v, *length, *mask;
  char* out;
};

// A row that saw nothing, or only scores of -inf, has no weight at all: it is 0, not 0 / 0.
float normalised(float total, float sum) { return sum == 0.0f ? 0.0f : total / sum; }

// Where one (batch, key head) lies.
struct Head {
  const char *q, *k, *v, *mask;
  char* out;
  int64_t length;
};

Head head_of(const State& s, const Call& c, int64_t batch, int64_t kv_head) {
  Head head;
  int64_t h = kv_head * s.group;
  head.q = c.q + batch * s.q[0] + h * s.q[1];
  head.k = c.k + batch * s.k[0] + kv_head * s.k[1];
  head.v = c.v + batch * s.v[0] + kv_head * s.v[1];
  head.mask = s.has_mask ? c.mask + batch * s.mask[0] + h * s.mask[1] : nullptr;
  head.out = c.out + batch * s.out[0] + h * s.out[1];
  head.length = s.s;
  if (s.has_length) {
    int64_t length = read_index(s.length_dtype, c.length + batch * s.length_stride);
    head.length = length < 0 ? 0 : length > s.s ? s.s : length;
  }
  return head;
}

anyhal_status check_lengths(const State& s, const char* lengths, anyhal_error* error) {
  return check_key_counts(s.length_dtype, lengths, s.length_stride, s.has_length ? s.b : 0, s.s,
                          error);
}

// Keys [0, limit) are visible to query row t, before any mask.
int64_t limit_of(const State& s, int64_t length, int64_t t) {
  return visible_keys(s.causal, length, s.t, t);
}

// Rows are ordered (t, head of the group): neighbours see nearly the same keys.
int64_t time_of(const State& s, int64_t row) { return row / s.group; }
int64_t member_of(const State& s, int64_t row) { return row % s.group; }

const char* mask_at(const State& s, const Head& head, int64_t row, int64_t key) {
  return head.mask + member_of(s, row) * s.mask[1] + time_of(s, row) * s.mask[2] + key * s.mask[3];
}

bool masked_out(const State& s, const Head& head, int64_t row, int64_t key) {
  return s.bool_mask && *mask_at(s, head, row, key) == 0;
}

// ------------------------------------------------------------------------------- many rows

struct Panel {
  int64_t row;                  // first query row
  int64_t count;                // rows used, at most kLanesOfRows
  int64_t limit[kLanesOfRows];  // visible keys of each
  float maximum[kLanesOfRows];
  float sum[kLanesOfRows];
  int64_t limit_min, limit_max;
};

// Workspace of one worker.
struct Scratch {
  float* queries;  // [D][rows]
  float* keys;     // keys of one tile row, packed [D][kKeyRows]
  float* values;   // value tile, packed [keys][kRows] per panel of Dv
  float* scores;   // [kKeyTile][rows]
  float* total;    // [Dv rounded up][rows]
};

int64_t value_panels(const State& s) { return (s.dv + kKeyRows - 1) / kKeyRows; }

constexpr int kParts = 5;

// Sizes in the order of Scratch.
int64_t scratch_floats(const State& s, int part) {
  const int64_t sizes[kParts] = {s.d * kLanesOfRows, s.d * kKeyRows,
                                 value_panels(s) * kKeyRows * kKeyTile, kKeyTile * kLanesOfRows,
                                 value_panels(s) * kKeyRows * kLanesOfRows};
  return round_up(sizes[part], 16);
}

Scratch scratch_at(const State& s, char* workspace) {
  Scratch scratch;
  float* p = reinterpret_cast<float*>(workspace);
  float** parts[] = {&scratch.queries, &scratch.keys, &scratch.values, &scratch.scores,
                     &scratch.total};
  for (int i = 0; i < kParts; ++i) {
    *parts[i] = p;
    p += scratch_floats(s, i);
  }
  return scratch;
}

// Packs `count` query rows, which may belong to several heads, zeros behind them.
void pack_queries(const State& s, const Head& head, const Panel& panel, float* to) {
  float line[256];
  for (int64_t d0 = 0; d0 < s.d; d0 += 256) {
    int64_t n = s.d - d0 < 256 ? s.d - d0 : 256;
    for (int64_t r = 0; r < kLanesOfRows; ++r) {
      if (r >= panel.count) {
        for (int64_t d = 0; d < n; ++d) to[(d0 + d) * kLanesOfRows + r] = 0.0f;
        continue;
      }
      int64_t row = panel.row + r;
      s.read(head.q + member_of(s, row) * s.q[1] + time_of(s, row) * s.q[2] + d0 * s.q[3], s.q[3],
             n, line);
      for (int64_t d = 0; d < n; ++d) to[(d0 + d) * kLanesOfRows + r] = line[d];
    }
  }
}

// Scores of keys [key, key + count) in scratch.scores, invisible ones -inf.
void score_tile(const State& s, const Head& head, Panel& panel, int64_t key, int64_t count,
                const Scratch& x) {
  for (int64_t i = 0; i < count; i += kKeyRows) {
    int64_t rows = count - i < kKeyRows ? count - i : kKeyRows;
    s.pack_keys(head.k + (key + i) * s.k[2], s.k[2], s.k[3], rows, s.d, x.keys);
    run_tile<float>(rows, s.d, x.keys, x.queries,
                    {nullptr, 0, x.scores + i * kLanesOfRows, kLanesOfRows});
  }
  for (int64_t i = 0; i < count * kLanesOfRows; ++i) x.scores[i] *= s.scale;
  if (!s.has_mask && key + count <= panel.limit_min) return;
  for (int64_t i = 0; i < count; ++i) {
    float* line = x.scores + i * kLanesOfRows;
    for (int64_t r = 0; r < kLanesOfRows; ++r)
      line[r] = key + i < panel.limit[r] ? line[r] : kMinusInfinity;
    if (!s.has_mask) continue;
    for (int64_t r = 0; r < panel.count; ++r) {
      if (key + i >= panel.limit[r]) continue;
      if (s.bool_mask) {
        if (masked_out(s, head, panel.row + r, key + i)) line[r] = kMinusInfinity;
      } else {
        float bias;
        s.read_mask(mask_at(s, head, panel.row + r, key + i), 0, 1, &bias);
        line[r] += bias;
      }
    }
  }
}

// Turns scores into weights, and rescales what was summed under an older maximum.
void weigh_tile(const State& s, Panel& panel, int64_t count, const Scratch& x) {
  // Local arrays: nothing can alias them, so the loops over lanes stay in registers.
  alignas(64) float highest[kLanesOfRows], rescale[kLanesOfRows], shift[kLanesOfRows];
  alignas(64) float sum[kLanesOfRows];
  bool any_rescale = false;
  for (int64_t r = 0; r < kLanesOfRows; ++r) highest[r] = panel.maximum[r];
  for (int64_t i = 0; i < count; ++i) {
    const float* line = x.scores + i * kLanesOfRows;
    for (int64_t r = 0; r < kLanesOfRows; ++r)
      highest[r] = line[r] > highest[r] ? line[r] : highest[r];
  }
  for (int64_t r = 0; r < kLanesOfRows; ++r) {
    bool same = highest[r] == panel.maximum[r];
    rescale[r] = same ? 1.0f : exp_f32(panel.maximum[r] - highest[r]);
    any_rescale |= !same;
    // Below a maximum of -inf every weight is zero, not NaN: a later tile may hold finite scores.
    shift[r] = highest[r] == kMinusInfinity ? 0.0f : highest[r];
    panel.maximum[r] = highest[r];
    sum[r] = panel.sum[r] * rescale[r];
  }
  for (int64_t i = 0; i < count; ++i) {
    float* line = x.scores + i * kLanesOfRows;
    for (int64_t r = 0; r < kLanesOfRows; ++r) {
      line[r] = exp_f32(line[r] - shift[r]);
      sum[r] += line[r];
    }
  }
  for (int64_t r = 0; r < kLanesOfRows; ++r) panel.sum[r] = sum[r];
  if (!any_rescale) return;
  for (int64_t d = 0; d < s.dv; ++d) {
    float* line = x.total + d * kLanesOfRows;
    for (int64_t r = 0; r < kLanesOfRows; ++r) line[r] *= rescale[r];
  }
}

bool all_finite(const float* p, int64_t n) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t magnitude = bit_cast<uint32_t>(p[i]) & 0x7fffffffu;
    worst = magnitude > worst ? magnitude : worst;
  }
  return worst < 0x7f800000u;
}

// A weight of zero does not silence an infinite or NaN value: such a tile goes row by row and
// leaves out what each row may not see.
void add_selected(const State& s, const Head& head, const Panel& panel, int64_t key, int64_t count,
                  const Scratch& x) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t r = 0; r < panel.count; ++r) {
      if (key + i >= panel.limit[r] || masked_out(s, head, panel.row + r, key + i)) continue;
      float weight = x.scores[i * kLanesOfRows + r];
      for (int64_t d = 0; d < s.dv; ++d) {
        const float* values = x.values + d / kKeyRows * kKeyRows * count;
        x.total[d * kLanesOfRows + r] += weight * values[i * kKeyRows + d % kKeyRows];
      }
    }
  }
}

void add_values(const State& s, const Head& head, const Panel& panel, int64_t key, int64_t count,
                const Scratch& x) {
  for (int64_t p = 0; p < value_panels(s); ++p) {
    int64_t rows = s.dv - p * kKeyRows < kKeyRows ? s.dv - p * kKeyRows : kKeyRows;
    s.pack_values(head.v + key * s.v[2] + p * kKeyRows * s.v[3], s.v[3], s.v[2], rows, count,
                  x.values + p * kKeyRows * count);
  }
  bool all_visible = !s.bool_mask && key + count <= panel.limit_min;
  if (!all_visible && !all_finite(x.values, value_panels(s) * kKeyRows * count)) {
    add_selected(s, head, panel, key, count, x);
    return;
  }
  for (int64_t p = 0; p < value_panels(s); ++p) {
    int64_t rows = s.dv - p * kKeyRows < kKeyRows ? s.dv - p * kKeyRows : kKeyRows;
    float* total = x.total + p * kKeyRows * kLanesOfRows;
    run_tile<float>(rows, count, x.values + p * kKeyRows * count, x.scores,
                    {total, kLanesOfRows, total, kLanesOfRows});
  }
}

void write_panel(const State& s, const Head& head, const Panel& panel, const Scratch& x) {
  float line[256];
  for (int64_t r = 0; r < panel.count; ++r) {
    int64_t row = panel.row + r;
    char* to = head.out + member_of(s, row) * s.out[1] + time_of(s, row) * s.out[2];
    for (int64_t d0 = 0; d0 < s.dv; d0 += 256) {
      int64_t n = s.dv - d0 < 256 ? s.dv - d0 : 256;
      for (int64_t d = 0; d < n; ++d)
        line[d] = normalised(x.total[(d0 + d) * kLanesOfRows + r], panel.sum[r]);
      s.write(to + d0 * s.out[3], s.out[3], n, line);
    }
  }
}

void run_panel(const State& s, const Head& head, int64_t row, char* workspace) {
  Scratch x = scratch_at(s, workspace);
  Panel panel;
  panel.row = row;
  panel.count = s.rows - row < kLanesOfRows ? s.rows - row : kLanesOfRows;
  panel.limit_min = s.s;
  panel.limit_max = 0;
  for (int64_t r = 0; r < kLanesOfRows; ++r) {
    bool used = r < panel.count;
    panel.limit[r] = used ? limit_of(s, head.length, time_of(s, row + r)) : s.s;
    panel.maximum[r] = kMinusInfinity;
    panel.sum[r] = 0.0f;
    if (!used) continue;
    if (panel.limit[r] < panel.limit_min) panel.limit_min = panel.limit[r];
    if (panel.limit[r] > panel.limit_max) panel.limit_max = panel.limit[r];
  }
  pack_queries(s, head, panel, x.queries);
  memset(x.total, 0, static_cast<size_t>(scratch_floats(s, kParts - 1)) * sizeof(float));
  for (int64_t key = 0; key < panel.limit_max; key += kKeyTile) {
    int64_t count = panel.limit_max - key < kKeyTile ? panel.limit_max - key : kKeyTile;
    score_tile(s, head, panel, key, count, x);
    weigh_tile(s, panel, count, x);
    add_values(s, head, panel, key, count, x);
  }
  write_panel(s, head, panel, x);
}

anyhal_status run_many(const Plan& plan, char* const* data, char* workspace, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  if (auto status = check_lengths(s, data[3], error); status != ANYHAL_STATUS_OK) return status;
  Call call = {data[0], data[1], data[2], data[3], data[4], data[6]};
  int64_t panels = (s.rows + kLanesOfRows - 1) / kLanesOfRows;
  Team solo = {nullptr, 1};
  bool small = s.b * s.h * s.t * s.s * (s.d + s.dv) < 32 * kParallelGrain;
  share_items(small ? solo : plan.team, s.b * s.kv_heads * panels,
              [&](int64_t item, int64_t worker) {
                // The last rows see most keys: longest first, so that threads end together.
                int64_t panel = panels - 1 - item / (s.b * s.kv_heads);
                int64_t pair = item % (s.b * s.kv_heads);
                Head head = head_of(s, call, pair / s.kv_heads, pair % s.kv_heads);
                run_panel(s, head, panel * kLanesOfRows, workspace + worker * s.worker_bytes);
              });
  return ANYHAL_STATUS_OK;
}

// -------------------------------------------------------------------------------- few rows

// Dot products of kF32Lanes keys with one query row: partial sums of each key, then their
// transpose, so that one vector holds all the scores.
void score_keys(const float* q, const float* keys, int64_t key_stride, int64_t count, int64_t d,
                float* scores) {
  F32 partial[kF32Lanes];
#pragma GCC unroll 16
  for (int i = 0; i < kF32Lanes; ++i) partial[i] = F32{};
  for (int64_t j = 0; j < count; ++j) {
    const float* key = keys + j * key_stride;
    F32 sum = {};
    int64_t x = 0;
    for (; x + kF32Lanes <= d; x += kF32Lanes)
      sum = multiply_add<float>(load(q + x), load(key + x), sum);
    if (x < d) {
      Lanes lanes(d - x);
      sum = multiply_add<float>(lanes.load(q + x), lanes.load(key + x), sum);
    }
    partial[j] = sum;
  }
  transpose_square(partial);
#pragma GCC unroll 4
  for (int h = kF32Lanes / 2; h > 0; h /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < h; ++i) partial[i] += partial[i + h];
  store(scores, partial[0]);
}

struct FewScratch {
  float* queries;  // [rows][D]
  float* scores;   // [rows][S rounded up]
  float* keys;     // [kF32Lanes][D] or [Dv] where k and v cannot be read in place
  float* total;    // [rows][Dv rounded up]
  int64_t score_stride, total_stride;
};

FewScratch few_scratch_at(const State& s, char* workspace) {
  FewScratch x;
  x.score_stride = round_up(s.s, 16);
  x.total_stride = round_up(s.dv, 16);
  x.queries = reinterpret_cast<float*>(workspace);
  x.scores = x.queries + round_up(s.rows * s.d, 16);
  x.keys = x.scores + s.rows * x.score_stride;
  x.total = x.keys + round_up(kF32Lanes * (s.d > s.dv ? s.d : s.dv), 16);
  return x;
}

int64_t few_scratch_bytes(const State& s) {
  int64_t floats = round_up(s.rows * s.d, 16) + s.rows * round_up(s.s, 16) +
                   round_up(kF32Lanes * (s.d > s.dv ? s.d : s.dv), 16) +
                   s.rows * round_up(s.dv, 16);
  return round_up(floats * 4, 64);
}

void score_few(const State& s, const Head& head, const int64_t* limit, int64_t limit_max,
               const FewScratch& x) {
  for (int64_t key = 0; key < limit_max; key += kF32Lanes) {
    int64_t count = limit_max - key < kF32Lanes ? limit_max - key : kF32Lanes;
    const float* keys = reinterpret_cast<const float*>(head.k + key * s.k[2]);
    int64_t stride = s.k[2] / 4;
    if (!s.plain) {
      for (int64_t j = 0; j < count; ++j)
        s.read(head.k + (key + j) * s.k[2], s.k[3], s.d, x.keys + j * s.d);
      keys = x.keys;
      stride = s.d;
    }
    for (int64_t r = 0; r < s.rows; ++r) {
      if (key < limit[r])
        score_keys(x.queries + r * s.d, keys, stride, count, s.d,
                   x.scores + r * x.score_stride + key);
    }
  }
}

// Scores of one row to weights in place; gives their sum.
float weigh_few(const State& s, const Head& head, int64_t row, int64_t limit, float* scores) {
  float highest = kMinusInfinity;
  for (int64_t j = 0; j < limit; ++j) scores[j] *= s.scale;
  for (int64_t j = 0; s.has_mask && j < limit; ++j) {
    if (s.bool_mask) {
      if (masked_out(s, head, row, j)) scores[j] = kMinusInfinity;
    } else {
      float bias;
      s.read_mask(mask_at(s, head, row, j), 0, 1, &bias);
      scores[j] += bias;
    }
  }
  int64_t j = 0;
  if (limit >= kF32Lanes) {
    F32 high = splat(kMinusInfinity);
    for (; j + kF32Lanes <= limit; j += kF32Lanes) {
      F32 v = load(scores + j);
      high = v > high ? v : high;
    }
    for (int i = 0; i < kF32Lanes; ++i) highest = high[i] > highest ? high[i] : highest;
  }
  for (; j < limit; ++j) highest = scores[j] > highest ? scores[j] : highest;
  float shift = highest == kMinusInfinity ? 0.0f : highest;
  for (int64_t i = 0; i < limit; ++i) scores[i] = exp_f32(scores[i] - shift);
  F32 sum = {};
  for (j = 0; j + kF32Lanes <= limit; j += kF32Lanes) sum += load(scores + j);
  float total = horizontal_sum(sum);
  for (; j < limit; ++j) total += scores[j];
  return total;
}

// total[rows][columns of one step] += weights · values, accumulators in registers.
template <int kRows, int kVectors>
inline void sum_values(const State& s, const Head& head, const FewScratch& x, int64_t row,
                       int64_t column, int64_t begin, int64_t end) {
  F32 sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = load(x.total + (row + r) * x.total_stride + column + v * kF32Lanes);
  const float* weights = x.scores + row * x.score_stride;
  for (int64_t j = begin; j < end; ++j) {
    const float* values = reinterpret_cast<const float*>(head.v + j * s.v[2]) + column;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      F32 weight = splat(weights[r * x.score_stride + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = multiply_add<float>(weight, load(values + v * kF32Lanes), sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      store(x.total + (row + r) * x.total_stride + column + v * kF32Lanes, sum[r][v]);
}

// Row by row, leaving out what the row may not see: masks, odd layouts and the last keys.
void add_row(const State& s, const Head& head, const FewScratch& x, int64_t row, int64_t begin,
             int64_t end) {
  float* total = x.total + row * x.total_stride;
  for (int64_t j = begin; j < end; ++j) {
    if (masked_out(s, head, row, j)) continue;
    float weight = x.scores[row * x.score_stride + j];
    const float* values = reinterpret_cast<const float*>(head.v + j * s.v[2]);
    if (!s.plain) {
      s.read(head.v + j * s.v[2], s.v[3], s.dv, x.keys);
      values = x.keys;
    }
    for (int64_t d = 0; d < s.dv; ++d) total[d] = fused(weight, values[d], total[d]);
  }
}

void add_few(const State& s, const Head& head, const int64_t* limit, const FewScratch& x) {
  constexpr int kWide = 4;
  bool fast = s.plain && !s.bool_mask && s.dv % kF32Lanes == 0;
  for (int64_t row = 0; row < s.rows;) {
    int64_t together = s.rows - row >= 3 ? 3 : 1;
    int64_t shared = limit[row];
    for (int64_t r = 1; r < together; ++r)
      shared = limit[row + r] < shared ? limit[row + r] : shared;
    if (!fast) shared = 0;
    for (int64_t column = 0; column < s.dv && shared > 0;) {
      bool wide = s.dv - column >= kWide * kF32Lanes;
      if (wide && together == 3) sum_values<3, kWide>(s, head, x, row, column, 0, shared);
      if (wide && together == 1) sum_values<1, kWide>(s, head, x, row, column, 0, shared);
      if (!wide && together == 3) sum_values<3, 1>(s, head, x, row, column, 0, shared);
      if (!wide && together == 1) sum_values<1, 1>(s, head, x, row, column, 0, shared);
      column += wide ? kWide * kF32Lanes : kF32Lanes;
    }
    for (int64_t r = 0; r < together; ++r) add_row(s, head, x, row + r, shared, limit[row + r]);
    row += together;
  }
}

void run_head(const State& s, const Head& head, char* workspace) {
  FewScratch x = few_scratch_at(s, workspace);
  int64_t limit[kFewRows];
  int64_t limit_max = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    limit[r] = limit_of(s, head.length, time_of(s, r));
    if (limit[r] > limit_max) limit_max = limit[r];
    s.read(head.q + member_of(s, r) * s.q[1] + time_of(s, r) * s.q[2], s.q[3], s.d,
           x.queries + r * s.d);
  }
  score_few(s, head, limit, limit_max, x);
  float sum[kFewRows];
  for (int64_t r = 0; r < s.rows; ++r)
    sum[r] = weigh_few(s, head, r, limit[r], x.scores + r * x.score_stride);
  memset(x.total, 0, static_cast<size_t>(s.rows * x.total_stride) * sizeof(float));
  add_few(s, head, limit, x);
  for (int64_t r = 0; r < s.rows; ++r) {
    float* total = x.total + r * x.total_stride;
    for (int64_t d = 0; d < s.dv; ++d) total[d] = normalised(total[d], sum[r]);
    s.write(head.out + member_of(s, r) * s.out[1] + time_of(s, r) * s.out[2], s.out[3], s.dv,
            total);
  }
}

anyhal_status run_few(const Plan& plan, char* const* data, char* workspace, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  if (auto status = check_lengths(s, data[3], error); status != ANYHAL_STATUS_OK) return status;
  Call call = {data[0], data[1], data[2], data[3], data[4], data[6]};
  int64_t longest = s.s;
  if (s.has_length) {
    longest = 0;
    for (int64_t b = 0; b < s.b; ++b) {
      int64_t length = head_of(s, call, b, 0).length;
      longest = length > longest ? length : longest;
    }
  }
  Team solo = {nullptr, 1};
  bool small = s.b * s.kv_heads * s.rows * longest * (s.d + s.dv) < 16 * kParallelGrain;
  share_items(small ? solo : plan.team, s.b * s.kv_heads, [&](int64_t item, int64_t worker) {
    run_head(s, head_of(s, call, item / s.kv_heads, item % s.kv_heads),
             workspace + worker * s.worker_bytes);
  });
  return ANYHAL_STATUS_OK;
}

template <class T>
void set_packers(State& s) {
  s.pack_keys = pack_panel<T, float, kKeyRows>;
  s.pack_values = pack_panel<T, float, kKeyRows>;
}

void set_strides(int64_t* to, const Tensor& t) {
  for (int d = 0; d < 4; ++d) to[d] = t.strides[d] * element_bytes(t.dtype);
}

}  // namespace

bool prepare_attention(Plan& plan) {
  State& s = plan.make_state<State>();
  s = {};
  const Tensor &q = plan.input(0), &k = plan.input(1), &v = plan.input(2);
  const Tensor &length = plan.input(3), &mask = plan.input(4), &out = plan.operands[6];
  const auto& attrs = plan.attribute<anyhal_attrs_attention>();
  s.b = q.dims[0];
  s.h = q.dims[1];
  s.t = q.dims[2];
  s.d = q.dims[3];
  s.kv_heads = k.dims[1];
  s.s = k.dims[2];
  s.dv = v.dims[3];
  s.group = s.kv_heads > 0 ? s.h / s.kv_heads : 1;
  s.rows = s.group * s.t;
  set_strides(s.q, q);
  set_strides(s.k, k);
  set_strides(s.v, v);
  set_strides(s.out, out);
  s.has_length = !length.absent();
  if (s.has_length) {
    s.length_dtype = length.dtype;
    s.length_stride = length.rank == 0 || length.dims[0] == 1
                          ? 0
                          : length.strides[0] * element_bytes(length.dtype);
  }
  s.has_mask = !mask.absent();
  if (s.has_mask) {
    set_strides(s.mask, mask);
    for (int d = 0; d < 4; ++d)
      if (mask.dims[d] == 1) s.mask[d] = 0;
    s.bool_mask = mask.dtype == ANYHAL_DTYPE_BOOL;
    if (!s.bool_mask) s.read_mask = reader_of(mask.dtype);
  }
  s.scale = attrs.scale;
  s.causal = attrs.causal;
  s.read = reader_of(q.dtype);
  s.write = writer_of(out.dtype);
  if (q.dtype == ANYHAL_DTYPE_F32) set_packers<float>(s);
  if (q.dtype == ANYHAL_DTYPE_F16) set_packers<F16>(s);
  if (q.dtype == ANYHAL_DTYPE_BF16) set_packers<BF16>(s);
  s.plain = q.dtype == ANYHAL_DTYPE_F32 && s.k[3] == 4 && s.v[3] == 4;
  if (s.rows <= kFewRows) {
    s.worker_bytes = few_scratch_bytes(s);
    plan.run = run_few;
    plan.kernel = "few rows";
  } else {
    int64_t floats = 0;
    for (int i = 0; i < kParts; ++i) floats += scratch_floats(s, i);
    s.worker_bytes = round_up(floats * 4, 64);
    plan.run = run_many;
    plan.kernel = "streaming";
  }
  plan.library = "";
  plan.workspace_bytes = static_cast<uint64_t>(s.worker_bytes) * plan.team.threads;
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
