// attention: softmax(scale * q k^T + mask) v over the visible keys, grouped heads, one row at a
// time. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kQ, kK, kV, kLength, kMask, kOut };

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
        weights_(reinterpret_cast<double*>(call.workspace())) {}

  void run() {
    const int64_t group = k_.dim(1) == 0 ? 1 : q_.dim(1) / k_.dim(1);
    for (int64_t b = 0; b < q_.dim(0); ++b) {
      const int64_t length = length_of(call_, b);
      for (int64_t h = 0; h < q_.dim(1); ++h) {
        for (int64_t i = 0; i < q_.dim(2); ++i) {
          const int64_t end = visible_end(i, length);
          const double total = weigh(b, h, h / group, i, end);
          blend(b, h, h / group, i, end, total);
        }
      }
    }
  }

 private:
  // Keys [0, end) are visible to query i but for a mask.
  int64_t visible_end(int64_t i, int64_t length) const {
    int64_t end = length;
    if (attributes_.causal == ANYHAL_CAUSAL_FIRST_KEY && i + 1 < end) end = i + 1;
    if (attributes_.causal == ANYHAL_CAUSAL_LAST_KEY) end = length - q_.dim(2) + i + 1;
    return end < 0 ? 0 : end;
  }

  // Sets weights_[j] to exp(score - top), or to -1 for a key that is masked out. Returns their sum:
  // 0 when nothing is visible or all scores are -infinity, NaN when a visible score is NaN.
  double weigh(int64_t b, int64_t h, int64_t kv_head, int64_t i, int64_t end) const {
    const T* q = q_.data() + b * q_.stride(0) + h * q_.stride(1) + i * q_.stride(2);
    double top = -HUGE_VAL;
    for (int64_t j = 0; j < end; ++j) {
      if (hidden(mask_at(b, h, i, j))) continue;
      const T* k = k_.data() + b * k_.stride(0) + kv_head * k_.stride(1) + j * k_.stride(2);
      double sum = 0;
      for (int64_t d = 0; d < q_.dim(3); ++d)
        sum += static_cast<double>(q[d * q_.stride(3)]) * static_cast<double>(k[d * k_.stride(3)]);
      sum = sum * static_cast<double>(attributes_.scale) + added(mask_at(b, h, i, j));
      if (!(sum <= top)) top = sum;
      weights_[j] = sum;
    }
    double total = 0;
    for (int64_t j = 0; j < end; ++j) {
      if (hidden(mask_at(b, h, i, j))) {
        weights_[j] = -1;
        continue;
      }
      weights_[j] = top == -HUGE_VAL ? 0 : std::exp(weights_[j] - top);
      total += weights_[j];
    }
    return total;
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

  void blend(int64_t b, int64_t h, int64_t kv_head, int64_t i, int64_t end, double total) const {
    T* out = out_.data() + b * out_.stride(0) + h * out_.stride(1) + i * out_.stride(2);
    const T* v = v_.data() + b * v_.stride(0) + kv_head * v_.stride(1);
    for (int64_t d = 0; d < v_.dim(3); ++d) {
      double sum = 0;
      for (int64_t j = 0; total != 0 && j < end; ++j) {
        if (weights_[j] == -1) continue;
        sum += weights_[j] * static_cast<double>(v[j * v_.stride(2) + d * v_.stride(3)]);
      }
      out[d * out_.stride(3)] = sdk::convert<T>(total == 0 ? 0.0 : sum / total);
    }
  }

  const Call& call_;
  const anyhal_attrs_attention attributes_;
  sdk::View<const T> q_, k_, v_;
  sdk::View<T> out_;
  const Tensor& mask_;
  double* weights_;
};

}  // namespace

Answer attention_fits(const Desc& desc) {
  Answer count = operands_are(desc, 5, 3);
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
