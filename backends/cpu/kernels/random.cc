// random_uniform, random_normal, random_integers, dropout: numbers made of Philox words by
// position. SPDX-License-Identifier: Apache-2.0
//
// Every step rounds as docs/adr/0080 has it, so the results are those of every other device: these
// files are built without contraction of products into fused ones.
#include "indexing.h"
#include "loops.h"
#include "math.h"
#include "philox.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

constexpr int64_t kPiece = 512;  // elements at a time; whole blocks of words, at any dtype

struct State;
using Make = void (*)(const State& s, const uint32_t* words, int64_t n, char* to);

struct State {
  Make make;      // n elements from their words, adjacent
  int64_t words;  // of an element: 1 or 2
  int64_t count, bytes;
  int64_t key_stride;
  bool dense;
  uint64_t low, range;  // of integers
  uint64_t threshold;   // of dropout
  double factor;
};

bool is_dense(const Tensor& t) {
  int64_t stride = 1;
  for (uint32_t d = t.rank; d-- > 0;) {
    if (t.dims[d] != 1 && t.strides[d] != stride) return false;
    stride *= t.dims[d];
  }
  return true;
}

RandomKey key_at(const char* key, int64_t stride) {
  RandomKey k;
  memcpy(&k.seed, key, 8);
  memcpy(&k.counter, key + stride, 8);
  return k;
}

// Pieces [begin, end) of the output, each with its words: body(first element, count, words).
template <class Body>
void each_piece(const State& s, const Team& team, const RandomKey& key, const Body& body) {
  int64_t pieces = (s.count + kPiece - 1) / kPiece;
  split_range(team, pieces, kParallelGrain / kPiece, 1, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[2 * kPiece + 4 * kBlocksAtOnce];
    for (int64_t piece = begin; piece < end; ++piece) {
      int64_t first = piece * kPiece;
      int64_t n = s.count - first < kPiece ? s.count - first : kPiece;
      fill_words(key, static_cast<uint64_t>(first * s.words / 4), (n * s.words + 4) / 4, words);
      body(first, n, words);
    }
  });
}

template <class T>
T number_from(float x) {
  return from_f32<T>(x);
}

// The upper bits of a word, as many as the significand holds.
template <class T, int kBits>
void make_uniform(const State&, const uint32_t* words, int64_t n, char* to) {
  T* out = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) {
    float whole = static_cast<float>(static_cast<int32_t>(words[i] >> (32 - kBits)));
    out[i] = number_from<T>(whole * (1.0f / static_cast<float>(1 << kBits)));
  }
}

uint64_t long_word(const uint32_t* words, int64_t i) {
  return words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
}

void make_uniform_f64(const State&, const uint32_t* words, int64_t n, char* to) {
  double* out = reinterpret_cast<double*>(to);
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<double>(static_cast<int64_t>(long_word(words, i) >> 11)) * 0x1p-53;
}

// The numbers of random_normal in each computing type.
template <class C>
struct Normal {
  static constexpr bool kLong = __is_same(C, double);
  static constexpr int kBits = kLong ? 53 : 32;
  static constexpr int kLogTerms = kLong ? 11 : 5;
  static constexpr int kSineTerms = kLong ? 12 : 7;
  C log[kLogTerms];    // of 2 log(m) / z in powers of z²
  C sine[kSineTerms];  // of sin(y π/2) / y in powers of y²

  constexpr Normal() : log(), sine() {
    for (int k = 0; k < kLogTerms; ++k) log[k] = static_cast<C>(4.0 / (2 * k + 1));
    constexpr double kHalfPi = 1.5707963267948966;
    double term = kHalfPi;
    for (int k = 0; k < kSineTerms; ++k) {
      sine[k] = static_cast<C>(term);
      term *= -(kHalfPi * kHalfPi) / ((2 * k + 2) * (2 * k + 3));
    }
  }
};
template <class C>
constexpr Normal<C> kNormal;

template <class C, int kTerms>
inline C series(const C (&terms)[kTerms], C x) {
  C total = terms[kTerms - 1];
#pragma GCC unroll 16
  for (int k = kTerms - 2; k >= 0; --k) total = total * x + terms[k];
  return total;
}

