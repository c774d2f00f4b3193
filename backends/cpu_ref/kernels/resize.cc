// resize: x sampled at other sizes of its last axes, nearest or linear; coordinates are fractions.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

// floor(a / b) for b > 0.
int64_t floor_of(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Two elements of x with their weights; nearest has the first alone.
struct Source {
  int64_t low, high;
  double near, far;
};

Source source_of(int64_t o, int64_t n, int64_t size, const anyhal_attrs_resize& attributes) {
  int64_t above = (2 * o + 1) * n - size, below = 2 * size;  // half_pixel
  switch (attributes.coordinates) {
    case ANYHAL_RESIZE_COORDINATES_ALIGN_CORNERS:
      above = size == 1 ? 0 : o * (n - 1), below = std::max<int64_t>(size - 1, 1);
      break;
    case ANYHAL_RESIZE_COORDINATES_ASYMMETRIC:
      above = o * n, below = size;
      break;
    case ANYHAL_RESIZE_COORDINATES_PYTORCH_HALF_PIXEL:
      if (size == 1) above = 0;
      break;
  }
  if (attributes.mode == ANYHAL_RESIZE_MODE_LINEAR) {
    above = std::clamp<int64_t>(above, 0, (n - 1) * below);
    const int64_t part = above % below, low = above / below;
    return {low, std::min(low + 1, n - 1),
            static_cast<double>(below - part) / static_cast<double>(below),
            static_cast<double>(part) / static_cast<double>(below)};
  }
  int64_t at = 0;
  switch (attributes.rounding) {
    case ANYHAL_RESIZE_ROUNDING_FLOOR:
      at = floor_of(above, below);
      break;
    case ANYHAL_RESIZE_ROUNDING_CEIL:
      at = -floor_of(-above, below);
      break;
    case ANYHAL_RESIZE_ROUNDING_ROUND_PREFER_FLOOR:
      at = -floor_of(below - 2 * above, 2 * below);
      break;
    default:
      at = floor_of(2 * above + below, 2 * below);
  }
  at = std::clamp<int64_t>(at, 0, n - 1);
  return {at, at, 1, 0};
}

class Sampler {
 public:
  explicit Sampler(const Call& call)
      : call_(call), x_(sdk::operand(call.desc(), 0)), out_(sdk::operand(call.desc(), 1)) {
    auto attributes = sdk::attributes<anyhal_attrs_resize>(call.desc());
    first_ = out_.rank - static_cast<uint32_t>(attributes.axis_count);
    linear_ = attributes.mode == ANYHAL_RESIZE_MODE_LINEAR;
    for (uint32_t d = first_; d < out_.rank; ++d) {
      std::vector<Source> sources;
      for (int64_t o = 0; o < out_.dims[d]; ++o)
        sources.push_back(source_of(o, x_.dims[d], out_.dims[d], attributes));
      sources_.push_back(std::move(sources));
    }
  }

  void run() {
    sdk::Odometer<2> walk;
    for (uint32_t d = 0; d < first_; ++d) walk.add(out_.dims[d], {x_.strides[d], out_.strides[d]});
    if (walk.empty()) return;
    do {
      places(first_, walk.at(0), walk.at(1));
    } while (walk.next());
  }

 private:
  // Visits the places of out from axis d on. chosen_ holds their sources.
  void places(uint32_t d, int64_t from, int64_t to) {
    if (d == out_.rank) return put(from, to);
    for (int64_t o = 0; o < out_.dims[d]; ++o) {
      chosen_[d - first_] = &sources_[d - first_][static_cast<size_t>(o)];
      places(d + 1, from, to + o * out_.strides[d]);
    }
  }

  void put(int64_t from, int64_t to) const {
    if (linear_) {
      sdk::visit(sdk::FloatTypes{}, out_.dtype, [&](auto t) {
        using T = typename decltype(t)::is;
        call_.view<T>(1).data()[to] =
            sdk::convert<T>(blend(call_.view<const T>(0).data(), first_, from));
      });
      return;
    }
    for (uint32_t d = first_; d < out_.rank; ++d) from += chosen_[d - first_]->low * x_.strides[d];
    const int64_t bytes = sdk::dtype_facts(x_.dtype).block_bytes;
    std::memcpy(call_.data(1) + to * bytes, call_.data(0) + from * bytes,
                static_cast<size_t>(bytes));
  }

  // The weighted sum over the axes from d on; what has weight 0 is not looked at.
  template <class T>
  double blend(const T* x, uint32_t d, int64_t from) const {
    if (d == out_.rank) return static_cast<double>(x[from]);
    const Source& s = *chosen_[d - first_];
    const double low = blend(x, d + 1, from + s.low * x_.strides[d]);
    if (s.far == 0) return low;
    return s.near * low + s.far * blend(x, d + 1, from + s.high * x_.strides[d]);
  }

  const Call& call_;
  const Tensor& x_;
  const Tensor& out_;
  uint32_t first_;
  bool linear_;
  std::vector<std::vector<Source>> sources_;
  const Source* chosen_[3] = {};
};

}  // namespace

Answer resize_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& out = sdk::operand(desc, 1);
  auto attributes = sdk::attributes<anyhal_attrs_resize>(desc);
  const int32_t axes = attributes.axis_count;
  if (out.rank != x.rank || axes < 1 || axes > 3 || static_cast<uint32_t>(axes) > x.rank)
    return sdk::invalid("one to three axes of one rank are resized");
  for (uint32_t d = 0; d < x.rank; ++d) {
    const bool resized = d + static_cast<uint32_t>(axes) >= x.rank;
    if (resized ? x.dims[d] == 0 && out.dims[d] > 0 : x.dims[d] != out.dims[d])
      return sdk::invalid("the output's dims do not fit", 1);
  }
  const bool linear = attributes.mode == ANYHAL_RESIZE_MODE_LINEAR;
  if (linear != (attributes.rounding == ANYHAL_RESIZE_ROUNDING_NONE))
    return sdk::invalid("the coordinate is rounded with nearest, and only there");
  return all({choice_in(attributes.mode, ANYHAL_RESIZE_MODE_LINEAR),
              choice_in(attributes.coordinates, ANYHAL_RESIZE_COORDINATES_ASYMMETRIC),
              choice_in(attributes.rounding, ANYHAL_RESIZE_ROUNDING_CEIL),
              dtype_in(desc, 0, linear ? sdk::kFloats : sdk::kPlain), dtypes_equal(desc, 1, 0),
              output_is_single(desc), output_may_alias(desc, {})});
}

void resize(const Call& call) { Sampler(call).run(); }

}  // namespace hal::cpu_ref
