// attention_backward: dq, dk and dv from probabilities that are computed again, some query rows at
// a time. SPDX-License-Identifier: Apache-2.0
//
// Products see finite numbers only, so that nothing hidden leaks through 0 · NaN; what held another
// value makes NaN of the query's gradient and of those of the keys that it sees, at the end. Scores
// are of what was there, as in attention: a row with only scores of -inf takes no part.
#include "gemm.h"
#include "lines.h"
#include "visible.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

enum Operand : uint32_t {
  kDout,
  kQ,
  kK,
  kV,
  kLength,
  kMask,
  kSinks,
  kDlse,
  kDq,
  kDk,
  kDv,
  kOperands
};
constexpr int64_t kQueryRows = 64;

struct State {
  int64_t batch, heads, kv_heads, group, queries, keys, size, value_size;
  int64_t stride[kOperands][4];  // bytes
  bool has_length, has_mask, bool_mask;
  int64_t length_stride;
  uint32_t length_dtype;
  int32_t causal;
  float scale;
  ReadRow read;
  WriteRow write;
  int64_t product_bytes, worker_bytes;
};

// Workspace of one worker: matrices of f32, rows adjacent.
struct Scratch {
  float *k, *v, *dk, *dv;  // [keys][size or value_size]
  float *q, *dout, *dq;    // [kQueryRows][..]
  float *p, *ds;           // [kQueryRows][keys]
  char* product;
  bool *bad_key, *lost_key;  // holds what is not finite; has a gradient of NaN
};

constexpr int kMatrices = 9;

void matrix_floats(const State& s, int64_t (&n)[kMatrices]) {
  const int64_t rows[kMatrices] = {s.keys,     s.keys,     s.keys,     s.keys,    kQueryRows,
                                   kQueryRows, kQueryRows, kQueryRows, kQueryRows};
  const int64_t columns[kMatrices] = {s.size,       s.value_size, s.size, s.value_size, s.size,
                                      s.value_size, s.size,       s.keys, s.keys};
  for (int i = 0; i < kMatrices; ++i) n[i] = round_up(rows[i] * columns[i], 16);
}

Scratch scratch_at(const State& s, char* workspace) {
  Scratch x;
  float** const places[kMatrices] = {&x.k, &x.v, &x.dk, &x.dv, &x.q, &x.dout, &x.dq, &x.p, &x.ds};
  int64_t n[kMatrices];
  matrix_floats(s, n);
  float* next = reinterpret_cast<float*>(workspace);
  for (int i = 0; i < kMatrices; next += n[i++]) *places[i] = next;
  x.product = reinterpret_cast<char*>(next);
  x.bad_key = reinterpret_cast<bool*>(x.product + s.product_bytes);
  x.lost_key = x.bad_key + s.keys;
  return x;
}

// ----------------------------------------------------------------------------------- products

struct Matrix {
  float* data;
  int64_t row, column;  // strides in elements
  Matrix turned() const { return {data, column, row}; }
};

// out = a · b, [m, k] by [k, n], or added to what out holds.
void multiply(int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, Matrix out, bool add,
              char* workspace) {
  if (m == 0 || n == 0) return;
  Finish finish = {};
  finish.scale = 1.0f;
  finish.write = write_row<float>;
  finish.residual = {reinterpret_cast<const char*>(out.data), out.row * 4, out.column * 4,
                     read_row<float>};
  Product<float> p = {};
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = reinterpret_cast<const char*>(a.data);
  p.a_across = a.row * 4;
  p.a_along = a.column * 4;
  p.pack_a = pack_panel<float, float, Tile<float>::kRows>;
  p.b = reinterpret_cast<const char*>(b.data);
  p.b_across = b.column * 4;
  p.b_along = b.row * 4;
  p.pack_b = pack_panel<float, float, Tile<float>::kColumns>;
  p.out = reinterpret_cast<char*>(out.data);
  p.out_row_stride = out.row * 4;
  p.out_column_stride = out.column * 4;
  p.finish = add ? &finish : nullptr;
  run_product(p, Team{nullptr, 1}, workspace);
}

