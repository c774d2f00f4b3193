// embedding_backward: sums of the rows of dout by their ids, in f64 and rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "training.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void sum_rows(const Call& call) {
  const Tensor& dout = sdk::operand(call.desc(), 0);
  const Tensor& ids = sdk::operand(call.desc(), 1);
  const Tensor& out = sdk::operand(call.desc(), 2);
  const int64_t size = out.dims[1], stride = sdk::stride(dout, -1);
  double* sums = reinterpret_cast<double*>(call.workspace());
  for (int64_t i = 0; i < out.dims[0] * size; ++i) sums[i] = 0;
  sdk::Odometer<2> walk;
  for (uint32_t d = 0; d < ids.rank; ++d) walk.add(ids.dims[d], {dout.strides[d], ids.strides[d]});
  if (!walk.empty()) {
    do {
      const T* row = call.view<const T>(0).data() + walk.at(0);
      double* sum = sums + index_at(ids, call.data(1), walk.at(1)) * size;
      for (int64_t d = 0; d < size; ++d) sum[d] += value_of(row[d * stride]);
    } while (walk.next());
  }
  T* to = call.view<T>(2).data();
  for (int64_t r = 0; r < out.dims[0]; ++r) {
    for (int64_t d = 0; d < size; ++d)
      to[r * out.strides[0] + d * out.strides[1]] = sdk::convert<T>(sums[r * size + d]);
  }
}

}  // namespace

Answer embedding_backward_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const Tensor& dout = sdk::operand(desc, 0);
  const Tensor& ids = sdk::operand(desc, 1);
  const Tensor& out = sdk::operand(desc, 2);
  bool fits = out.rank == 2 && dout.rank == ids.rank + 1;
  for (uint32_t d = 0; fits && d < ids.rank; ++d) fits = dout.dims[d] == ids.dims[d];
  if (!fits || sdk::dim(dout, -1) != out.dims[1])
    return sdk::invalid("dout must be [..., D], the ids [...] and the output [V, D]");
  return all(
      {dtype_in(desc, 1, sdk::kIndices), dtypes_equal(desc, 2, 0), outputs_stand_alone(desc)});
}

uint64_t embedding_backward_workspace(const Desc& desc) {
  return static_cast<uint64_t>(sdk::element_count(sdk::output(desc))) * sizeof(double);
}

void embedding_backward(const Call& call) {
  const Tensor& out = sdk::operand(call.desc(), 2);
  check_indices(sdk::operand(call.desc(), 1), call.data(1), out.dims[0]);
  sdk::visit(sdk::FloatTypes{}, out.dtype,
             [&](auto t) { sum_rows<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
