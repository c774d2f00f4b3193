// Elements with the scale and zero point that belong to them: of quantize and dequantize.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_GROUPS_H_
#define BACKENDS_CPU_REF_KERNELS_GROUPS_H_

#include "part.h"
#include "product.h"
#include "small.h"

namespace hal::cpu_ref {

constexpr sdk::Dtypes kZeroPoints = sdk::dtypes(ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8, ANYHAL_DTYPE_I16,
                                                ANYHAL_DTYPE_U16, ANYHAL_DTYPE_I32);

inline int64_t integer_at(uint32_t dtype, const char* data, int64_t at) {
  int64_t value = 0;
  sdk::visit(sdk::IntTypes{}, dtype, [&](auto t) {
    value = static_cast<int64_t>(reinterpret_cast<const typename decltype(t)::is*>(data)[at]);
  });
  return value;
}

// The dim along which scales belong to blocks: there the scale has fewer elements. -1: none has.
inline int grouped_axis(const Tensor& x, const Tensor& scale) {
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (x.dims[d] != scale.dims[d]) return static_cast<int>(d);
  }
  return -1;
}

// x, scale, zero point and output. Without blocks all have the same dims; with blocks of
// `block_size`, scale and zero point have one element for each block of one dim.
inline Answer groups_fit(const Desc& desc, int32_t block_size) {
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& scale = sdk::operand(desc, 1);
  const Tensor& zero = sdk::operand(desc, 2);
  bool fits = scale.rank == x.rank && block_size >= 0;
  int grouped = 0;
  for (uint32_t d = 0; fits && d < x.rank; ++d) {
    if (scale.dims[d] == x.dims[d]) continue;
    fits = block_size > 0 && ++grouped == 1 &&
           scale.dims[d] == (x.dims[d] + block_size - 1) / block_size;
  }
  if (!fits || !(absent(zero) || sdk::same_dims(zero, scale)))
    return sdk::invalid("scale and zero point must have x's dims, or the blocks of one", 1);
  if (!absent(zero) && !kZeroPoints.has(zero.dtype))
    return sdk::no(ANYHAL_REASON_DTYPE, "the zero point has an unknown dtype", 2);
  return all({dims_equal(desc, 3, 0), output_is_single(desc), output_may_alias(desc, {})});
}

// Calls fn(x, scale, zero point, out), all offsets in elements, for each element.
template <class Fn>
void each_scaled(const Call& call, int32_t block_size, Fn fn) {
  const Tensor* t[4];
  for (uint32_t i = 0; i < 4; ++i) t[i] = &sdk::operand(call.desc(), i);
  if (absent(*t[2])) t[2] = t[1];
  const int grouped = grouped_axis(*t[0], *t[1]);
  const uint32_t axis = static_cast<uint32_t>(grouped < 0 ? 0 : grouped);
  const int64_t size = grouped < 0 ? 1 : t[0]->dims[axis], block = grouped < 0 ? 1 : block_size;
  for (int64_t first = 0; first < size; first += block) {
    Part parts[4] = {Part(*t[0]), Part(*t[1]), Part(*t[2]), Part(*t[3])};
    int64_t base[4] = {};
    for (int k = 0; grouped >= 0 && k < 4; ++k) {
      const int64_t dim = size - first < block ? size - first : block;
      const bool packed = is_packed(t[k]->dtype), last = axis + 1 == t[k]->rank;
      const int64_t step = packed ? (last ? 1 : 2 * t[k]->strides[axis]) : t[k]->strides[axis];
      const bool scales = k == 1 || k == 2;
      scales ? parts[k].repeat(axis, dim) : parts[k].cut(axis, dim);
      base[k] = (scales ? first / block : first) * step;
    }
    const Tensor *x = &static_cast<const Tensor&>(parts[0]),
                 *scale = &static_cast<const Tensor&>(parts[1]),
                 *zero = &static_cast<const Tensor&>(parts[2]),
                 *out = &static_cast<const Tensor&>(parts[3]);
    each_row<4>({x, scale, zero, out},
                [&](const int64_t (&at)[4], const int64_t (&step)[4], int64_t count) {
                  int64_t o[4];
                  for (int64_t i = 0; i < count; ++i) {
                    for (int k = 0; k < 4; ++k) o[k] = base[k] + at[k] + i * step[k];
                    fn(o[0], o[1], o[2], o[3]);
                  }
                });
  }
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_GROUPS_H_
