// attention: softmax(scale * q k^T + mask) v over the visible keys, grouped heads, one row a time.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kQ, kK, kV, kLength, kMask, kSinks, kOut, kLse };

// How many keys of batch entry b count.
int64_t length_of(const Call& call, int64_t b) {
  const Tensor& t = sdk::operand(call.desc(), kLength);
  if (absent(t)) return sdk::dim(sdk::operand(call.desc(), kK), 2);
  return index_at(t, call.data(kLength), t.rank == 0 ? 0 : b * t.strides[0]);
}

void check_lengths(const Call& call) {
  const int64_t keys = sdk::dim(sdk::operand(call.desc(), kK), 2);
  const int64_t batch = sdk::dim(sdk::operand(call.desc(), kQ), 0);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = length_of(call, b);
    if (length >= 0 && length <= keys) continue;
    throw sdk::Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                       "kv_length %lld is outside [0, %lld], the number of "
                       "keys; correct it (nothing was written)",
                       static_cast<long long>(length), static_cast<long long>(keys));
  }
}

template <class T>
class Rows {
 public:
  explicit Rows(const Call& call)
      : call_(call),
        attributes_(sdk::attributes<anyhal_attrs_attention>(call.desc())),
        q_(call.view<const T>(kQ)),
        k_(call.view<const T>(kK)),
        v_(call.view<const T>(kV)),
        out_(call.view<T>(kOut)),
        mask_(sdk::operand(call.desc(), kMask)),
        sinks_(sdk::operand(call.desc(), kSinks)),
        weights_(reinterpret_cast<double*>(call.workspace())) {}

  void run() {
    const int64_t group = k_.dim(1) == 0 ? 1 : q_.dim(1) / k_.dim(1);
    for (int64_t b = 0; b < q_.dim(0); ++b) {
      const int64_t length = length_of(call_, b);
      for (int64_t h = 0; h < q_.dim(1); ++h) {
        for (int64_t i = 0; i < q_.dim(2); ++i) {
          const Range keys = visible_to(i, length);
          const Sum sum = weigh(b, h, h / group, i, keys);
          blend(b, h, h / group, i, keys, sum);
          write_lse(b, h, i, sum);
        }
      }
    }
  }

 private:
  struct Range {
    int64_t begin, end;
  };
  // Of the exponentials of the scores: total * exp(top). The total is 0 when nothing is visible or
  // all scores are -infinity, NaN when one is NaN.
  struct Sum {
    double top, total;
  };

  // The keys visible to query i but for a mask.
  Range visible_to(int64_t i, int64_t length) const {
    if (attributes_.causal == ANYHAL_CAUSAL_NONE) return {0, length};
    const bool last = attributes_.causal == ANYHAL_CAUSAL_LAST_KEY;
    const int64_t end = (last ? length - q_.dim(2) : 0) + i + 1;  // one past where i stands
    const bool all =
        attributes_.window == 0 || end < 0 || attributes_.window >= static_cast<uint64_t>(end);
    const int64_t begin = all ? 0 : end - static_cast<int64_t>(attributes_.window);
    return {begin, end < 0 ? 0 : end < length ? end : length};
  }

  double score(const T* q, const T* k) const {
    double sum = 0;
    for (int64_t d = 0; d < q_.dim(3); ++d)
      sum += static_cast<double>(q[d * q_.stride(3)]) * static_cast<double>(k[d * k_.stride(3)]);
    sum *= static_cast<double>(attributes_.scale);
    const double cap = static_cast<double>(attributes_.softcap);
    return cap == 0 ? sum : cap * std::tanh(sum / cap);
  }

