// random_uniform, random_normal, random_integers, dropout: bits of Philox4x32-10 by position, and
// numbers made of them in steps that IEEE 754 rounds exactly (docs/adr/0080).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "conditions.h"

namespace hal::cpu_ref {
namespace {

constexpr int kRounds = 10;

// The words of one key in order; asking for neighbours one after the other is cheap.
class Words {
 public:
  Words(const Call& call, uint32_t key) {
    const auto view = call.view<const uint64_t>(key);
    seed_ = view.data()[0];
    counter_ = view.data()[view.stride(0)];
  }

  uint32_t at(uint64_t i) {
    if (i / 4 != block_) make(block_ = i / 4);
    return words_[i % 4];
  }
  // Two words, the low one first.
  uint64_t pair(uint64_t i) { return at(2 * i) | uint64_t{at(2 * i + 1)} << 32; }

 private:
  static uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  static uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  void make(uint64_t block) {
    uint32_t c[4] = {low(block), high(block), low(counter_), high(counter_)};
    uint32_t k[2] = {low(seed_), high(seed_)};
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t p = uint64_t{0xD2511F53} * c[0], q = uint64_t{0xCD9E8D57} * c[2];
      const uint32_t next[4] = {high(q) ^ c[1] ^ k[0], low(q), high(p) ^ c[3] ^ k[1], low(p)};
      std::copy(next, next + 4, c);
      k[0] += 0x9E3779B9;
      k[1] += 0xBB67AE85;
    }
    std::copy(c, c + 4, words_);
  }

  uint64_t seed_, counter_;
  uint64_t block_ = UINT64_MAX;  // which no element reaches
  uint32_t words_[4] = {};
};

// Calls fn(i, offset) for each element: its row-major position and where it is stored.
template <class Fn>
void each(const Tensor& out, Fn fn) {
  sdk::Odometer<1> walk;
  for (uint32_t d = 0; d < out.rank; ++d) walk.add(out.dims[d], {out.strides[d]});
  if (walk.empty()) return;
  uint64_t i = 0;
  do {
    fn(i++, walk.at(0));
  } while (walk.next());
}

template <class T>
T uniform(Words& words, uint64_t i) {
  if constexpr (std::is_same_v<T, double>) {
    return static_cast<double>(words.pair(i) >> 11) * 0x1p-53;
  } else {
    constexpr int kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, sdk::f16> ? 11 : 8;
    return T(static_cast<float>(words.at(i) >> (32 - kBits)) / static_cast<float>(1 << kBits));
  }
}

// The series of random_normal.py, first terms first.
template <class C>
struct Series;
template <>
struct Series<float> {
  static constexpr int kBits = 32, kLog = 5, kSine = 7;
};
template <>
struct Series<double> {
  static constexpr int kBits = 53, kLog = 11, kSine = 12;
};

// Every product below is rounded before it is added to: this backend is built without contraction.
template <class C>
C log_series(C w) {
  C total = C(0);
  for (int k = Series<C>::kLog - 1; k >= 0; --k)
    total = (k == Series<C>::kLog - 1 ? C(0) : total * w) + static_cast<C>(4.0 / (2 * k + 1));
  return total;
}

// sin(y pi/2) / y in w = y^2.
template <class C>
C sine_series(C w) {
  constexpr int kTerms = Series<C>::kSine;
  constexpr double kHalfPi = 1.5707963267948966;
  double term[kTerms] = {kHalfPi};
  for (int k = 0; k + 1 < kTerms; ++k)
    term[k + 1] = term[k] * (-(kHalfPi * kHalfPi) / ((2 * k + 2) * (2 * k + 3)));
  C total = static_cast<C>(term[kTerms - 1]);
  for (int k = kTerms - 2; k >= 0; --k) total = total * w + static_cast<C>(term[k]);
  return total;
}

// sqrt(-2 log(x / 2^bits)) for x = 1..2^bits.
template <class C>
C radius(C x) {
  // The spacing at this number is the power of two next to x in ratio.
  const float wide = static_cast<float>(x) * static_cast<float>(std::sqrt(2.0) * 0x1p23);
  const float below = wide * (1 - 0x1p-24f);
  const C power = static_cast<C>(wide - below);
  const C m = x / power;
  const C z = (m - C(1)) / (m + C(1));
  const int left = Series<C>::kBits - std::ilogb(power);
  const C exponent = static_cast<C>(2 * 0.6931471805599453 * left);
  const C log = log_series<C>(z * z) * z;
  return std::sqrt(exponent - log);
}

template <class C>
C normal(Words& words, uint64_t i) {
  C x, t;  // t in quarter turns
  if constexpr (std::is_same_v<C, double>) {
    x = static_cast<C>(words.pair(i & ~uint64_t{1}) >> 11);
    t = static_cast<C>(static_cast<int64_t>(words.pair(i | 1))) * C(0x1p-62);
  } else {
    x = static_cast<C>(words.at(i & ~uint64_t{1}));
    t = static_cast<C>(static_cast<int32_t>(words.at(i | 1))) * C(0x1p-30);
  }
  const C r = radius<C>(x < C(1) ? C(1) : x), away = std::fabs(t);
  const C sign = t > 0 ? C(1) : t < 0 ? C(-1) : C(0);
  const C y = i % 2 == 0 ? C(1) - away : std::min(away, C(2) - away) * sign;
  return sine_series<C>(y * y) * y * r;
}

// The upper half of the product of two 64-bit numbers.
uint64_t high_product(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & UINT32_MAX)) >> 32);
}

