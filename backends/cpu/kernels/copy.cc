// copy: strided to strided, same dtype; contiguous runs are moved as bytes.
// SPDX-License-Identifier: Apache-2.0
#include "gemm.h"
#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct Bytes20 {
  unsigned char b[20];
};
struct Bytes34 {
  unsigned char b[34];
};
struct Bytes18 {
  unsigned char b[18];
};
struct Bytes144 {
  unsigned char b[144];
};
struct Bytes210 {
  unsigned char b[210];
};

template <class T>
void copy_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (strides[0] == kSize && strides[1] == kSize) {
    memcpy(p[1], p[0], static_cast<size_t>(n * kSize));
    return;
  }
  T value;
  if (strides[0] == 0) {
    memcpy(&value, p[0], kSize);
    for (int64_t i = 0; i < n; ++i) memcpy(p[1] + i * strides[1], &value, kSize);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    memcpy(&value, p[0] + i * strides[0], kSize);
    memcpy(p[1] + i * strides[1], &value, kSize);
  }
}

Inner copy_of(uint32_t dtype) {
  switch (element_bytes(dtype)) {
    case 1:
      return copy_run<uint8_t>;
    case 2:
      return copy_run<uint16_t>;
    case 4:
      return copy_run<uint32_t>;
    case 8:
      return copy_run<uint64_t>;
    case 20:
      return copy_run<Bytes20>;
    case 18:
      return copy_run<Bytes18>;
    case 144:
      return copy_run<Bytes144>;
    case 210:
      return copy_run<Bytes210>;
    default:
      return copy_run<Bytes34>;
  }
}

// Where the source is adjacent along another dim than the destination (a transpose), lines of both
// are used whole: small squares, so that what is fetched stays in the first-level cache.
using Square = void (*)(const char* from, int64_t from_step, char* to, int64_t to_step,
                        int64_t rows, int64_t columns);

constexpr int64_t kSquareRows = 16, kSquareColumns = 64;

// to[r][c] = from[c][r]; the steps are those of from's c and to's r, in bytes.
template <class T>
void transpose_square_of(const char* from, int64_t from_step, char* to, int64_t to_step,
                         int64_t rows, int64_t columns) {
  constexpr int64_t kSize = sizeof(T);
  if constexpr (kSize == sizeof(float)) {
    // In registers every line is fetched once: steps of a power of two would evict it in between.
    if (rows == kSquareRows && columns == kSquareColumns && kSquareRows % kF32Lanes == 0) {
      for (int64_t c = 0; c < columns; c += kF32Lanes) {
        for (int64_t r = 0; r < rows; r += kF32Lanes) {
          F32 lines[kF32Lanes];
          for (int i = 0; i < kF32Lanes; ++i)
            memcpy(&lines[i], from + (c + i) * from_step + r * kSize, sizeof(F32));
          transpose_square(lines);
          for (int i = 0; i < kF32Lanes; ++i)
            memcpy(to + (r + i) * to_step + c * kSize, &lines[i], sizeof(F32));
        }
      }
      return;
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* line = reinterpret_cast<T*>(to + r * to_step);
    for (int64_t c = 0; c < columns; ++c)
      memcpy(&line[c], from + c * from_step + r * kSize, sizeof(T));
  }
}

Square square_of(uint32_t dtype) {
  switch (element_bytes(dtype)) {
    case 1:
      return transpose_square_of<uint8_t>;
    case 2:
      return transpose_square_of<uint16_t>;
    case 4:
      return transpose_square_of<uint32_t>;
    case 8:
      return transpose_square_of<uint64_t>;
    default:
      return nullptr;
  }
}

struct State {
  Nest nest;  // in a transpose, without the two dims of the squares
  Inner inner;
  Square square;
  int64_t rows, columns;       // of the transpose
  int64_t from_step, to_step;  // bytes
  int64_t size;
};

// Takes the two dims of a transpose out of the nest, if it is one.
void find_transpose(State& s, uint32_t dtype) {
  Nest& nest = s.nest;
  int last = nest.rank - 1;
  s.size = element_bytes(dtype);
  s.square = nullptr;
  if (nest.strides[1][last] != s.size || nest.strides[0][last] == s.size || nest.dims[last] < 8)
    return;
  for (int d = 0; d < last; ++d) {
    if (nest.strides[0][d] != s.size || nest.dims[d] < 8) continue;
    s.square = square_of(dtype);
    if (s.square == nullptr) return;
    s.rows = nest.dims[d];
    s.columns = nest.dims[last];
    s.from_step = nest.strides[0][last];
    s.to_step = nest.strides[1][d];
    nest.dims[d] = nest.dims[last] = 1;
    nest.count /= s.rows * s.columns;
    return;
  }
}

void transpose_plane(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const State& s = *static_cast<const State*>(context);
  for (int64_t i = 0; i < n; ++i) {
    const char* from = p[0] + i * strides[0];
    char* to = p[1] + i * strides[1];
    for (int64_t c = 0; c < s.columns; c += kSquareColumns) {
      int64_t columns = s.columns - c < kSquareColumns ? s.columns - c : kSquareColumns;
      for (int64_t r = 0; r < s.rows; r += kSquareRows) {
        int64_t rows = s.rows - r < kSquareRows ? s.rows - r : kSquareRows;
        s.square(from + c * s.from_step + r * s.size, s.from_step, to + r * s.to_step + c * s.size,
                 s.to_step, rows, columns);
      }
    }
  }
}

anyhal_status run_transpose(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.nest.count != 1) {
    split_range(plan.team, s.nest.count, kParallelGrain / (s.rows * s.columns), 1,
                [&](int64_t begin, int64_t end) {
                  walk_nest(s.nest, data, begin, end, transpose_plane, &s);
                });
    return ANYHAL_STATUS_OK;
  }
  split_range(plan.team, s.columns, kParallelGrain / s.rows, kSquareColumns,
              [&](int64_t begin, int64_t end) {
                State part = s;
                part.columns = end - begin;
                char* const ends[] = {data[0] + begin * s.from_step, data[1] + begin * s.size};
                const int64_t strides[] = {0, 0};
                transpose_plane(&part, ends, strides, 1);
              });
  return ANYHAL_STATUS_OK;
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (data[0] == data[1]) return ANYHAL_STATUS_OK;  // exact alias
  run_nest(plan, s.nest, data, s.inner, nullptr);
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_copy(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor* tensors[] = {&plan.input(0), &plan.output()};
  make_nest(s.nest, tensors, 2);
  s.inner = copy_of(plan.output().dtype);
  if (s.nest.count > 0) find_transpose(s, plan.output().dtype);
  plan.run = s.nest.count > 0 && s.square != nullptr ? run_transpose : run;
  plan.kernel = plan.run == run ? "strided copy" : "transpose in squares";
  plan.library = "";
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