// At least what run_product takes for any product up to these sizes, on one thread.
int64_t product_bytes(int64_t m, int64_t k) {
  constexpr int64_t kPanelsMax = 4, kDepthMax = 1536;
  int64_t depth = k < kDepthMax ? k : kDepthMax, columns = kPanelsMax * Tile<float>::kColumns;
  int64_t waiting = round_up(m, Tile<float>::kRows) * columns * 4;
  return packed_rows_bytes<float>(m, k) + round_up(columns * depth * 4, 64) + round_up(waiting, 64);
}

// ------------------------------------------------------------------------------- finite copies

// n numbers, 0 for what is not finite; false if there was any such.
bool copy_finite(float* x, int64_t n) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t size = bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    worst = size > worst ? size : worst;
  }
  if (worst < 0x7f800000u) return true;
  for (int64_t i = 0; i < n; ++i)
    x[i] = (bit_cast<uint32_t>(x[i]) & 0x7f800000u) == 0x7f800000u ? 0.0f : x[i];
  return false;
}

bool load_row(const State& s, Operand which, const char* from, int64_t n, float* to) {
  s.read(from, s.stride[which][3], n, to);
  return copy_finite(to, n);
}

// ---------------------------------------------------------------------------------- query rows

// One (batch entry, key head) and what is known of it.
struct Head {
  char* const* data;
  int64_t batch, kv_head, length;
  bool any_bad_key;

  char* at(const State& s, Operand which, int64_t head, int64_t row) const {
    const int64_t* stride = s.stride[which];
    return data[which] + batch * stride[0] + head * stride[1] + row * stride[2];
  }
};

bool hidden(const State& s, const char* mask, int64_t key) {
  return s.bool_mask && mask[key * s.stride[kMask][3]] == 0;
}

// Scores of one row to probabilities in place, 0 where hidden; false where no key takes part.
bool weigh(const State& s, const char* mask, int64_t limit, float* p) {
  const float lowest = -__builtin_inff();
  for (int64_t j = 0; s.has_mask && j < limit; ++j) {
    float bias = 0.0f;
    if (!s.bool_mask) s.read(mask + j * s.stride[kMask][3], 0, 1, &bias);
    p[j] = hidden(s, mask, j) ? lowest : p[j] + bias;
  }
  float top = highest_of(p, limit);
  bool alive = top != lowest;
  for (int64_t j = 0; !alive && j < limit; ++j) alive = p[j] != p[j];
  if (!alive) {
    for (int64_t j = 0; j < limit; ++j) p[j] = 0.0f;
    return false;
  }
  float sum = exponentials(p, top == lowest ? 0.0f : top, p, limit);
  for (int64_t j = 0; j < limit; ++j) p[j] = p[j] / sum;
  for (int64_t j = 0; s.bool_mask && j < limit; ++j) p[j] = hidden(s, mask, j) ? 0.0f : p[j];
  return true;
}

// The scores of one row with keys up to `limit` again, of what was there before copy_finite.
void score_again(const State& s, const Head& head, int64_t h, int64_t row, int64_t limit,
                 const Scratch& x, float* scores) {
  float *q = x.dq, *k = x.dq + s.size;  // not yet in use
  s.read(head.at(s, kQ, h, row), s.stride[kQ][3], s.size, q);
  for (int64_t j = 0; j < limit; ++j) {
    s.read(head.at(s, kK, head.kv_head, j), s.stride[kK][3], s.size, k);
    float sum = 0.0f;
    for (int64_t i = 0; i < s.size; ++i) sum += q[i] * s.scale * k[i];
    scores[j] = sum;
  }
}

// ds = p (dp - Σ p dp), in place of dp.
void differentiate_row(const State& s, const char* mask, int64_t limit, const float* p, float* ds) {
  F32 sums = {};
  int64_t i = 0;
  for (; i + kF32Lanes <= limit; i += kF32Lanes) sums += load(p + i) * load(ds + i);
  float mean = horizontal_sum(sums);
  for (; i < limit; ++i) mean += p[i] * ds[i];
  for (int64_t j = 0; j < limit; ++j) ds[j] = p[j] * (ds[j] - mean);
  for (int64_t j = 0; s.bool_mask && j < limit; ++j) ds[j] = hidden(s, mask, j) ? 0.0f : ds[j];
}

