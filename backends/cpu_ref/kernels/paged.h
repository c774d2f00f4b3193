// Sequences of different lengths in one batch, and caches in pages, as the paged ops have them.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_PAGED_H_
#define BACKENDS_CPU_REF_KERNELS_PAGED_H_

#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

// Reads query_starts, block_table and lengths, which are the operands from `first` on.
class Sequences {
 public:
  Sequences(const Call& call, const char* op, uint32_t first, int64_t tokens, const Tensor& pages)
      : call_(call),
        op_(op),
        first_(first),
        tokens_(tokens),
        pages_(pages.dims[0]),
        page_size_(pages.dims[1]) {}

  static Answer fit(const Desc& desc, uint32_t first) {
    Answer ranks =
        all({rank_is(desc, first, 1), rank_is(desc, first + 1, 2), rank_is(desc, first + 2, 1),
             dtype_in(desc, first, sdk::kIndices), dtype_in(desc, first + 1, sdk::kIndices),
             dtype_in(desc, first + 2, sdk::kIndices)});
    if (!ranks.yes()) return ranks;
    const int64_t batch = sdk::operand(desc, first + 1).dims[0];
    if (sdk::operand(desc, first).dims[0] == batch + 1 &&
        sdk::operand(desc, first + 2).dims[0] == batch)
      return sdk::yes();
    return sdk::invalid("query_starts, block_table and lengths must be [B+1], [B,M] and [B]",
                        static_cast<int32_t>(first));
  }

  int64_t batch() const { return sdk::operand(call_.desc(), first_ + 1).dims[0]; }
  int64_t start(int64_t b) const { return number(first_, b); }
  int64_t count(int64_t b) const { return start(b + 1) - start(b); }
  int64_t length(int64_t b) const { return number(first_ + 2, b); }
  int64_t page(int64_t b, int64_t position) const {
    const Tensor& table = sdk::operand(call_.desc(), first_ + 1);
    const int64_t block = position / page_size_;
    return index_at(table, call_.data(first_ + 1), b * table.strides[0] + block * table.strides[1]);
  }
  int64_t row(int64_t position) const { return position % page_size_; }

  // Throws unless every number is in its range. Called before anything is written.
  void check() const {
    const int64_t blocks = sdk::operand(call_.desc(), first_ + 1).dims[1];
    const int64_t capacity = pages_ == 0 ? 0 : blocks * page_size_;
    for (int64_t b = 0; b <= batch(); ++b)
      require("query start", start(b), b == 0 ? 0 : start(b - 1), tokens_);
    for (int64_t b = 0; b < batch(); ++b) {
      require("length", length(b), 0, capacity);
      for (int64_t p = 0; p < length(b); p += page_size_)
        require("page", page(b, p), 0, pages_ - 1);
    }
  }

  void require(const char* what, int64_t value, int64_t least, int64_t most) const {
    if (value >= least && value <= most) return;
    throw sdk::Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                       "%s on cpu_ref: a %s is %lld and must be in [%lld, %lld]; correct the "
                       "indices (nothing was written)",
                       op_, what, static_cast<long long>(value), static_cast<long long>(least),
                       static_cast<long long>(most));
  }

 private:
  int64_t number(uint32_t i, int64_t at) const {
    const Tensor& t = sdk::operand(call_.desc(), i);
    return index_at(t, call_.data(i), at * t.strides[0]);
  }

  const Call& call_;
  const char* op_;
  uint32_t first_;
  int64_t tokens_, pages_, page_size_;
};

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_PAGED_H_
