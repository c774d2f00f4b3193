// Matrix product on packed panels: packing, micro-kernel, and the loops around them.
// SPDX-License-Identifier: Apache-2.0
//
// The rows of A are packed once, for all threads; each thread packs (or dequantises) a few column
// panels of B into its own scratch, sized for the second-level cache, and runs all rows past them.
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

// c[rows, columns] = aᵀ · b for a whole tile; a is [depth][kRows], b is [depth][kColumns].
template <class T>
static inline void micro_kernel(int64_t depth, const T* a, const T* b, T* c, int64_t c_stride) {
  constexpr int kRows = Tile<T>::kRows, kVectors = Tile<T>::kVectors;
  Vec<T> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = Vec<T>{};
  for (int64_t k = 0; k < depth; ++k) {
    Vec<T> row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = load(b + j * kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      Vec<T> factor = splat(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = multiply_add<T>(factor, row[j], sum[i][j]);
    }
    a += kRows;
    b += kVectors * kLanes<T>;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) store(c + i * c_stride + j * kLanes<T>, sum[i][j]);
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
  // Where B is not a plain matrix: writes panel `panel` of B, [k][kColumns].
  void (*fill_b)(const Product& product, int64_t panel, T* to);
  const void* b_context;
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

template <class T>
static inline void fill_b_panel(const Product<T>& p, int64_t panel, T* to) {
  if (p.fill_b != nullptr) {
    p.fill_b(p, panel, to);
    return;
  }
  constexpr int64_t kColumns = Tile<T>::kColumns;
  int64_t column = panel * kColumns;
  int64_t count = p.n - column < kColumns ? p.n - column : kColumns;
  p.pack_b(p.b + column * p.b_across, p.b_across, p.b_along, count, p.k, to);
}

// Column panels that a thread keeps packed at once.
template <class T>
static inline int64_t chunk_panels(int64_t k) {
  constexpr int64_t kCacheBytes = 384 * 1024;
  int64_t panel = (k < 1 ? 1 : k) * Tile<T>::kColumns * static_cast<int64_t>(sizeof(T));
  int64_t panels = kCacheBytes / panel;
  return panels < 1 ? 1 : panels > 4 ? 4 : panels;
}

template <class T>
static inline int64_t packed_rows_bytes(int64_t m, int64_t k) {
  return round_up(round_up(m, Tile<T>::kRows) * k * static_cast<int64_t>(sizeof(T)), 64);
}
template <class T>
static inline int64_t packed_chunk_bytes(int64_t k) {
  return round_up(chunk_panels<T>(k) * Tile<T>::kColumns * k * static_cast<int64_t>(sizeof(T)), 64);
}

// Rows [row_panel, row_panel_end) against column panels [panel, panel_end).
template <class T>
static void run_chunk(const Product<T>& p, const T* packed_a, int64_t row_panel,
                      int64_t row_panel_end, int64_t panel, int64_t panel_end, T* scratch) {
  constexpr int64_t kRows = Tile<T>::kRows, kColumns = Tile<T>::kColumns;
  for (int64_t j = panel; j < panel_end; ++j)
    fill_b_panel(p, j, scratch + (j - panel) * kColumns * p.k);
  bool direct = p.finish == nullptr && p.out_column_stride == static_cast<int64_t>(sizeof(T));
  alignas(64) T tile[kRows * kColumns];
  for (int64_t i = row_panel; i < row_panel_end; ++i) {
    int64_t rows = p.m - i * kRows < kRows ? p.m - i * kRows : kRows;
    for (int64_t j = panel; j < panel_end; ++j) {
      int64_t columns = p.n - j * kColumns < kColumns ? p.n - j * kColumns : kColumns;
      const T* a = packed_a + i * kRows * p.k;
      const T* b = scratch + (j - panel) * kColumns * p.k;
      if (direct && rows == kRows && columns == kColumns) {
        T* c = reinterpret_cast<T*>(p.out + i * kRows * p.out_row_stride) + j * kColumns;
        micro_kernel<T>(p.k, a, b, c, p.out_row_stride / static_cast<int64_t>(sizeof(T)));
      } else {
        micro_kernel<T>(p.k, a, b, tile, kColumns);
        finish_tile(p, tile, i * kRows, rows, j * kColumns, columns);
      }
    }
  }
}

template <class T>
static inline void pack_rows(const Product<T>& p, int64_t begin, int64_t end, T* packed) {
  constexpr int64_t kRows = Tile<T>::kRows;
  for (int64_t i = begin; i < end; ++i) {
    int64_t rows = p.m - i * kRows < kRows ? p.m - i * kRows : kRows;
    p.pack_a(p.a + i * kRows * p.a_across, p.a_across, p.a_along, rows, p.k,
             packed + i * kRows * p.k);
  }
}

template <class T>
static inline int64_t product_workspace(int64_t m, int64_t k, uint32_t threads) {
  return packed_rows_bytes<T>(m, k) + threads * packed_chunk_bytes<T>(k);
}

// One product, shared by the team. The workspace is 64-aligned, of product_workspace bytes.
template <class T>
static void run_product(const Product<T>& p, const Team& team, char* workspace) {
  constexpr int64_t kRows = Tile<T>::kRows, kColumns = Tile<T>::kColumns;
  T* packed = reinterpret_cast<T*>(workspace);
  char* scratch = workspace + packed_rows_bytes<T>(p.m, p.k);
  int64_t row_panels = (p.m + kRows - 1) / kRows;
  int64_t panels = (p.n + kColumns - 1) / kColumns;
  bool small = p.m * p.n * p.k < 64 * 64 * 64;
  Team solo = {nullptr, 1};
  const Team& used = small ? solo : team;
  int64_t grain = kParallelGrain / (kRows * (p.k < 1 ? 1 : p.k));
  split_range(used, row_panels, grain, 1,
              [&](int64_t begin, int64_t end) { pack_rows(p, begin, end, packed); });
  // Enough pieces that threads end together: smaller chunks first, then bands of rows.
  int64_t chunk = chunk_panels<T>(p.k);
  int64_t wanted = used.threads == 1 ? 1 : 4 * static_cast<int64_t>(used.threads);
  while (chunk > 1 && (panels + chunk - 1) / chunk < wanted) --chunk;
  int64_t chunks = (panels + chunk - 1) / chunk;
  int64_t bands = chunks >= wanted ? 1 : (wanted + chunks - 1) / chunks;
  if (bands > row_panels) bands = row_panels;
  int64_t band = (row_panels + bands - 1) / bands;
  bands = (row_panels + band - 1) / band;
  share_items(used, chunks * bands, [&](int64_t item, int64_t worker) {
    int64_t begin = item / bands * chunk, row = item % bands * band;
    int64_t end = begin + chunk < panels ? begin + chunk : panels;
    int64_t row_end = row + band < row_panels ? row + band : row_panels;
    run_chunk(p, packed, row, row_end, begin, end,
              reinterpret_cast<T*>(scratch + worker * packed_chunk_bytes<T>(p.k)));
  });
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_GEMM_H_