// sqrt(-2 log(x / 2^bits)) for whole numbers x from 1 to 2^bits.
template <class C>
inline C radius_of(C x) {
  constexpr float kSpread = 1.41421356237309505f * 0x1p23f;
  float wide = static_cast<float>(x) * kSpread;
  float power = wide - wide * (1.0f - 0x1p-24f);  // 2^e, the spacing of numbers at `wide`
  int32_t left = Normal<C>::kBits - (bit_cast<int32_t>(power) / (1 << 23) - 127);
  C m = x / static_cast<C>(power);
  C z = (m - C(1)) / (m + C(1));
  C exponent = static_cast<C>(2 * 0.6931471805599453 * static_cast<double>(left));
  C square = exponent - series(kNormal<C>.log, z * z) * z;
  if constexpr (Normal<C>::kLong) return __builtin_sqrt(square);
  return static_cast<C>(__builtin_sqrtf(static_cast<float>(square)));
}

// Pairs of words to pairs of numbers, in place of their indices: x and t (quarter turns) given.
template <class C>
void turn_pairs(C* x, C* t, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    C r = radius_of(x[i] < C(1) ? C(1) : x[i]);
    C away = t[i] < C(0) ? -t[i] : t[i];
    C across = C(2) - away < away ? C(2) - away : away;
    C cosine = C(1) - away, sine = t[i] < C(0) ? -across : across;
    x[i] = series(kNormal<C>.sine, cosine * cosine) * cosine * r;
    t[i] = series(kNormal<C>.sine, sine * sine) * sine * r;
  }
}

template <class T>
void make_normal(const State&, const uint32_t* words, int64_t n, char* to) {
  alignas(64) float x[kPiece / 2], t[kPiece / 2], both[kPiece];
  int64_t pairs = (n + 1) / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    x[i] = static_cast<float>(words[2 * i]);
    t[i] = static_cast<float>(static_cast<int32_t>(words[2 * i + 1])) * 0x1p-30f;
  }
  turn_pairs(x, t, pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    both[2 * i] = x[i];
    both[2 * i + 1] = t[i];
  }
  write_row<T>(to, sizeof(T), n, both);
}

void make_normal_f64(const State&, const uint32_t* words, int64_t n, char* to) {
  alignas(64) double x[kPiece / 2], t[kPiece / 2];
  int64_t pairs = (n + 1) / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    x[i] = static_cast<double>(static_cast<int64_t>(long_word(words, 2 * i) >> 11));
    t[i] = static_cast<double>(static_cast<int64_t>(long_word(words, 2 * i + 1))) * 0x1p-62;
  }
  turn_pairs(x, t, pairs);
  double* out = reinterpret_cast<double*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = i % 2 == 0 ? x[i / 2] : t[i / 2];
}

// The upper half of word · range; a range of 2^64 stands as 0.
template <class T>
void make_integers(const State& s, const uint32_t* words, int64_t n, char* to) {
  T* out = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t word = long_word(words, i);
    uint64_t part = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * s.range >> 64);
    out[i] = static_cast<T>(s.low + (s.range == 0 ? word : part));
  }
}

anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  const Tensor& out = plan.output();
  each_piece(s, plan.team, key_at(data[0], s.key_stride),
             [&](int64_t first, int64_t n, const uint32_t* words) {
               if (s.dense) return s.make(s, words, n, data[1] + first * s.bytes);
               alignas(64) char made[kPiece * 8];
               s.make(s, words, n, made);
               for (int64_t i = 0; i < n; ++i)
                 memcpy(data[1] + offset_of(out, 0, out.rank, first + i), made + i * s.bytes,
                        static_cast<size_t>(s.bytes));
             });
  return ANYHAL_STATUS_OK;
}

bool finish_plan(Plan& plan, Make make, int64_t words) {
  State& s = plan.make_state<State>();
  const Tensor &key = plan.input(0), &out = plan.output();
  s.make = make;
  s.words = words;
  s.count = element_count(out);
  s.bytes = element_bytes(out.dtype);
  s.key_stride = key.strides[0] * 8;
  s.dense = is_dense(out);
  plan.run = run;
  plan.kernel = "Philox by position";
  return make != nullptr;
}

// ------------------------------------------------------------------------------------ dropout

struct Piece {
  const Plan& plan;
  char* const* data;
  int64_t first, n;
  const uint32_t* words;

  char* at(uint32_t operand, int64_t i) const {
    const Tensor& t = plan.operands[operand];
    return data[operand] + offset_of(t, 0, t.rank, first + i);
  }
};

// T is what is stored, C what is computed in.
template <class T, class C>
inline T scaled(T x, C factor) {
  if constexpr (__is_same(C, double))
    return x * factor;
  else
    return from_f32<T>(to_f32(x) * factor);
}

