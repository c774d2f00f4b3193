// Matrix product on packed panels: packing, micro-kernel, and the loops around them.
// SPDX-License-Identifier: Apache-2.0
//
// Threads share nothing that one of them writes. Where there are many rows each takes a band of
// them, else each takes columns; it packs its rows of A into its own scratch, then a few column
// panels of B at a time (or dequantises them), sized for the second-level cache, and runs the rows
// past those. What is packed twice costs less than moving lines between cores.
#ifndef BACKENDS_CPU_KERNELS_GEMM_H_
#define BACKENDS_CPU_KERNELS_GEMM_H_

#include "convert.h"
#include "loops.h"
#include "math.h"
#include "vec.h"

namespace hal::cpu::HAL_CPU_ISA {

// Shape of the register tile: as many accumulators as the register file holds.
template <class T>
struct Tile {
#if defined(__AVX512F__)
  static constexpr int kRows = 14;
#else
  static constexpr int kRows = 6;
#endif
  static constexpr int kVectors = 2;
  static constexpr int kColumns = kVectors * kLanes<T>;
};

// Where a tile's sums come from (null: from zero) and go to; strides in elements.
template <class T>
struct TilePlace {
  const T* from;
  int64_t from_stride;
  T* to;
  int64_t to_stride;
};

// The first kUsed rows of a tile: sums + aᵀ · b; a is [depth][kRows], b is [depth][kColumns].
template <class T, int kUsed>
static inline void micro_kernel(int64_t depth, const T* a, const T* b, const TilePlace<T>& place) {
  constexpr int kVectors = Tile<T>::kVectors;
  Vec<T> sum[kUsed][kVectors];
  if (place.from == nullptr) {
#pragma GCC unroll 16
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = Vec<T>{};
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = load(place.from + i * place.from_stride + j * kLanes<T>);
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<T> row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = load(b + j * kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kUsed; ++i) {
      Vec<T> factor = splat(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = multiply_add<T>(factor, row[j], sum[i][j]);
    }
    a += Tile<T>::kRows;
    b += kVectors * kLanes<T>;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      store(place.to + i * place.to_stride + j * kLanes<T>, sum[i][j]);
}

// A tile of `rows` rows: the last panel of a matrix need not pay for a whole one.
template <class T>
static inline void run_tile(int64_t rows, int64_t depth, const T* a, const T* b,
                            const TilePlace<T>& place) {
  constexpr int kRows = Tile<T>::kRows;
  if constexpr (kRows == 14 && __is_same(T, float)) {
    if (rows <= 4) return micro_kernel<T, 4>(depth, a, b, place);
    if (rows <= 8) return micro_kernel<T, 8>(depth, a, b, place);
    if (rows <= 11) return micro_kernel<T, 11>(depth, a, b, place);
  }
  micro_kernel<T, kRows>(depth, a, b, place);
}

// Turns kF32Lanes rows into columns, in registers.
static inline void transpose_square(F32* r) {
  I32 lane;
  for (int i = 0; i < kF32Lanes; ++i) lane[i] = i;
#pragma GCC unroll 4
  for (int h = kF32Lanes / 2; h > 0; h /= 2) {
    I32 upper = (lane & h) != 0;
    I32 low = (~upper & lane) | (upper & (lane + kF32Lanes - h));
    I32 high = (~upper & (lane + h)) | (upper & (lane + kF32Lanes));
#pragma GCC unroll 16
    for (int i = 0; i < kF32Lanes; ++i) {
      if ((i & h) != 0) continue;
      F32 a = r[i], b = r[i + h];
      r[i] = __builtin_shuffle(a, b, low);
      r[i + h] = __builtin_shuffle(a, b, high);
    }
  }
}

template <class S, class T>
static inline T widen(S x) {
  if constexpr (__is_same(T, float))
    return to_f32(x);
  else
    return static_cast<T>(x);
}

// Packs lines w < count of `depth` elements into [depth][kWidth], zeros behind the last line.
// Strides are in bytes: `across` from line to line, `along` from k to k + 1.
template <class S, class T, int kWidth>
static void pack_panel(const char* from, int64_t across, int64_t along, int64_t count,
                       int64_t depth, T* to) {
  auto at = [&](int64_t w, int64_t k) {
    return widen<S, T>(*reinterpret_cast<const S*>(from + w * across + k * along));
  };
  if (count == kWidth && across == static_cast<int64_t>(sizeof(S))) {
    for (int64_t k = 0; k < depth; ++k) {
      const S* line = reinterpret_cast<const S*>(from + k * along);
      for (int w = 0; w < kWidth; ++w) to[k * kWidth + w] = widen<S, T>(line[w]);
    }
    return;
  }
  int64_t k = 0;
  if constexpr (__is_same(S, float) && __is_same(T, float)) {
    if (along == static_cast<int64_t>(sizeof(float))) {
      for (; k + kF32Lanes <= depth; k += kF32Lanes) {
        for (int w0 = 0; w0 < kWidth; w0 += kF32Lanes) {
          F32 r[kF32Lanes];
#pragma GCC unroll 16
          for (int i = 0; i < kF32Lanes; ++i)
            r[i] = w0 + i < count
                       ? load(reinterpret_cast<const float*>(from + (w0 + i) * across) + k)
                       : F32{};
          transpose_square(r);
          int wide = kWidth - w0 < kF32Lanes ? kWidth - w0 : kF32Lanes;
#pragma GCC unroll 16
          for (int i = 0; i < kF32Lanes; ++i)
            memcpy(to + (k + i) * kWidth + w0, &r[i], sizeof(float) * static_cast<size_t>(wide));
        }
      }
    }
  }
  for (; k < depth; ++k) {
    for (int64_t w = 0; w < count; ++w) to[k * kWidth + w] = at(w, k);
    for (int64_t w = count; w < kWidth; ++w) to[k * kWidth + w] = T{};
  }
}

template <class T>
using PackPanel = void (*)(const char* from, int64_t across, int64_t along, int64_t count,
                           int64_t depth, T* to);

// One operand beside the product, read in the finish; null = absent.
struct SideOperand {
  const char* data;
  int64_t row_stride, column_stride;  // bytes
  ReadRow read;
};

// out = act(scale · product + bias) · multiplier + residual, rounded once.
struct Finish {
  float scale;
  int32_t activation;
  SideOperand bias, multiplier, residual;
  WriteRow write;
};

template <class T>
struct Product {
  int64_t m, n, k;
  const char* a;
  int64_t a_across, a_along;  // bytes; across rows, along k
  PackPanel<T> pack_a;
  const char* b;
  int64_t b_across, b_along;  // across columns, along k
  PackPanel<T> pack_b;
  // Where B is not a plain matrix: writes rows [k, k + depth) of panel `panel`, [depth][kColumns].
  void (*fill_b)(const Product& product, int64_t panel, int64_t k, int64_t depth, T* to);
  const void* b_context;
  // Where panels are not rows of numbers of type T; null: run_tile.
  void (*tile)(int64_t rows, int64_t depth, const T* a, const T* b, const TilePlace<T>& place);
  char* out;
  int64_t out_row_stride, out_column_stride;  // bytes
  const Finish* finish;                       // null: out has type T
};

static inline void finish_rows(const Finish& finish, float* tile, int64_t tile_stride, int64_t row,
                               int64_t rows, int64_t column, int64_t columns, char* out,
                               int64_t out_row_stride, int64_t out_column_stride) {
  constexpr int64_t kChunk = 64;
  float side[kChunk];
  auto read = [&](const SideOperand& s, int64_t i, int64_t j, int64_t n) {
    s.read(s.data + (row + i) * s.row_stride + (column + j) * s.column_stride, s.column_stride, n,
           side);
  };
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; j += kChunk) {
      int64_t n = columns - j < kChunk ? columns - j : kChunk;
      float* line = tile + i * tile_stride + j;
      if (finish.scale != 1.0f)
        for (int64_t x = 0; x < n; ++x) line[x] *= finish.scale;
      if (finish.bias.data != nullptr) {
        read(finish.bias, i, j, n);
        for (int64_t x = 0; x < n; ++x) line[x] += side[x];
      }
      activate(finish.activation, line, n);
      if (finish.multiplier.data != nullptr) {
        read(finish.multiplier, i, j, n);
        for (int64_t x = 0; x < n; ++x) line[x] *= side[x];
      }
      if (finish.residual.data != nullptr) {
        read(finish.residual, i, j, n);
        for (int64_t x = 0; x < n; ++x) line[x] += side[x];
      }
      finish.write(out + (row + i) * out_row_stride + (column + j) * out_column_stride,
                   out_column_stride, n, line);
    }
  }
}

template <class T>
static inline void finish_tile(const Product<T>& p, T* tile, int64_t row, int64_t rows,
                               int64_t column, int64_t columns) {
  constexpr int64_t kStride = Tile<T>::kColumns;
  if constexpr (__is_same(T, float)) {
    if (p.finish != nullptr) {
      finish_rows(*p.finish, tile, kStride, row, rows, column, columns, p.out, p.out_row_stride,
                  p.out_column_stride);
      return;
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    char* line = p.out + (row + i) * p.out_row_stride + column * p.out_column_stride;
    for (int64_t j = 0; j < columns; ++j)
      *reinterpret_cast<T*>(line + j * p.out_column_stride) = tile[i * kStride + j];
  }
}

// Rows [k, k + depth) of column panels [panel, panel_end), one behind the other. A plain matrix is
// read in bands of rows, so that whole lines of it pass once through all panels.
template <class T>
static inline void fill_b_panels(const Product<T>& p, int64_t panel, int64_t panel_end, int64_t k,
                                 int64_t depth, T* to) {
  constexpr int64_t kColumns = Tile<T>::kColumns, kBand = 64;
  if (p.fill_b != nullptr) {
    for (int64_t j = panel; j < panel_end; ++j)
      p.fill_b(p, j, k, depth, to + (j - panel) * kColumns * depth);
    return;
  }
  for (int64_t band = 0; band < depth; band += kBand) {
    int64_t lines = depth - band < kBand ? depth - band : kBand;
    for (int64_t j = panel; j < panel_end; ++j) {
      int64_t column = j * kColumns;
      int64_t count = p.n - column < kColumns ? p.n - column : kColumns;
      p.pack_b(p.b + column * p.b_across + (k + band) * p.b_along, p.b_across, p.b_along, count,
               lines, to + ((j - panel) * depth + band) * kColumns);
    }
  }
}

// The sum over k goes in steps, so that a step's panels stay in the caches: the whole of it up to
// twice the step, then equal parts, in whole blocks of the block formats.
static inline int64_t depth_step(int64_t k) {
  constexpr int64_t kStep = 768, kUnit = 32;
  if (k <= 2 * kStep) return k < 1 ? 1 : k;
  int64_t parts = (k + kStep - 1) / kStep;
  return round_up((k + parts - 1) / parts, kUnit);
}

// Column panels that a thread keeps packed at once.
template <class T>
static inline int64_t chunk_panels(int64_t k) {
  constexpr int64_t kCacheBytes = 400 * 1024;
  int64_t panel = depth_step(k) * Tile<T>::kColumns * static_cast<int64_t>(sizeof(T));
  int64_t panels = kCacheBytes / panel;
  return panels < 1 ? 1 : panels > 4 ? 4 : panels;
}

template <class T>
static inline int64_t packed_rows_bytes(int64_t m, int64_t k) {
  return round_up(round_up(m, Tile<T>::kRows) * k * static_cast<int64_t>(sizeof(T)), 64);
}
template <class T>
static inline int64_t packed_chunk_bytes(int64_t k) {
  int64_t numbers = chunk_panels<T>(k) * Tile<T>::kColumns * depth_step(k);
  return round_up(numbers * static_cast<int64_t>(sizeof(T)), 64);
}
// Sums of a chunk that wait for the next step of k.
template <class T>
static inline int64_t waiting_bytes(int64_t m, int64_t k) {
  if (depth_step(k) >= k) return 0;
  int64_t numbers = round_up(m, Tile<T>::kRows) * chunk_panels<T>(k) * Tile<T>::kColumns;
  return round_up(numbers * static_cast<int64_t>(sizeof(T)), 64);
}

// Rows of A in a band, packed: for each step of k all its row panels, [depth][kRows] each.
template <class T>
static inline void pack_rows(const Product<T>& p, int64_t begin, int64_t end, T* packed) {
  constexpr int64_t kRows = Tile<T>::kRows;
  int64_t band_rows = (end - begin) * kRows, step = depth_step(p.k);
  for (int64_t k = 0; k < p.k; k += step) {
    int64_t depth = p.k - k < step ? p.k - k : step;
    for (int64_t i = begin; i < end; ++i) {
      int64_t rows = p.m - i * kRows < kRows ? p.m - i * kRows : kRows;
      p.pack_a(p.a + i * kRows * p.a_across + k * p.a_along, p.a_across, p.a_along, rows, depth,
               packed + band_rows * k + (i - begin) * kRows * depth);
    }
  }
}

// What one worker has for itself.
template <class T>
struct Scratch {
  T* rows;     // packed A of one band
  T* panels;   // packed B of one chunk and step
  T* waiting;  // sums between steps
};

// A block of the product: row panels [row, row_end), column panels [panel, panel_end).
struct Block {
  int64_t row, row_end, panel, panel_end;
};

template <class T>
static inline void run_step(const Product<T>& p, const Block& block, int64_t k,
                            const Scratch<T>& scratch) {
  constexpr int64_t kRows = Tile<T>::kRows, kColumns = Tile<T>::kColumns;
  int64_t step = depth_step(p.k);
  int64_t depth = p.k - k < step ? p.k - k : step;
  bool last = k + depth >= p.k;
  bool direct =
      last && p.finish == nullptr && p.out_column_stride == static_cast<int64_t>(sizeof(T));
  fill_b_panels(p, block.panel, block.panel_end, k, depth, scratch.panels);
  const T* packed = scratch.rows + (block.row_end - block.row) * kRows * k;
  alignas(64) T local[kRows * kColumns];
  for (int64_t i = block.row; i < block.row_end; ++i) {
    int64_t rows = p.m - i * kRows < kRows ? p.m - i * kRows : kRows;
    for (int64_t j = block.panel; j < block.panel_end; ++j) {
      int64_t columns = p.n - j * kColumns < kColumns ? p.n - j * kColumns : kColumns;
      const T* a = packed + (i - block.row) * kRows * depth;
      const T* b = scratch.panels + (j - block.panel) * kColumns * depth;
      int64_t number = (i - block.row) * (block.panel_end - block.panel) + (j - block.panel);
      T* waiting = scratch.waiting + number * kRows * kColumns;
      TilePlace<T> place = {k > 0 ? waiting : nullptr, kColumns, last ? local : waiting, kColumns};
      if (direct && columns == kColumns && rows == kRows) {
        place.to = reinterpret_cast<T*>(p.out + i * kRows * p.out_row_stride) + j * kColumns;
        place.to_stride = p.out_row_stride / static_cast<int64_t>(sizeof(T));
        if (p.tile == nullptr)
          micro_kernel<T, kRows>(depth, a, b, place);
        else
          p.tile(rows, depth, a, b, place);
        continue;
      }
      if (p.tile == nullptr)
        run_tile(rows, depth, a, b, place);
      else
        p.tile(rows, depth, a, b, place);
      if (last) finish_tile(p, local, i * kRows, rows, j * kColumns, columns);
    }
  }
}

template <class T>
static void run_block(const Product<T>& p, const Block& block, const Scratch<T>& scratch) {
  int64_t k = 0;
  do {
    run_step<T>(p, block, k, scratch);
    k += depth_step(p.k);
  } while (k < p.k);
}

// Multiplications from which waking another thread pays.
constexpr int64_t kSharedWork = 128 * 128 * 128;

// How a product is divided: bands of rows, and column panels within each.
struct Division {
  int64_t bands, band;           // row panels per band
  int64_t chunk, whole, single;  // column panels: whole chunks, then single panels
};

template <class T>
static inline Division divide_product(int64_t m, int64_t n, int64_t k, uint32_t threads) {
  constexpr int64_t kRows = Tile<T>::kRows, kColumns = Tile<T>::kColumns;
  constexpr int64_t kBandRows = 128, kBandRowsMax = 512;
  int64_t row_panels = (m + kRows - 1) / kRows, panels = (n + kColumns - 1) / kColumns;
  Division d = {1, row_panels, chunk_panels<T>(k), 0, 0};
  if (m * n * k < kSharedWork) threads = 1;
  int64_t rows_each = threads > 0 ? m / threads : m;
  if (threads > 1 && rows_each >= kBandRows) {
    d.bands = threads * ((rows_each + kBandRowsMax - 1) / kBandRowsMax);
    d.band = (row_panels + d.bands - 1) / d.bands;
    d.bands = (row_panels + d.band - 1) / d.band;
    threads = 1;  // columns need no further division
  }
  // Single panels at the end let threads finish together.
  int64_t kept = threads == 1 ? 0 : 2 * static_cast<int64_t>(threads);
  d.whole = panels > kept ? (panels - kept) / d.chunk : 0;
  d.single = panels - d.whole * d.chunk;
  if (threads == 1 && d.single > 0) {
    ++d.whole;  // the last chunk is simply shorter
    d.single = 0;
  }
  return d;
}

template <class T>
static inline int64_t worker_bytes(const Division& d, int64_t k) {
  int64_t rows = d.band * Tile<T>::kRows;
  return packed_rows_bytes<T>(rows, k) + packed_chunk_bytes<T>(k) + waiting_bytes<T>(rows, k);
}

template <class T>
static inline int64_t product_workspace(int64_t m, int64_t n, int64_t k, uint32_t threads) {
  return threads * worker_bytes<T>(divide_product<T>(m, n, k, threads), k);
}

// One product, shared by the team. The workspace is 64-aligned, of product_workspace bytes.
template <class T>
static void run_product(const Product<T>& p, const Team& team, char* workspace) {
  constexpr int64_t kRows = Tile<T>::kRows, kColumns = Tile<T>::kColumns;
  Division d = divide_product<T>(p.m, p.n, p.k, team.threads);
  int64_t row_panels = (p.m + kRows - 1) / kRows, panels = (p.n + kColumns - 1) / kColumns;
  int64_t columns = d.whole + d.single;  // column ranges of one band
  bool by_bands = d.bands > 1;
  Team solo = {nullptr, 1};
  const Team& used = p.m * p.n * p.k < kSharedWork ? solo : team;
  int64_t items = by_bands ? d.bands : columns;
  int64_t next = 0;
  auto work = [&](int64_t, int64_t worker) {
    char* own = workspace + worker * worker_bytes<T>(d, p.k);
    Scratch<T> scratch;
    scratch.rows = reinterpret_cast<T*>(own);
    own += packed_rows_bytes<T>(d.band * kRows, p.k);
    scratch.panels = reinterpret_cast<T*>(own);
    scratch.waiting = reinterpret_cast<T*>(own + packed_chunk_bytes<T>(p.k));
    int64_t packed_band = -1;
    for (;;) {
      int64_t item = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
      if (item >= items) return;
      int64_t band = by_bands ? item : 0;
      Block block = {band * d.band, (band + 1) * d.band, 0, 0};
      if (block.row_end > row_panels) block.row_end = row_panels;
      if (band != packed_band) pack_rows(p, block.row, block.row_end, scratch.rows);
      packed_band = band;
      int64_t first = by_bands ? 0 : item, last = by_bands ? columns : item + 1;
      for (int64_t c = first; c < last; ++c) {
        bool whole = c < d.whole;
        block.panel = whole ? c * d.chunk : d.whole * d.chunk + (c - d.whole);
        block.panel_end = whole ? block.panel + d.chunk : block.panel + 1;
        if (block.panel_end > panels) block.panel_end = panels;
        run_block(p, block, scratch);
      }
    }
  };
  share_items(used, items < used.threads ? items : used.threads, work);
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_GEMM_H_