  // Sets weights_[j] to exp(score - top), or to -1 for a key that is masked out.
  Sum weigh(int64_t b, int64_t h, int64_t kv_head, int64_t i, Range keys) const {
    const T* q = q_.data() + b * q_.stride(0) + h * q_.stride(1) + i * q_.stride(2);
    const T* k = k_.data() + b * k_.stride(0) + kv_head * k_.stride(1);
    const double sink = sink_of(h);
    double top = sink;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      if (hidden(mask_at(b, h, i, j))) continue;
      const double s = score(q, k + j * k_.stride(2)) + added(mask_at(b, h, i, j));
      if (!(s <= top)) top = s;
      weights_[j] = s;
    }
    double total = top == -HUGE_VAL ? 0 : std::exp(sink - top);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      if (hidden(mask_at(b, h, i, j))) {
        weights_[j] = -1;
        continue;
      }
      weights_[j] = top == -HUGE_VAL ? 0 : std::exp(weights_[j] - top);
      total += weights_[j];
    }
    return {top, total};
  }

  // The score of the key without a value; -infinity is none.
  double sink_of(int64_t h) const {
    if (absent(sinks_)) return -HUGE_VAL;
    return static_cast<double>(
        reinterpret_cast<const T*>(call_.data(kSinks))[h * sinks_.strides[0]]);
  }

  int64_t mask_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (absent(mask_)) return 0;
    const int64_t* s = mask_.strides;
    return b * s[0] + h * s[1] + i * s[2] + j * s[3];
  }

  bool hidden(int64_t at) const {
    return !absent(mask_) && mask_.dtype == ANYHAL_DTYPE_BOOL &&
           !reinterpret_cast<const sdk::boolean*>(call_.data(kMask))[at];
  }

  double added(int64_t at) const {
    if (absent(mask_) || mask_.dtype == ANYHAL_DTYPE_BOOL) return 0;
    return static_cast<double>(reinterpret_cast<const T*>(call_.data(kMask))[at]);
  }

  void blend(int64_t b, int64_t h, int64_t kv_head, int64_t i, Range keys, Sum of) const {
    T* out = out_.data() + b * out_.stride(0) + h * out_.stride(1) + i * out_.stride(2);
    const T* v = v_.data() + b * v_.stride(0) + kv_head * v_.stride(1);
    for (int64_t d = 0; d < v_.dim(3); ++d) {
      double sum = 0;
      for (int64_t j = keys.begin; of.total != 0 && j < keys.end; ++j) {
        if (weights_[j] == -1) continue;
        sum += weights_[j] * static_cast<double>(v[j * v_.stride(2) + d * v_.stride(3)]);
      }
      out[d * out_.stride(3)] = sdk::convert<T>(of.total == 0 ? 0.0 : sum / of.total);
    }
  }

  void write_lse(int64_t b, int64_t h, int64_t i, Sum of) const {
    const Tensor& lse = sdk::operand(call_.desc(), kLse);
    if (absent(lse)) return;
    using L = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const int64_t at = b * lse.strides[0] + h * lse.strides[1] + i * lse.strides[2];
    const double value = of.total == 0 ? -HUGE_VAL : of.top + std::log(of.total);
    reinterpret_cast<L*>(call_.data(kLse))[at] = static_cast<L>(value);
  }

  const Call& call_;
  const anyhal_attrs_attention attributes_;
  sdk::View<const T> q_, k_, v_;
  sdk::View<T> out_;
  const Tensor& mask_;
  const Tensor& sinks_;
  double* weights_;
};

}  // namespace

Answer attention_fits(const Desc& desc) {
  Answer count = operands_are(desc, 6, 3, 2);
  if (!count.yes()) return count;
  for (uint32_t i : {kQ, kK, kV, kOut}) {
    Answer rank = all({rank_is(desc, i, 4), dtypes_equal(desc, i, kQ)});
    if (!rank.yes()) return rank;
  }
  const int64_t* q = sdk::operand(desc, kQ).dims;
  const int64_t* k = sdk::operand(desc, kK).dims;
  const int64_t* v = sdk::operand(desc, kV).dims;
  const int64_t* out = sdk::operand(desc, kOut).dims;
  if (k[0] != q[0] || v[0] != q[0] || v[1] != k[1] || v[2] != k[2] || k[3] != q[3] ||
      (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) || out[0] != q[0] || out[1] != q[1] ||
      out[2] != q[2] || out[3] != v[3])
    return sdk::invalid("q, k, v and out must be [B,H,T,D], [B,G,S,D], [B,G,S,E] and [B,H,T,E]");
  const Tensor& length = sdk::operand(desc, kLength);
  if (!absent(length)) {
    Answer fits = dtype_in(desc, kLength, sdk::kIndices);
    if (!fits.yes()) return fits;
    if (length.rank > 1 || (length.rank == 1 && length.dims[0] != q[0]))
      return sdk::invalid("kv_length must be one number or one for each batch entry", kLength);
  }
  const Tensor& mask = sdk::operand(desc, kMask);
  if (!absent(mask)) {
    Answer fits =
        all({rank_is(desc, kMask, 4),
             dtype_in(desc, kMask, sdk::kBool | sdk::dtypes(sdk::operand(desc, kQ).dtype))});
    if (!fits.yes()) return fits;
    if (mask.dims[0] != q[0] || mask.dims[1] != q[1] || mask.dims[2] != q[2] ||
        mask.dims[3] != k[2])
      return sdk::invalid("the mask must be [B,H,T,S], broadcast by strides of 0", kMask);
  }
  const Tensor& sinks = sdk::operand(desc, kSinks);
  if (!absent(sinks) &&
      (sinks.rank != 1 || sinks.dims[0] != q[1] || sinks.dtype != sdk::operand(desc, kQ).dtype))
    return sdk::invalid("the sinks must be [H] in q's dtype", kSinks);
  const Tensor& lse = sdk::operand(desc, kLse);
  const uint32_t wide =
      sdk::operand(desc, kQ).dtype == ANYHAL_DTYPE_F64 ? ANYHAL_DTYPE_F64 : ANYHAL_DTYPE_F32;
  if (!absent(lse) && (lse.rank != 3 || lse.dims[0] != q[0] || lse.dims[1] != q[1] ||
                       lse.dims[2] != q[2] || lse.dtype != wide))
    return sdk::invalid("the log-sum-exp must be [B,H,T] in f32, or f64 for f64", kLse);
  return all(
      {choice_in(sdk::attributes<anyhal_attrs_attention>(desc).causal, ANYHAL_CAUSAL_LAST_KEY),
       output_is_single(desc), output_may_alias(desc, {})});
}

// The weights of one row.
uint64_t attention_workspace(const Desc& desc) {
  return static_cast<uint64_t>(sdk::dim(sdk::operand(desc, kK), 2)) * sizeof(double);
}

void attention(const Call& call) {
  check_lengths(call);
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kQ).dtype,
             [&](auto t) { Rows<typename decltype(t)::is>(call).run(); });
}

}  // namespace hal::cpu_ref
