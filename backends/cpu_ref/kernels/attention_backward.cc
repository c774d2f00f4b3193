// attention_backward: dq, dk, dv and dsinks from probabilities that are computed again, one query
// at a time, in f64 and rounded once. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "training.h"

namespace hal::cpu_ref {
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
  kDsinks
};

// Rows of the last axis of a rank-4 operand.
template <class T>
struct Table {
  T* data;
  const Tensor& desc;

  Table(const Call& call, uint32_t i)
      : data(call.view<T>(i).data()), desc(sdk::operand(call.desc(), i)) {}
  T& at(int64_t b, int64_t h, int64_t i, int64_t d) const {
    const int64_t* s = desc.strides;
    return data[b * s[0] + h * s[1] + i * s[2] + d * s[3]];
  }
  int64_t dim(int d) const { return desc.dims[d]; }
  bool finite(int64_t b, int64_t h, int64_t i) const {
    for (int64_t d = 0; d < desc.dims[3]; ++d) {
      if (!std::isfinite(value_of(at(b, h, i, d)))) return false;
    }
    return true;
  }
};

template <class T>
class Gradients {
 public:
  explicit Gradients(const Call& call)
      : call_(call),
        attributes_(sdk::attributes<anyhal_attrs_attention_backward>(call.desc())),
        scale_(static_cast<double>(attributes_.scale)),
        dout_(call, kDout),
        q_(call, kQ),
        k_(call, kK),
        v_(call, kV),
        mask_(sdk::operand(call.desc(), kMask)),
        p_(reinterpret_cast<double*>(call.workspace())),
        dp_(p_ + k_.dim(2)),
        slope_(dp_ + k_.dim(2)),
        dk_(slope_ + k_.dim(2)),
        dv_(dk_ + sdk::element_count(k_.desc)),
        dsinks_(dv_ + sdk::element_count(v_.desc)) {}

  void run() {
    const int64_t group = k_.dim(1) == 0 ? 1 : q_.dim(1) / k_.dim(1);
    const int64_t sums = sdk::element_count(k_.desc) + sdk::element_count(v_.desc) + q_.dim(1);
    for (int64_t i = 0; i < sums; ++i) dk_[i] = 0;
    for (int64_t b = 0; b < q_.dim(0); ++b) {
      for (int64_t h = 0; h < q_.dim(1); ++h) {
        for (int64_t i = 0; i < q_.dim(2); ++i) query(b, h, h / group, i);
      }
    }
    store(dk_, kDk);
    store(dv_, kDv);
    const Tensor& sinks = sdk::operand(call_.desc(), kDsinks);
    for (int64_t h = 0; !absent(sinks) && h < q_.dim(1); ++h)
      call_.view<T>(kDsinks).data()[h * sinks.strides[0]] = sdk::convert<T>(dsinks_[h]);
  }

 private:
  struct Range {
    int64_t begin, end;
  };

  // The keys visible to query i but for a mask.
  Range visible_to(int64_t b, int64_t i) const {
    const Tensor& t = sdk::operand(call_.desc(), kLength);
    int64_t length = k_.dim(2);
    if (!absent(t)) length = index_at(t, call_.data(kLength), t.rank == 0 ? 0 : b * t.strides[0]);
    if (attributes_.causal == ANYHAL_CAUSAL_NONE) return {0, length};
    const bool last = attributes_.causal == ANYHAL_CAUSAL_LAST_KEY;
    const int64_t end = (last ? length - q_.dim(2) : 0) + i + 1;  // one past where i stands
    const bool all =
        attributes_.window == 0 || end < 0 || attributes_.window >= static_cast<uint64_t>(end);
    const int64_t begin = all ? 0 : end - static_cast<int64_t>(attributes_.window);
    return {begin, end < 0 ? 0 : end < length ? end : length};
  }

  // The score of the key without a value; -infinity is none.
  double sink_of(int64_t h) const {
    const Tensor& sinks = sdk::operand(call_.desc(), kSinks);
    if (absent(sinks)) return -HUGE_VAL;
    return value_of(reinterpret_cast<const T*>(call_.data(kSinks))[h * sinks.strides[0]]);
  }

  // The gradient of the log-sum-exp of a row.
  double level_of(int64_t b, int64_t h, int64_t i) const {
    const Tensor& dlse = sdk::operand(call_.desc(), kDlse);
    if (absent(dlse)) return 0;
    const int64_t at = b * dlse.strides[0] + h * dlse.strides[1] + i * dlse.strides[2];
    return static_cast<double>(reinterpret_cast<const Wide<T>*>(call_.data(kDlse))[at]);
  }

