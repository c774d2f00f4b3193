// cast: one number to the nearest of another dtype; floats to integers saturate, NaN gives 0.
// SPDX-License-Identifier: Apache-2.0
#include "cast.h"

#include "small.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct Bool {
  uint8_t byte;
};

template <class T>
constexpr bool kIsFloating = __is_same(T, float) || __is_same(T, double);
template <class T>
constexpr bool kIsHalf = __is_same(T, F16) || __is_same(T, BF16);

// Rounding to odd keeps enough of what was cut off that a second rounding, to half, is the only
// one.
inline float to_odd_float(double x) {
  float f = static_cast<float>(x);
  double back = static_cast<double>(f);
  uint32_t bits = bit_cast<uint32_t>(f);
  double magnitude = x < 0 ? -x : x;
  bits -= (back < 0 ? -back : back) > magnitude ? 1u : 0u;
  bits |= back != x && x == x ? 1u : 0u;
  return bit_cast<float>(bits);
}

inline double to_odd_double(int64_t x) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (x > -kExact && x < kExact) return static_cast<double>(x);
  return static_cast<double>((x >> 11) | ((x & 2047) != 0 ? 1 : 0)) * 2048.0;
}
inline double to_odd_double(uint64_t x) {
  if (x < (uint64_t{1} << 53)) return static_cast<double>(x);
  return static_cast<double>((x >> 11) | ((x & 2047) != 0 ? 1u : 0u)) * 2048.0;
}

template <class T>
inline T half_of(float x) {
  return from_f32<T>(x);
}

template <class To, class From>
inline To saturate(From x) {
  constexpr bool kSigned = static_cast<To>(-1) < static_cast<To>(0);
  constexpr int kBits = static_cast<int>(sizeof(To)) * 8;
  constexpr From kEnd =
      static_cast<From>(kSigned ? uint64_t{1} << (kBits - 1) : uint64_t{1} << (kBits - 1)) *
      (kSigned ? 1 : 2);
  constexpr To kMax =
      kSigned ? static_cast<To>((uint64_t{1} << (kBits - 1)) - 1) : static_cast<To>(~uint64_t{0});
  constexpr To kMin = kSigned ? static_cast<To>(uint64_t{1} << (kBits - 1)) : static_cast<To>(0);
  if (x != x) return 0;
  if (x >= kEnd) return kMax;
  if (kSigned ? x < -kEnd : x <= static_cast<From>(-1)) return kMin;
  return static_cast<To>(x);
}

