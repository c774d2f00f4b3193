// pad: x with its border cut off (negative pads), then with a border around it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

// Which of n elements stands at place i of the padded axis; -1: the border value does.
int64_t source_of(int64_t i, int64_t n, int32_t mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case ANYHAL_PAD_MODE_EDGE:
      return i < 0 ? 0 : n - 1;
    case ANYHAL_PAD_MODE_WRAP:
      return ((i % n) + n) % n;
    case ANYHAL_PAD_MODE_REFLECT: {
      if (n == 1) return 0;
      const int64_t period = 2 * (n - 1), at = ((i % period) + period) % period;
      return std::min(at, period - at);
    }
    default:
      return -1;
  }
}

class Border {
 public:
  explicit Border(const Call& call)
      : call_(call),
        x_(sdk::operand(call.desc(), 0)),
        value_(sdk::operand(call.desc(), 1)),
        out_(sdk::operand(call.desc(), 2)),
        bytes_(sdk::dtype_facts(out_.dtype).block_bytes) {
    auto attributes = sdk::attributes<anyhal_attrs_pad>(call.desc());
    for (uint32_t d = 0; d < out_.rank; ++d) {
      const int64_t before = attributes.before[d], after = out_.dims[d] - x_.dims[d] - before;
      const int64_t cut = std::max<int64_t>(0, -before);
      const int64_t left = x_.dims[d] - cut - std::max<int64_t>(0, -after);
      std::vector<int64_t> sources(static_cast<size_t>(out_.dims[d]));
      for (size_t i = 0; i < sources.size(); ++i) {
        const int64_t found = source_of(static_cast<int64_t>(i) - std::max<int64_t>(0, before),
                                        left, attributes.mode);
        sources[i] = found < 0 ? -1 : found + cut;
      }
      sources_.push_back(std::move(sources));
    }
  }

  // The part of out from axis d on; `from` is -1 inside the border.
  void run(uint32_t d, int64_t from, int64_t to) const {
    if (d == out_.rank) return put(from, to);
    for (size_t i = 0; i < sources_[d].size(); ++i) {
      const int64_t source = sources_[d][i];
      run(d + 1, from < 0 || source < 0 ? -1 : from + source * x_.strides[d],
          to + static_cast<int64_t>(i) * out_.strides[d]);
    }
  }

 private:
  void put(int64_t from, int64_t to) const {
    char* target = call_.data(2) + to * bytes_;
    const size_t bytes = static_cast<size_t>(bytes_);
    if (from >= 0)
      std::memcpy(target, call_.data(0) + from * bytes_, bytes);
    else if (absent(value_))
      std::memset(target, 0, bytes);
    else
      std::memcpy(target, call_.data(1), bytes);
  }

  const Call& call_;
  const Tensor& x_;
  const Tensor& value_;
  const Tensor& out_;
  const int64_t bytes_;
  std::vector<std::vector<int64_t>> sources_;
};

}  // namespace

Answer pad_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2, 1);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& out = sdk::operand(desc, 2);
  auto attributes = sdk::attributes<anyhal_attrs_pad>(desc);
  Answer ranks = all({rank_is(desc, 2, x.rank), choice_in(attributes.mode, ANYHAL_PAD_MODE_WRAP)});
  if (!ranks.yes()) return ranks;
  for (uint32_t d = 0; d < x.rank; ++d) {
    const int64_t before = attributes.before[d], after = out.dims[d] - x.dims[d] - before;
    const int64_t left = x.dims[d] + std::min<int64_t>(0, before) + std::min<int64_t>(0, after);
    const bool grows = before > 0 || after > 0;
    if (left < 0 || (left == 0 && grows && attributes.mode != ANYHAL_PAD_MODE_CONSTANT))
      return sdk::invalid("the pads leave too few elements of an axis", 0);
  }
  if (!absent(sdk::operand(desc, 1))) {
    Answer value = all({rank_is(desc, 1, 0), dtypes_equal(desc, 1, 0)});
    if (!value.yes()) return value;
  }
  return all({dtypes_equal(desc, 2, 0), output_is_single(desc), output_may_alias(desc, {})});
}

void pad(const Call& call) { Border(call).run(0, 0, 0); }

}  // namespace hal::cpu_ref