  bool hidden(int64_t at) const {
    return !absent(mask_) && mask_.dtype == ANYHAL_DTYPE_BOOL &&
           !reinterpret_cast<const sdk::boolean*>(call_.data(kMask))[at];
  }

  double added(int64_t at) const {
    if (absent(mask_) || mask_.dtype == ANYHAL_DTYPE_BOOL) return 0;
    return value_of(reinterpret_cast<const T*>(call_.data(kMask))[at]);
  }

  // Sets p_[j] to the probability of each key, or to -1 for one that is masked out, and slope_[j]
  // to that of the softcap. Gives the sink's probability; -1 when nothing is visible, no sink
  // either, or all scores are -infinity.
  double weigh(int64_t b, int64_t h, int64_t kv, int64_t i, Range keys) const {
    const double sink = sink_of(h), cap = static_cast<double>(attributes_.softcap);
    double top = sink;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const int64_t* s = mask_.strides;
      const int64_t at = absent(mask_) ? 0 : b * s[0] + h * s[1] + i * s[2] + j * s[3];
      p_[j] = -HUGE_VAL;
      dp_[j] = hidden(at) ? -1 : 0;
      if (dp_[j] == -1) continue;
      double sum = 0;
      for (int64_t d = 0; d < q_.dim(3); ++d)
        sum += value_of(q_.at(b, h, i, d)) * value_of(k_.at(b, kv, j, d));
      sum *= scale_;
      const double bent = cap == 0 ? 0 : std::tanh(sum / cap);
      slope_[j] = 1 - bent * bent;
      p_[j] = (cap == 0 ? sum : cap * bent) + added(at);
      if (!(p_[j] <= top)) top = p_[j];
    }
    if (top == -HUGE_VAL) return -1;
    double total = std::exp(sink - top);
    for (int64_t j = keys.begin; j < keys.end; ++j)
      total += dp_[j] == -1 ? 0 : std::exp(p_[j] - top);
    for (int64_t j = keys.begin; j < keys.end; ++j)
      p_[j] = dp_[j] == -1 ? -1 : std::exp(p_[j] - top) / total;
    return std::exp(sink - top) / total;
  }

  // Whether the query sees a key and takes in anything that is not finite.
  bool rejected(int64_t b, int64_t h, int64_t kv, int64_t i, Range keys) const {
    const bool row =
        !q_.finite(b, h, i) || !dout_.finite(b, h, i) || !std::isfinite(level_of(b, h, i));
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      if (p_[j] != -1 && (row || !k_.finite(b, kv, j) || !v_.finite(b, kv, j))) return true;
    }
    return false;
  }

  void query(int64_t b, int64_t h, int64_t kv, int64_t i) const {
    const Table<T> dq(call_, kDq);
    const int64_t size = q_.dim(3), value_size = v_.dim(3);
    const Range keys = visible_to(b, i);
    const double p_sink = weigh(b, h, kv, i, keys), level = level_of(b, h, i);
    const bool sees = p_sink != -1;
    const double nan = sees && rejected(b, h, kv, i, keys) ? std::nan("") : 0;
    double mean = 0;
    for (int64_t j = keys.begin; sees && j < keys.end; ++j) {
      if (p_[j] == -1) continue;
      dp_[j] = nan;
      for (int64_t d = 0; d < value_size; ++d)
        dp_[j] += value_of(dout_.at(b, h, i, d)) * value_of(v_.at(b, kv, j, d));
      mean += p_[j] * dp_[j];
    }
    if (sees && !absent(sdk::operand(call_.desc(), kSinks)))
      dsinks_[h] += p_sink * (level - mean) + nan;
    auto ds = [&](int64_t j) { return p_[j] * (dp_[j] - mean + level) * slope_[j]; };
    for (int64_t d = 0; d < size; ++d) {
      double sum = 0;
      for (int64_t j = keys.begin; sees && j < keys.end; ++j) {
        if (p_[j] != -1) sum += ds(j) * value_of(k_.at(b, kv, j, d));
      }
      dq.at(b, h, i, d) = sdk::convert<T>(sum * scale_);
    }
    for (int64_t j = keys.begin; sees && j < keys.end; ++j) {
      if (p_[j] == -1) continue;
      const int64_t row = (b * k_.dim(1) + kv) * k_.dim(2) + j;
      const double weight = ds(j) * scale_;
      for (int64_t d = 0; d < size; ++d)
        dk_[row * size + d] += weight * value_of(q_.at(b, h, i, d));
      for (int64_t d = 0; d < value_size; ++d)
        dv_[row * value_size + d] += p_[j] * value_of(dout_.at(b, h, i, d)) + nan;
    }
  }

  void store(const double* sums, uint32_t i) const {
    const Table<T> out(call_, i);
    for (int64_t b = 0; b < out.dim(0); ++b) {
      for (int64_t h = 0; h < out.dim(1); ++h) {
        for (int64_t j = 0; j < out.dim(2); ++j) {
          for (int64_t d = 0; d < out.dim(3); ++d) out.at(b, h, j, d) = sdk::convert<T>(*sums++);
        }
      }
    }
  }

  const Call& call_;
  const anyhal_attrs_attention_backward attributes_;
  const double scale_;
  Table<const T> dout_, q_, k_, v_;
  const Tensor& mask_;
  double *p_, *dp_, *slope_, *dk_, *dv_, *dsinks_;
};

