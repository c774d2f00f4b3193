// reduce: sums, products and extremes over the axes of a mask.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {
namespace {

struct Total {
  double real = 0;
  int64_t whole = 0;
  bool first = true;
};

void take_float(int32_t fn, Total& total, double x) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_SUM:
    case ANYHAL_REDUCE_FN_MEAN:
      total.real += x;
      break;
    case ANYHAL_REDUCE_FN_PROD:
      total.real = total.first ? x : total.real * x;
      break;
    case ANYHAL_REDUCE_FN_MAX:
      if (total.first || std::isnan(x) || x > total.real) total.real = x;
      break;
    default:
      if (total.first || std::isnan(x) || x < total.real) total.real = x;
  }
  if (std::isnan(total.real) && fn >= ANYHAL_REDUCE_FN_MAX) total.real = std::nan("");
  total.first = false;
}

void take_int(int32_t fn, Total& total, int64_t x, bool is_unsigned) {
  const auto sum = static_cast<uint64_t>(total.whole), y = static_cast<uint64_t>(x);
  const bool less = is_unsigned ? y < sum : x < total.whole;
  switch (fn) {
    case ANYHAL_REDUCE_FN_SUM:
      total.whole = static_cast<int64_t>(sum + y);
      break;
    case ANYHAL_REDUCE_FN_PROD:
      total.whole = total.first ? x : static_cast<int64_t>(sum * y);
      break;
    case ANYHAL_REDUCE_FN_MAX:
      total.whole = total.first || !less ? x : total.whole;
      break;
    case ANYHAL_REDUCE_FN_MIN:
      total.whole = total.first || less ? x : total.whole;
      break;
    case ANYHAL_REDUCE_FN_ANY:
      total.whole |= x != 0;
      break;
    default:
      total.whole = (total.first || total.whole != 0) && x != 0;
  }
  total.first = false;
}

void store(const Description& d, Total total, int64_t count, uint8_t* to) {
  const int32_t fn = d.attrs<anyhal_attrs_reduce>().fn;
  const uint32_t dtype = d.tensors[1].dtype;
  if (total.first && (fn == ANYHAL_REDUCE_FN_PROD || fn == ANYHAL_REDUCE_FN_ALL))
    total.real = static_cast<double>(total.whole = 1);
  if (fn == ANYHAL_REDUCE_FN_MEAN) total.real /= static_cast<double>(count);
  if (family(dtype) != Family::kFloat) return store_int(dtype, to, total.whole);
  const bool whole_input = family(d.tensors[0].dtype) != Family::kFloat;
  store_float(
      dtype, to,
      whole_input && fn != ANYHAL_REDUCE_FN_MEAN ? static_cast<double>(total.whole) : total.real);
}

}  // namespace

void reduce(const Description& d, const Pointers& p) {
  const Tensor &x = d.tensors[0], &out = d.tensors[1];
  const auto attrs = d.attrs<anyhal_attrs_reduce>();
  std::vector<int64_t> inner = x.dims;
  int64_t count = 1;
  for (size_t axis = 0; axis < inner.size(); ++axis) {
    if ((attrs.axes >> axis & 1) == 0) inner[axis] = 1;
    count *= inner[axis];
  }
  const bool floats = family(x.dtype) == Family::kFloat || attrs.fn == ANYHAL_REDUCE_FN_MEAN;
  const bool is_unsigned = family(x.dtype) != Family::kSigned;
  for_each<2>(out.dims, {&x.strides, &out.strides}, [&](const auto& at) {
    Total total;
    for_each<1>(inner, {&x.strides}, [&](const auto& in) {
      const uint8_t* from = p[0] + (at[0] + in[0]) * unit_bytes(x.dtype);
      if (floats) {
        take_float(attrs.fn, total, load_float(x.dtype, from));
      } else {
        take_int(attrs.fn, total, load_int(x.dtype, from), is_unsigned);
      }
    });
    store(d, total, count, p[1] + at[1] * unit_bytes(out.dtype));
  });
}

}  // namespace hal::fake::kernels