template <class T, class C>
void drop(const State& s, const Piece& p) {
  C factor = static_cast<C>(s.factor);
  // A threshold past every word drops all of them.
  uint32_t least = static_cast<uint32_t>(s.threshold);
  bool none = s.threshold > UINT32_MAX;
  if (s.dense) {
    const T* x = reinterpret_cast<const T*>(p.data[0]) + p.first;
    T* out = reinterpret_cast<T*>(p.data[2]) + p.first;
    unsigned char* kept = reinterpret_cast<unsigned char*>(p.data[3]) + p.first;
    for (int64_t i = 0; i < p.n; ++i) kept[i] = !none && p.words[i] >= least;
    for (int64_t i = 0; i < p.n; ++i) {
      T y = scaled<T, C>(x[i], factor);
      out[i] = kept[i] != 0 ? y : T{};
    }
    return;
  }
  for (int64_t i = 0; i < p.n; ++i) {
    bool keep = !none && p.words[i] >= least;
    T x = *reinterpret_cast<const T*>(p.at(0, i));
    *reinterpret_cast<T*>(p.at(2, i)) = keep ? scaled<T, C>(x, factor) : T{};
    *p.at(3, i) = keep;
  }
}

template <class T, class C>
anyhal_status run_dropout(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  each_piece(s, plan.team, key_at(data[1], s.key_stride),
             [&](int64_t first, int64_t n, const uint32_t* words) {
               drop<T, C>(s, {plan, data, first, n, words});
             });
  return ANYHAL_STATUS_OK;
}

Make uniform_of(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return make_uniform<float, 24>;
    case ANYHAL_DTYPE_F16:
      return make_uniform<F16, 11>;
    case ANYHAL_DTYPE_BF16:
      return make_uniform<BF16, 8>;
    default:
      return make_uniform_f64;
  }
}

Make normal_of(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return make_normal<float>;
    case ANYHAL_DTYPE_F16:
      return make_normal<F16>;
    case ANYHAL_DTYPE_BF16:
      return make_normal<BF16>;
    default:
      return make_normal_f64;
  }
}

Make integers_of(uint32_t dtype) {
  switch (element_bytes(dtype)) {
    case 8:
      return make_integers<uint64_t>;
    case 4:
      return make_integers<uint32_t>;
    case 2:
      return make_integers<uint16_t>;
    default:
      return make_integers<uint8_t>;
  }
}

}  // namespace

bool prepare_random_uniform(Plan& plan) {
  uint32_t dtype = plan.output().dtype;
  return finish_plan(plan, uniform_of(dtype), dtype == ANYHAL_DTYPE_F64 ? 2 : 1);
}

bool prepare_random_normal(Plan& plan) {
  uint32_t dtype = plan.output().dtype;
  return finish_plan(plan, normal_of(dtype), dtype == ANYHAL_DTYPE_F64 ? 2 : 1);
}

bool prepare_random_integers(Plan& plan) {
  const auto& attributes = plan.attribute<anyhal_attrs_random_integers>();
  State& s = plan.make_state<State>();
  s.low = attributes.low;
  s.range = attributes.high - attributes.low;
  return finish_plan(plan, integers_of(plan.output().dtype), 2);
}

bool prepare_dropout(Plan& plan) {
  State& s = plan.make_state<State>();
  const Tensor& x = plan.input(0);
  double p = static_cast<double>(plan.attribute<anyhal_attrs_dropout>().p);
  s.threshold = static_cast<uint64_t>(__builtin_nearbyint(p * 0x1p32));
  s.factor = p == 1.0 ? 0.0 : 1.0 / (1.0 - p);
  s.words = 1;
  s.count = element_count(x);
  s.key_stride = plan.input(1).strides[0] * 8;
  s.dense = is_dense(x) && is_dense(plan.operands[2]) && is_dense(plan.operands[3]);
  plan.kernel = "Philox by position";
  switch (x.dtype) {
    case ANYHAL_DTYPE_F32:
      plan.run = run_dropout<float, float>;
      break;
    case ANYHAL_DTYPE_F16:
      plan.run = run_dropout<F16, float>;
      break;
    case ANYHAL_DTYPE_BF16:
      plan.run = run_dropout<BF16, float>;
      break;
    default:
      plan.run = run_dropout<double, double>;
  }
  return true;
}

}  // namespace hal::cpu::HAL_CPU_ISA