void check_lengths(const Call& call) {
  const Tensor& length = sdk::operand(call.desc(), kLength);
  if (absent(length)) return;
  const int64_t keys = sdk::dim(sdk::operand(call.desc(), kK), 2);
  check_indices(length, call.data(kLength), keys + 1);
}

}  // namespace

Answer attention_backward_fits(const Desc& desc) {
  Answer count = operands_are(desc, 8, 4, 4);
  if (!count.yes()) return count;
  if (absent(sdk::operand(desc, kDk)) || absent(sdk::operand(desc, kDv)))
    return sdk::invalid("dk and dv must be present");
  for (uint32_t i : {kDout, kQ, kK, kV, kDq, kDk, kDv}) {
    Answer rank = all({rank_is(desc, i, 4), dtypes_equal(desc, i, kQ)});
    if (!rank.yes()) return rank;
  }
  const int64_t* d = sdk::operand(desc, kDout).dims;
  const int64_t* q = sdk::operand(desc, kQ).dims;
  const int64_t* k = sdk::operand(desc, kK).dims;
  const int64_t* v = sdk::operand(desc, kV).dims;
  if (k[0] != q[0] || v[0] != q[0] || v[1] != k[1] || v[2] != k[2] || k[3] != q[3] ||
      (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) || d[0] != q[0] || d[1] != q[1] || d[2] != q[2] ||
      d[3] != v[3])
    return sdk::invalid("q, k, v and dout must be [B,H,T,D], [B,G,S,D], [B,G,S,E] and [B,H,T,E]");
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
  if (absent(sinks) != absent(sdk::operand(desc, kDsinks)))
    return sdk::invalid("dsinks are present exactly when the sinks are", kDsinks);
  for (uint32_t i : {kSinks, kDsinks}) {
    if (absent(sinks)) break;
    Answer fits = all({rank_is(desc, i, 1), dtypes_equal(desc, i, kQ)});
    if (!fits.yes()) return fits;
    if (sdk::operand(desc, i).dims[0] != q[1])
      return sdk::invalid("sinks and dsinks must be [H]", static_cast<int32_t>(i));
  }
  const Tensor& dlse = sdk::operand(desc, kDlse);
  if (!absent(dlse)) {
    Answer fits = all({rank_is(desc, kDlse, 3), is_wide(desc, kDlse, kQ)});
    if (!fits.yes()) return fits;
    if (dlse.dims[0] != q[0] || dlse.dims[1] != q[1] || dlse.dims[2] != q[2])
      return sdk::invalid("dlse must be [B,H,T]", kDlse);
  }
  return all({choice_in(sdk::attributes<anyhal_attrs_attention_backward>(desc).causal,
                        ANYHAL_CAUSAL_LAST_KEY),
              dims_equal(desc, kDq, kQ), dims_equal(desc, kDk, kK), dims_equal(desc, kDv, kV),
              outputs_stand_alone(desc)});
}

// Three rows over the keys, and the sums of dk, dv and dsinks.
uint64_t attention_backward_workspace(const Desc& desc) {
  const Tensor& k = sdk::operand(desc, kK);
  const int64_t numbers = 3 * sdk::dim(k, 2) + sdk::element_count(k) +
                          sdk::element_count(sdk::operand(desc, kV)) +
                          sdk::dim(sdk::operand(desc, kQ), 1);
  return static_cast<uint64_t>(numbers) * sizeof(double);
}

void attention_backward(const Call& call) {
  check_lengths(call);
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), kQ).dtype,
             [&](auto t) { Gradients<typename decltype(t)::is>(call).run(); });
}

}  // namespace hal::cpu_ref
