// cumsum: running sums along one axis; floats in f64, f64 with what it rounds off, integers in 64
// bits that wrap.
// SPDX-License-Identifier: Apache-2.0
//
// Each line is summed from its beginning to its end, alone or beside others: the bits are the same.
#include "cast.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int64_t kPiece = 256;  // elements of a line, or lines, that are converted at a time

struct State {
  Lines lines;          // as they are summed: from the end where the op says so
  int64_t shift[2];     // bytes from where a line lies to where its sum begins
  Inner read, write;    // x to the sum's dtype, and from there to the output's
  Inner along, across;  // one line after another; many lines side by side
  bool exclusive;
  bool side_by_side;
};

struct Integer {
  using Number = uint64_t;
  uint64_t sum = 0;
  inline void add(uint64_t x) { sum += x; }
  inline uint64_t value() const { return sum; }
};

struct Float {
  using Number = double;
  double sum = 0;
  inline void add(double x) { sum += x; }
  inline double value() const { return sum; }
};

// Keeps what each addition rounds off (Knuth's TwoSum); an infinite sum is left as it is.
struct LongFloat {
  using Number = double;
  double sum = 0, rest = 0;
  inline void add(double x) {
    double next = sum + x, part = next - sum;
    rest += (sum - (next - part)) + (x - part);
    sum = next;
  }
  inline double value() const {
    double whole = sum + rest;
    return sum - sum == 0 ? whole : sum;
  }
};

template <class Sum>
inline typename Sum::Number next_of(Sum& sum, typename Sum::Number x, bool exclusive) {
  typename Sum::Number before = sum.value();
  sum.add(x);
  return exclusive ? before : sum.value();
}

constexpr int64_t kWide = 8;  // bytes of what sums are made in

template <class Sum>
void along_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const State& s = *static_cast<const State*>(context);
  const int64_t read_strides[] = {s.lines.stride[0], kWide};
  const int64_t write_strides[] = {kWide, s.lines.stride[1]};
  alignas(64) typename Sum::Number piece[kPiece];
  char* buffer = reinterpret_cast<char*>(piece);
  for (int64_t line = 0; line < n; ++line) {
    char* x = p[0] + line * strides[0];
    char* out = p[1] + line * strides[1];
    Sum sum;
    for (int64_t i = 0; i < s.lines.length; i += kPiece) {
      int64_t count = s.lines.length - i < kPiece ? s.lines.length - i : kPiece;
      char* const from[] = {x + i * s.lines.stride[0], buffer};
      s.read(nullptr, from, read_strides, count);
      for (int64_t j = 0; j < count; ++j) piece[j] = next_of(sum, piece[j], s.exclusive);
      char* const to[] = {buffer, out + i * s.lines.stride[1]};
      s.write(nullptr, to, write_strides, count);
    }
  }
}

template <class Sum>
void across_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const State& s = *static_cast<const State*>(context);
  const int64_t read_strides[] = {strides[0], kWide};
  const int64_t write_strides[] = {kWide, strides[1]};
  alignas(64) typename Sum::Number piece[kPiece];
  char* buffer = reinterpret_cast<char*>(piece);
  for (int64_t line = 0; line < n; line += kPiece) {
    int64_t count = n - line < kPiece ? n - line : kPiece;
    Sum sums[kPiece] = {};
    for (int64_t i = 0; i < s.lines.length; ++i) {
      char* const from[] = {p[0] + line * strides[0] + i * s.lines.stride[0], buffer};
      s.read(nullptr, from, read_strides, count);
      for (int64_t j = 0; j < count; ++j) piece[j] = next_of(sums[j], piece[j], s.exclusive);
      char* const to[] = {buffer, p[1] + line * strides[1] + i * s.lines.stride[1]};
      s.write(nullptr, to, write_strides, count);
    }
  }
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  if (s.lines.length == 0) return ANYHAL_STATUS_OK;
  char* const ends[] = {data[0] + s.shift[0], data[1] + s.shift[1]};
  split_range(plan.team, s.lines.outer.count, kParallelGrain / 2 / s.lines.length,
              s.side_by_side ? 16 : 1, [&](int64_t begin, int64_t end) {
                walk_nest(s.lines.outer, ends, begin, end, s.side_by_side ? s.across : s.along, &s);
              });
  return ANYHAL_STATUS_OK;
}

template <class Sum>
void use(State& s) {
  s.along = along_run<Sum>;
  s.across = across_run<Sum>;
}

}  // namespace

bool prepare_cumsum(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor &x = plan.input(0), &out = plan.output();
  const auto& attributes = plan.attribute<anyhal_attrs_cumsum>();
  make_lines(s.lines, x, out, positive_axis(attributes.axis, x.rank));
  s.exclusive = attributes.exclusive != 0;
  // Lines that lie nearer to each other than the elements of one: those in a cache line together.
  const Nest& outer = s.lines.outer;
  s.side_by_side =
      outer.dims[outer.rank - 1] >= 8 && outer.strides[1][outer.rank - 1] < s.lines.stride[1];
  for (int t = 0; t < 2; ++t) {
    s.shift[t] = 0;
    if (attributes.reverse == 0) continue;
    s.shift[t] = (s.lines.length - 1) * s.lines.stride[t];
    s.lines.stride[t] = -s.lines.stride[t];
  }
  const uint32_t wide = is_float(x.dtype) ? ANYHAL_DTYPE_F64 : ANYHAL_DTYPE_I64;
  s.read = cast_of(x.dtype, wide);
  s.write = cast_of(wide, out.dtype);
  if (!is_float(x.dtype))
    use<Integer>(s);
  else if (x.dtype == ANYHAL_DTYPE_F64)
    use<LongFloat>(s);
  else
    use<Float>(s);
  plan.run = run;
  plan.kernel = s.side_by_side ? "lines side by side" : "line by line";
  plan.library = "";
  return s.read != nullptr && s.write != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
