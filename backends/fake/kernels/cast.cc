// cast: to another dtype; block formats are read, never written.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {
namespace {

double block_element(uint32_t dtype, const uint8_t* block, int64_t j) {
  const double scale = f16_value(read<uint16_t>(block));
  if (dtype == ANYHAL_DTYPE_Q8_0) return scale * read<int8_t>(block + 2 + j);
  const uint8_t pair = block[4 + j % 16];
  return scale * (j < 16 ? pair & 15 : pair >> 4) + f16_value(read<uint16_t>(block + 2));
}

void dequantise(const Description& d, const Pointers& p) {
  const Tensor &x = d.tensors[0], &out = d.tensors[1];
  const size_t last = out.dims.size() - 1;
  const auto outer = without(out.dims, last, out.dims[last] / 32);
  auto blocks = out.strides;
  blocks[last] *= 32;
  for_each<2>(outer, {&x.strides, &blocks}, [&](const auto& at) {
    for (int64_t j = 0; j < 32; ++j)
      store_float(out.dtype, p[1] + (at[1] + j * out.strides[last]) * unit_bytes(out.dtype),
                  block_element(x.dtype, p[0] + at[0] * unit_bytes(x.dtype), j));
  });
}

// The bounds of an integer dtype as doubles: out of them a float saturates.
int64_t saturated(uint32_t dtype, double value) {
  if (std::isnan(value)) return 0;
  const int bits = static_cast<int>(unit_bytes(dtype)) * 8;
  const bool is_signed = family(dtype) == Family::kSigned;
  const double low = is_signed ? -std::ldexp(1.0, bits - 1) : 0.0;
  const double high = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  if (value <= low) return is_signed ? static_cast<int64_t>(low) : 0;
  if (value < high)
    return is_signed ? static_cast<int64_t>(value)
                     : static_cast<int64_t>(static_cast<uint64_t>(value));
  return static_cast<int64_t>(~0ull >> (64 - bits + (is_signed ? 1 : 0)));
}

void convert(uint32_t from, const uint8_t* x, uint32_t to, uint8_t* out) {
  const Family target = family(to);
  if (target == Family::kFloat) return store_float(to, out, load_float(from, x));
  if (family(from) != Family::kFloat) return store_int(to, out, load_int(from, x));
  const double value = load_float(from, x);
  store_int(to, out, target == Family::kBool ? value != 0 : saturated(to, value));
}

}  // namespace

void cast(const Description& d, const Pointers& p) {
  const Tensor &x = d.tensors[0], &out = d.tensors[1];
  if (family(x.dtype) == Family::kBlock) return dequantise(d, p);
  for_each<2>(out.dims, {&x.strides, &out.strides}, [&](const auto& at) {
    convert(x.dtype, p[0] + at[0] * unit_bytes(x.dtype), out.dtype,
            p[1] + at[1] * unit_bytes(out.dtype));
  });
}

}  // namespace hal::fake::kernels