Answer key_fits(const Desc& desc, uint32_t key) {
  const Tensor& t = sdk::operand(desc, key);
  if (t.dtype != ANYHAL_DTYPE_U64 || t.rank != 1 || t.dims[0] != 2)
    return sdk::invalid("the key must be two u64 numbers", static_cast<int32_t>(key));
  return all({output_is_single(desc), output_may_alias(desc, {})});
}

Answer numbers_fit(const Desc& desc, const sdk::Dtypes& made) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  return all({dtype_in(desc, 1, made), key_fits(desc, 0)});
}

// out[i] = fn(words, i) for the dtype of the output.
template <class List, class Fn>
void generate(const Call& call, List list, Fn fn) {
  const Tensor& out = sdk::operand(call.desc(), 1);
  sdk::visit(list, out.dtype, [&](auto t) {
    using T = typename decltype(t)::is;
    Words words(call, 0);
    T* to = call.view<T>(1).data();
    each(out, [&](uint64_t i, int64_t at) { to[at] = fn(t, words, i); });
  });
}

}  // namespace

Answer random_floats_fit(const Desc& desc) { return numbers_fit(desc, sdk::kFloats); }

void random_uniform(const Call& call) {
  generate(call, sdk::FloatTypes{}, [](auto t, Words& words, uint64_t i) {
    return uniform<typename decltype(t)::is>(words, i);
  });
}

void random_normal(const Call& call) {
  generate(call, sdk::FloatTypes{}, [](auto t, Words& words, uint64_t i) {
    using T = typename decltype(t)::is;
    return static_cast<T>(normal<sdk::Compute<T>>(words, i));
  });
}

Answer random_integers_fit(const Desc& desc) { return numbers_fit(desc, sdk::kInts); }

void random_integers(const Call& call) {
  const auto range = sdk::attributes<anyhal_attrs_random_integers>(call.desc());
  generate(call, sdk::IntTypes{}, [&](auto t, Words& words, uint64_t i) {
    // A count of 2^64 wraps to 0: every word is a number then.
    const uint64_t count = range.high - range.low, word = words.pair(i);
    const uint64_t found = range.low + (count == 0 ? word : high_product(word, count));
    return static_cast<typename decltype(t)::is>(found);
  });
}

Answer dropout_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2, 2, 2);
  if (!count.yes()) return count;
  const float p = sdk::attributes<anyhal_attrs_dropout>(desc).p;
  if (!(p >= 0 && p <= 1)) return sdk::invalid("p must be from 0 to 1");
  return all({dtypes_equal(desc, 2, 0), dtype_in(desc, 3, sdk::kBool), dims_equal(desc, 2, 0),
              dims_equal(desc, 3, 0), key_fits(desc, 1)});
}

void dropout(const Call& call) {
  const double p = static_cast<double>(sdk::attributes<anyhal_attrs_dropout>(call.desc()).p);
  const uint64_t threshold = static_cast<uint64_t>(std::nearbyint(p * 0x1p32));
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& mask = sdk::operand(call.desc(), 3);
  sdk::visit(sdk::FloatTypes{}, x.dtype, [&](auto t) {
    using T = typename decltype(t)::is;
    using C = sdk::Compute<T>;
    const C factor = static_cast<C>(p == 1 ? 0.0 : 1 / (1 - p));
    Words words(call, 1);
    const T* from = call.view<const T>(0).data();
    T* to = call.view<T>(2).data();
    sdk::boolean* kept = call.view<sdk::boolean>(3).data();
    sdk::Odometer<3> walk;
    for (uint32_t d = 0; d < x.rank; ++d)
      walk.add(x.dims[d], {x.strides[d], sdk::operand(call.desc(), 2).strides[d], mask.strides[d]});
    if (walk.empty()) return;
    uint64_t i = 0;
    do {
      const bool keep = words.at(i++) >= threshold;
      kept[walk.at(2)] = sdk::boolean(keep);
      to[walk.at(1)] = keep ? static_cast<T>(static_cast<C>(from[walk.at(0)]) * factor) : T(0.0f);
    } while (walk.next());
  });
}

}  // namespace hal::cpu_ref
