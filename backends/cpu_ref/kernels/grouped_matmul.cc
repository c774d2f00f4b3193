// grouped_matmul: consecutive rows of x, each group times its own matrix. Rows beyond them are 0.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

int64_t size_of(const Call& call, int64_t group) {
  const Tensor& sizes = sdk::operand(call.desc(), 1);
  return index_at(sizes, call.data(1), group * sizes.strides[0]);
}

void check_sizes(const Call& call) {
  const int64_t rows = sdk::operand(call.desc(), 0).dims[0];
  const int64_t groups = sdk::operand(call.desc(), 1).dims[0];
  int64_t left = rows;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t size = size_of(call, group);
    if (size < 0 || size > left)
      throw sdk::Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                         "grouped_matmul on cpu_ref: group %lld has %lld rows, and %lld of %lld "
                         "are left; correct group_sizes (nothing was written)",
                         static_cast<long long>(group), static_cast<long long>(size),
                         static_cast<long long>(left), static_cast<long long>(rows));
    left -= size;
  }
}

template <class T>
void multiply(const Call& call) {
  const auto x = call.view<const T>(0), w = call.view<const T>(2);
  const auto out = call.view<T>(3);
  const int64_t rows = x.dim(0), inner = x.dim(1), groups = w.dim(0), columns = w.dim(2);
  int64_t row = 0;
  for (int64_t group = 0; group <= groups; ++group) {
    const int64_t end = group == groups ? rows : row + size_of(call, group);
    for (; row < end; ++row) {
      const T* a = x.data() + row * x.stride(0);
      for (int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (int64_t k = 0; group < groups && k < inner; ++k) {
          const T b = w.data()[group * w.stride(0) + k * w.stride(1) + n * w.stride(2)];
          sum += static_cast<double>(a[k * x.stride(1)]) * static_cast<double>(b);
        }
        out.data()[row * out.stride(0) + n * out.stride(1)] = sdk::convert<T>(sum);
      }
    }
  }
}

}  // namespace

Answer grouped_matmul_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  Answer ranks =
      all({rank_is(desc, 0, 2), rank_is(desc, 1, 1), rank_is(desc, 2, 3), rank_is(desc, 3, 2),
           dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0), dtypes_equal(desc, 3, 0)});
  if (!ranks.yes()) return ranks;
  const int64_t* x = sdk::operand(desc, 0).dims;
  const int64_t* w = sdk::operand(desc, 2).dims;
  const int64_t* out = sdk::operand(desc, 3).dims;
  if (w[0] != sdk::operand(desc, 1).dims[0] || w[1] != x[1] || out[0] != x[0] || out[1] != w[2])
    return sdk::invalid("x, group_sizes, w and out must be [T,K], [E], [E,K,N] and [T,N]");
  return all({output_is_single(desc), output_may_alias(desc, {})});
}

void grouped_matmul(const Call& call) {
  check_sizes(call);
  sdk::visit(sdk::FloatTypes{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto t) { multiply<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
