// matmul: a[..., M, K] x b[..., K, N] -> out[..., M, N], any strides: for what the vendor library
// does not take. One thread computes one element; plain, and slow beside the library.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

HAL_DEVICE void store_product(const Product& p, long long at, double total, long long whole) {
  if (is_float(p.dtype)) {
    store_float(p.out_dtype, p.side[2].data, at, total);
  } else {
    store_int(p.out_dtype, p.side[2].data, at, whole);
  }
}

HAL_KERNEL(anyhal_matmul, Product) {
  HAL_EACH(i, p.batch.count * p.rows * p.columns) {
    const long long n = i % p.columns, m = i / p.columns % p.rows;
    const Place place = locate(p.batch, p.side, i / p.columns / p.rows);
    const long long a = place.at[0] + m * p.a_row, b = place.at[1] + n * p.b_column;
    double total = 0;
    unsigned long long whole = 0;
    if (is_float(p.dtype)) {
      for (long long k = 0; k < p.inner; ++k)
        total += load_float(p.dtype, p.side[0].data, a + k * p.a_inner) *
                 load_float(p.dtype, p.side[1].data, b + k * p.b_inner);
    } else {
      for (long long k = 0; k < p.inner; ++k)
        whole += (unsigned long long)load_int(p.dtype, p.side[0].data, a + k * p.a_inner) *
                 (unsigned long long)load_int(p.dtype, p.side[1].data, b + k * p.b_inner);
    }
    store_product(p, place.at[2] + m * p.out_row + n * p.out_column, total, (long long)whole);
  }
}

}  // namespace hal::cuda