// Whether a row takes in anything not finite.
bool takes_bad(const State& s, const Head& head, const char* mask, int64_t limit, bool bad_row,
               const Scratch& x) {
  bool found = false;
  for (int64_t j = 0; (bad_row || head.any_bad_key) && !found && j < limit; ++j)
    found = !hidden(s, mask, j) && (bad_row || x.bad_key[j]);
  return found;
}

// The keys that a row sees, which are lost with it.
void lose_keys(const State& s, const char* mask, int64_t limit, const Scratch& x) {
  for (int64_t j = 0; j < limit; ++j)
    if (!hidden(s, mask, j)) x.lost_key[j] = true;
}

void fill_nan(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = __builtin_nanf("");
}

// Query rows [first, first + rows) of one head.
void run_rows(const State& s, const Head& head, int64_t h, int64_t first, int64_t rows,
              const Scratch& x) {
  bool bad[kQueryRows], lost[kQueryRows];
  int64_t limits[kQueryRows], most = 0;
  for (int64_t r = 0; r < rows; ++r) {
    float* q = x.q + r * s.size;
    bad[r] = !load_row(s, kQ, head.at(s, kQ, h, first + r), s.size, q);
    bad[r] |= !load_row(s, kDout, head.at(s, kDout, h, first + r), s.value_size,
                        x.dout + r * s.value_size);
    for (int64_t i = 0; i < s.size; ++i) q[i] *= s.scale;
    limits[r] = visible_keys(s.causal, head.length, s.queries, first + r);
    if (limits[r] > most) most = limits[r];
  }
  const Matrix q = {x.q, s.size, 1}, k = {x.k, s.size, 1}, dk = {x.dk, s.size, 1};
  const Matrix dout = {x.dout, s.value_size, 1}, v = {x.v, s.value_size, 1};
  const Matrix dv = {x.dv, s.value_size, 1}, p = {x.p, most, 1}, ds = {x.ds, most, 1};
  multiply(rows, most, s.size, q, k.turned(), p, false, x.product);
  multiply(rows, most, s.value_size, dout, v.turned(), ds, false, x.product);
  for (int64_t r = 0; r < rows; ++r) {
    const char* mask = s.has_mask ? head.at(s, kMask, h, first + r) : nullptr;
    float *weights = x.p + r * most, *slopes = x.ds + r * most;
    const bool takes = takes_bad(s, head, mask, limits[r], bad[r], x);
    if (takes) score_again(s, head, h, first + r, limits[r], x, weights);
    bool alive = weigh(s, mask, limits[r], weights);
    differentiate_row(s, mask, limits[r], weights, slopes);
    for (int64_t j = limits[r]; j < most; ++j) weights[j] = slopes[j] = 0.0f;
    lost[r] = alive && takes;
    if (lost[r]) lose_keys(s, mask, limits[r], x);
  }
  multiply(rows, s.size, most, ds, k, {x.dq, s.size, 1}, false, x.product);
  multiply(most, s.size, rows, ds.turned(), q, dk, true, x.product);
  multiply(most, s.value_size, rows, p.turned(), dout, dv, true, x.product);
  for (int64_t r = 0; r < rows; ++r) {
    float* dq = x.dq + r * s.size;
    for (int64_t i = 0; i < s.size; ++i) dq[i] = most == 0 ? 0.0f : dq[i] * s.scale;
    if (lost[r]) fill_nan(dq, s.size);
    s.write(head.at(s, kDq, h, first + r), s.stride[kDq][3], s.size, dq);
  }
}

