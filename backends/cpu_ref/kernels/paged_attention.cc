// paged_attention: each token over the positions of its sequence, which lie in pages.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "paged.h"

namespace hal::cpu_ref {
namespace {

enum Operand : uint32_t { kQ, kK, kV, kStarts, kTable, kLengths, kOut };

template <class T>
class Tokens {
 public:
  Tokens(const Call& call, const Sequences& sequences)
      : sequences_(sequences),
        scale_(
            static_cast<double>(sdk::attributes<anyhal_attrs_paged_attention>(call.desc()).scale)),
        q_(call.view<const T>(kQ)),
        k_(call.view<const T>(kK)),
        v_(call.view<const T>(kV)),
        out_(call.view<T>(kOut)),
        weights_(reinterpret_cast<double*>(call.workspace())) {}

  void run() {
    const int64_t batch = sequences_.batch();
    int64_t token = 0;
    for (int64_t b = 0; b < batch; ++b) {
      for (; token < sequences_.start(b); ++token) attend(token, 0, 0);  // of no sequence
      for (; token < sequences_.start(b + 1); ++token) {
        const int64_t seen = sequences_.length(b) - (sequences_.start(b + 1) - token) + 1;
        attend(token, b, seen < 0 ? 0 : seen);
      }
    }
    for (; token < q_.dim(0); ++token) attend(token, 0, 0);
  }

 private:
  // Token `token` over the first `seen` positions of sequence b.
  void attend(int64_t token, int64_t b, int64_t seen) const {
    const int64_t group = k_.dim(2) == 0 ? 1 : q_.dim(1) / k_.dim(2);
    for (int64_t h = 0; h < q_.dim(1); ++h) {
      const double total = weigh(token, b, h, h / group, seen);
      T* out = out_.data() + token * out_.stride(0) + h * out_.stride(1);
      for (int64_t d = 0; d < v_.dim(3); ++d) {
        double sum = 0;
        for (int64_t p = 0; total != 0 && p < seen; ++p)
          sum += weights_[p] * static_cast<double>(row(v_, b, p, h / group)[d * v_.stride(3)]);
        out[d * out_.stride(2)] = sdk::convert<T>(total == 0 ? 0.0 : sum / total);
      }
    }
  }

  const T* row(const sdk::View<const T>& pages, int64_t b, int64_t position, int64_t head) const {
    return pages.data() + sequences_.page(b, position) * pages.stride(0) +
           sequences_.row(position) * pages.stride(1) + head * pages.stride(2);
  }

  // Sets weights_[p] to exp(score - top) and gives their sum, 0 if all scores are -infinity.
  double weigh(int64_t token, int64_t b, int64_t h, int64_t kv_head, int64_t seen) const {
    const T* q = q_.data() + token * q_.stride(0) + h * q_.stride(1);
    double top = -HUGE_VAL, total = 0;
    for (int64_t p = 0; p < seen; ++p) {
      const T* k = row(k_, b, p, kv_head);
      double sum = 0;
      for (int64_t d = 0; d < q_.dim(2); ++d)
        sum += static_cast<double>(q[d * q_.stride(2)]) * static_cast<double>(k[d * k_.stride(3)]);
      weights_[p] = sum * scale_;
      if (!(weights_[p] <= top)) top = weights_[p];
    }
    for (int64_t p = 0; p < seen; ++p) {
      weights_[p] = top == -HUGE_VAL ? 0 : std::exp(weights_[p] - top);
      total += weights_[p];
    }
    return total;
  }

  const Sequences& sequences_;
  const double scale_;
  sdk::View<const T> q_, k_, v_;
  sdk::View<T> out_;
  double* weights_;
};

}  // namespace

Answer paged_attention_fits(const Desc& desc) {
  Answer count = operands_are(desc, 6);
  if (!count.yes()) return count;
  Answer ranks =
      all({rank_is(desc, kQ, 3), rank_is(desc, kK, 4), rank_is(desc, kV, 4), rank_is(desc, kOut, 3),
           dtypes_equal(desc, kK, kQ), dtypes_equal(desc, kV, kQ), dtypes_equal(desc, kOut, kQ)});
  if (!ranks.yes()) return ranks;
  const int64_t* q = sdk::operand(desc, kQ).dims;
  const int64_t* k = sdk::operand(desc, kK).dims;
  const int64_t* v = sdk::operand(desc, kV).dims;
  const int64_t* out = sdk::operand(desc, kOut).dims;
  if (v[0] != k[0] || v[1] != k[1] || v[2] != k[2] || k[3] != q[2] ||
      (k[2] == 0 ? q[1] != 0 : q[1] % k[2] != 0) || out[0] != q[0] || out[1] != q[1] ||
      out[2] != v[3])
    return sdk::invalid("q, pages and out must be [T,H,D], [P,S,G,D], [P,S,G,E] and [T,H,E]");
  return all({Sequences::fit(desc, kStarts), output_is_single(desc), output_may_alias(desc, {})});
}

// The weights of one token.
uint64_t paged_attention_workspace(const Desc& desc) {
  const int64_t positions = sdk::operand(desc, kTable).dims[1] * sdk::operand(desc, kK).dims[1];
  return static_cast<uint64_t>(positions) * sizeof(double);
}

void paged_attention(const Call& call) {
  const Tensor& q = sdk::operand(call.desc(), kQ);
  const auto most = sdk::attributes<anyhal_attrs_paged_attention>(call.desc()).max_queries;
  Sequences sequences(call, "paged_attention", kStarts, q.dims[0], sdk::operand(call.desc(), kK));
  sequences.check();
  for (int64_t b = 0; most != 0 && b < sequences.batch(); ++b)
    sequences.require("number of tokens", sequences.count(b), 0, static_cast<int64_t>(most));
  sdk::visit(sdk::FloatTypes{}, q.dtype,
             [&](auto t) { Tokens<typename decltype(t)::is>(call, sequences).run(); });
}

}  // namespace hal::cpu_ref
