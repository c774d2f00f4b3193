// What the backward kernels of group_norm and batch_norm share: walks over [N, C, ...] operands.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_CHANNEL_GRADIENT_H_
#define BACKENDS_CPU_REF_KERNELS_CHANNEL_GRADIENT_H_

#include "norm.h"
#include "training.h"

namespace hal::cpu_ref {

// dout, x, the residual (which may be absent) and dx, moved together.
template <class T>
struct ChannelWalk {
  enum { kDout, kX, kResidual, kDx, kCount };
  using Walk = sdk::Odometer<kCount>;

  ChannelWalk(const Call& call, uint32_t residual, uint32_t out)
      : desc(call.desc()), number{0, 1, residual, out} {
    for (int k = 0; k < kCount; ++k) {
      if (!absent(sdk::operand(desc, number[k])))
        data[k] = reinterpret_cast<T*>(call.data(number[k]));
    }
  }

  // `times` steps of dim d at once.
  void add(Walk& walk, int64_t dim, uint32_t d, int64_t times = 1) const {
    int64_t strides[kCount] = {};
    for (int k = 0; k < kCount; ++k) {
      if (data[k] != nullptr) strides[k] = sdk::operand(desc, number[k]).strides[d] * times;
    }
    walk.add(dim, strides);
  }

  double gradient(int64_t at) const { return value_of(data[kDout][at]); }
  // x + residual, in what sums of T are formed in.
  double sum(int64_t x, int64_t residual) const {
    sdk::Compute<T> total = data[kX][x];
    if (data[kResidual] != nullptr)
      total += static_cast<sdk::Compute<T>>(data[kResidual][residual]);
    return static_cast<double>(total);
  }

  const Desc& desc;
  const uint32_t number[kCount];
  T* data[kCount] = {};
};

// Writes a vector of C numbers if the operand is present.
template <class T, class Numbers>
void write_channel(const Call& call, uint32_t i, int64_t channel, Numbers value) {
  const Tensor& out = sdk::operand(call.desc(), i);
  if (absent(out)) return;
  call.view<T>(i).data()[channel * out.strides[0]] = sdk::convert<T>(static_cast<double>(value));
}

// dout, x, the vectors [C] from operand 2 up to `residual`, the residual; dx, then vectors [C].
inline Answer channel_gradient_fits(const Desc& desc, uint32_t residual) {
  const Tensor& x = sdk::operand(desc, 1);
  if (x.rank < 2) return sdk::invalid("x must be [N, C, ...]", 1);
  const uint32_t out = desc.input_count;
  for (uint32_t i : {0u, residual, out}) {
    if (absent(sdk::operand(desc, i))) continue;
    Answer fits = all({dtypes_equal(desc, i, 1), dims_equal(desc, i, 1)});
    if (!fits.yes()) return fits;
  }
  for (uint32_t i = 2; i < desc.operand_count; ++i) {
    const Tensor& vector = sdk::operand(desc, i);
    if (i == residual || i == out || absent(vector)) continue;
    Answer fits = all({rank_is(desc, i, 1), dtypes_equal(desc, i, 1)});
    if (!fits.yes()) return fits;
    if (vector.dims[0] != x.dims[1])
      return sdk::invalid("this operand must be [C]", static_cast<int32_t>(i));
  }
  return outputs_stand_alone(desc);
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_CHANNEL_GRADIENT_H_