template <class To, class From>
inline To convert(From x) {
  if constexpr (__is_same(From, Bool)) {
    return convert<To>(static_cast<uint8_t>(x.byte != 0 ? 1 : 0));
  } else if constexpr (__is_same(To, From)) {
    return x;
  } else if constexpr (kIsHalf<From>) {
    return convert<To>(to_f32(x));
  } else if constexpr (__is_same(To, Bool)) {
    return Bool{static_cast<uint8_t>(x != 0 ? 1 : 0)};
  } else if constexpr (kIsHalf<To>) {
    if constexpr (__is_same(From, float))
      return half_of<To>(x);
    else if constexpr (__is_same(From, double))
      return half_of<To>(to_odd_float(x));
    else if constexpr (sizeof(From) == 8)
      return half_of<To>(to_odd_float(to_odd_double(x)));
    else
      return half_of<To>(to_odd_float(static_cast<double>(x)));
  } else if constexpr (kIsFloating<From> && !kIsFloating<To>) {
    return saturate<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void cast_run(const void*, char* const* p, const int64_t* strides, int64_t n) {
  if (strides[0] == static_cast<int64_t>(sizeof(From)) &&
      strides[1] == static_cast<int64_t>(sizeof(To))) {
    if constexpr (__is_same(To, float) && kIsHalf<From>) {
      read_row<From>(p[0], strides[0], n, reinterpret_cast<float*>(p[1]));
    } else if constexpr (__is_same(From, float) && kIsHalf<To>) {
      write_row<To>(p[1], strides[1], n, reinterpret_cast<const float*>(p[0]));
    } else {
      const From* from = reinterpret_cast<const From*>(p[0]);
      To* to = reinterpret_cast<To*>(p[1]);
      for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(p[1] + i * strides[1]) =
        convert<To>(*reinterpret_cast<const From*>(p[0] + i * strides[0]));
}

template <class From>
Inner cast_from(uint32_t to) {
  switch (to) {
    case ANYHAL_DTYPE_F32:
      return cast_run<From, float>;
    case ANYHAL_DTYPE_F16:
      return cast_run<From, F16>;
    case ANYHAL_DTYPE_BF16:
      return cast_run<From, BF16>;
    case ANYHAL_DTYPE_F64:
      return cast_run<From, double>;
    case ANYHAL_DTYPE_I64:
      return cast_run<From, int64_t>;
    case ANYHAL_DTYPE_I32:
      return cast_run<From, int32_t>;
    case ANYHAL_DTYPE_I16:
      return cast_run<From, int16_t>;
    case ANYHAL_DTYPE_I8:
      return cast_run<From, int8_t>;
    case ANYHAL_DTYPE_U64:
      return cast_run<From, uint64_t>;
    case ANYHAL_DTYPE_U32:
      return cast_run<From, uint32_t>;
    case ANYHAL_DTYPE_U16:
      return cast_run<From, uint16_t>;
    case ANYHAL_DTYPE_U8:
      return cast_run<From, uint8_t>;
    case ANYHAL_DTYPE_BOOL:
      return cast_run<From, Bool>;
    default:
      return nullptr;
  }
}

}  // namespace

Inner cast_of(uint32_t from, uint32_t to) {
  switch (from) {
    case ANYHAL_DTYPE_F32:
      return cast_from<float>(to);
    case ANYHAL_DTYPE_F16:
      return cast_from<F16>(to);
    case ANYHAL_DTYPE_BF16:
      return cast_from<BF16>(to);
    case ANYHAL_DTYPE_F64:
      return cast_from<double>(to);
    case ANYHAL_DTYPE_I64:
      return cast_from<int64_t>(to);
    case ANYHAL_DTYPE_I32:
      return cast_from<int32_t>(to);
    case ANYHAL_DTYPE_I16:
      return cast_from<int16_t>(to);
    case ANYHAL_DTYPE_I8:
      return cast_from<int8_t>(to);
    case ANYHAL_DTYPE_U64:
      return cast_from<uint64_t>(to);
    case ANYHAL_DTYPE_U32:
      return cast_from<uint32_t>(to);
    case ANYHAL_DTYPE_U16:
      return cast_from<uint16_t>(to);
    case ANYHAL_DTYPE_U8:
      return cast_from<uint8_t>(to);
    case ANYHAL_DTYPE_BOOL:
      return cast_from<Bool>(to);
    default:
      return nullptr;
  }
}

namespace {

// Block formats: blocks of weights in, as many numbers out, wherever the output's last dim lies.
struct State {
  Nest nest;
  Inner inner;
  uint32_t from;
  int64_t elements;  // of a block
  int64_t step;      // bytes from number to number of out
  Inner finish;      // f64 to the output dtype: rounded once
  Small small;
};

void small_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  convert_small(static_cast<const State*>(context)->small, p[0], strides[0], p[1], strides[1], n);
}

void pairs_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const Small& s = static_cast<const State*>(context)->small;
  for (int64_t i = 0; i < n; ++i)
    convert_small(s, p[0] + i * strides[0], s.from_step, p[1] + i * strides[1], s.to_step, 2);
}

void dequantise_run(const void* context, char* const* p, const int64_t* strides, int64_t n) {
  const State& s = *static_cast<const State*>(context);
  double values[256];
  const int64_t finish_strides[] = {sizeof(double), s.step};
  for (int64_t i = 0; i < n; ++i) {
    dequantise_exactly(s.from, reinterpret_cast<const uint8_t*>(p[0] + i * strides[0]), values);
    char* const ends[] = {reinterpret_cast<char*>(values), p[1] + i * strides[1]};
    s.finish(nullptr, ends, finish_strides, s.elements);
  }
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  run_nest(plan, s.nest, data, s.inner, &s, s.elements);
  return ANYHAL_STATUS_OK;
}

}  // namespace

bool prepare_cast(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor& x = plan.input(0);
  const Tensor& out = plan.output();
  s.from = x.dtype;
  s.elements = block_elements(x.dtype);
  plan.run = run;
  plan.library = "";
  if (is_small(x.dtype) || is_small(out.dtype)) {
    const bool saturate =
        plan.attribute<anyhal_attrs_cast>().overflow == int32_t{ANYHAL_OVERFLOW_SATURATE};
    s.elements = make_small(s.small, s.nest, x, out, saturate);
    s.inner = s.elements == 1 ? small_run : pairs_run;
    plan.kernel = "cast of small numbers";
    return true;
  }
  if (!is_block(x.dtype)) {
    const Tensor* tensors[] = {&x, &out};
    make_nest(s.nest, tensors, 2);
    s.inner = cast_of(x.dtype, out.dtype);
    plan.kernel = "cast";
    return s.inner != nullptr;
  }
  // Walked block by block: the output counted in steps of as many numbers.
  Tensor blocks = out;
  uint32_t last = out.rank - 1;
  s.step = out.strides[last] * element_bytes(out.dtype);
  blocks.dims[last] = out.dims[last] / s.elements;
  blocks.strides[last] = out.strides[last] * s.elements;
  Tensor source = x;
  source.dims[last] = blocks.dims[last];
  const Tensor* tensors[] = {&source, &blocks};
  make_nest(s.nest, tensors, 2);
  s.inner = dequantise_run;
  s.finish = cast_of(ANYHAL_DTYPE_F64, out.dtype);
  plan.kernel = "dequantise";
  return s.finish != nullptr;
}

}  // namespace hal::cpu::HAL_CPU_ISA