void run_head(const State& s, Head head, const Scratch& x) {
  head.any_bad_key = false;
  for (int64_t j = 0; j < s.keys; ++j) {
    bool fine = load_row(s, kK, head.at(s, kK, head.kv_head, j), s.size, x.k + j * s.size);
    fine &= load_row(s, kV, head.at(s, kV, head.kv_head, j), s.value_size, x.v + j * s.value_size);
    x.bad_key[j] = !fine;
    x.lost_key[j] = false;
    head.any_bad_key |= !fine;
  }
  memset(x.dk, 0, static_cast<size_t>(s.keys * s.size) * 4);
  memset(x.dv, 0, static_cast<size_t>(s.keys * s.value_size) * 4);
  for (int64_t g = 0; g < s.group; ++g)
    for (int64_t first = 0; first < s.queries; first += kQueryRows)
      run_rows(s, head, head.kv_head * s.group + g, first,
               s.queries - first < kQueryRows ? s.queries - first : kQueryRows, x);
  for (int64_t j = 0; j < s.keys; ++j) {
    float *dk = x.dk + j * s.size, *dv = x.dv + j * s.value_size;
    if (x.lost_key[j]) {
      fill_nan(dk, s.size);
      fill_nan(dv, s.value_size);
    }
    s.write(head.at(s, kDk, head.kv_head, j), s.stride[kDk][3], s.size, dk);
    s.write(head.at(s, kDv, head.kv_head, j), s.stride[kDv][3], s.value_size, dv);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error* error) {
  const State& s = plan.get_state<State>();
  anyhal_status status = check_key_counts(s.length_dtype, data[kLength], s.length_stride,
                                          s.has_length ? s.batch : 0, s.keys, error);
  if (status != ANYHAL_STATUS_OK) return status;
  Team solo = {nullptr, 1};
  bool small = s.batch * s.heads * s.queries * s.keys * (s.size + s.value_size) < kParallelGrain;
  share_items(small ? solo : plan.team, s.batch * s.kv_heads, [&](int64_t item, int64_t worker) {
    Head head = {data, item / s.kv_heads, item % s.kv_heads, s.keys, false};
    if (s.has_length)
      head.length = read_index(s.length_dtype, data[kLength] + head.batch * s.length_stride);
    run_head(s, head, scratch_at(s, workspace + worker * s.worker_bytes));
  });
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_attention_backward(Plan& plan) {
  State& s = plan.make_state<State>();
  const auto& attributes = plan.attribute<anyhal_attrs_attention_backward>();
  const Tensor* t = plan.operands;
  s.batch = t[kQ].dims[0];
  s.heads = t[kQ].dims[1];
  s.queries = t[kQ].dims[2];
  s.size = t[kQ].dims[3];
  s.kv_heads = t[kK].dims[1];
  s.keys = t[kK].dims[2];
  s.value_size = t[kV].dims[3];
  s.group = s.kv_heads == 0 ? 0 : s.heads / s.kv_heads;
  for (uint32_t i = 0; i < kOperands; ++i)
    for (uint32_t d = 0; d < 4 && i != kLength && !t[i].absent(); ++d)
      s.stride[i][d] = t[i].strides[d] * element_bytes(t[i].dtype);
  s.has_length = !t[kLength].absent();
  s.length_dtype = t[kLength].dtype;
  s.length_stride = s.has_length && t[kLength].rank == 1
                        ? t[kLength].strides[0] * element_bytes(t[kLength].dtype)
                        : 0;
  s.has_mask = !t[kMask].absent();
  s.bool_mask = s.has_mask && t[kMask].dtype == ANYHAL_DTYPE_BOOL;
  s.causal = attributes.causal;
  s.scale = attributes.scale;
  s.read = reader_of(t[kQ].dtype);
  s.write = writer_of(t[kQ].dtype);
  // Each of the sizes is at most this along each dim of a product.
  int64_t size = s.size > s.value_size ? s.size : s.value_size;
  int64_t rows = product_bytes(kQueryRows, s.keys > size ? s.keys : size);
  int64_t columns = product_bytes(s.keys, kQueryRows);
  s.product_bytes = rows > columns ? rows : columns;
  int64_t n[kMatrices], floats = 0;
  matrix_floats(s, n);
  for (int64_t each : n) floats += each;
  s.worker_bytes = round_up(floats * 4 + s.product_bytes + 2 * s.keys, 64);
  int64_t items = s.batch * s.kv_heads, workers = plan.team.threads;
  plan.workspace_bytes =
      static_cast<uint64_t>(s.worker_bytes * (items < workers ? items : workers));
  plan.run = run;
  plan.kernel = "probabilities again, by query rows";
  plan.library = "";
  return s.read != nullptr && s.write != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
