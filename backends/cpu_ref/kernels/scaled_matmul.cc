// scaled_matmul: a_scale * ((a - a_zero) @ (b - b_zero)) * b_scale + bias. Sums of integers wrap in
// 32 bits, those of 8-bit floats are formed in f64.
// SPDX-License-Identifier: Apache-2.0
#include "groups.h"

namespace hal::cpu_ref {
namespace {

enum { A, B, kRowScale, kColumnScale, kRowZero, kColumnZero, kBias, kOut, kOperands };

// Every operand but b has a value of its own for each byte; 256 of them are soon looked up.
template <class Acc>
struct Codes {
  Acc values[256];
  explicit Codes(uint32_t dtype) {
    for (int i = 0; i < 256; ++i) {
      const uint8_t code = static_cast<uint8_t>(i);
      if constexpr (std::is_same_v<Acc, double>) {
        values[i] = sdk::f8_value(sdk::f8_format(dtype), code);
      } else {
        values[i] = static_cast<Acc>(dtype == ANYHAL_DTYPE_I8 ? static_cast<int8_t>(code) : i);
      }
    }
  }
};

template <class Acc>
void multiply(const Call& call) {
  const Tensor* t[kOperands];
  for (uint32_t i = 0; i < kOperands; ++i) t[i] = &sdk::operand(call.desc(), i);
  const Tensor& out = *t[kOut];
  sdk::Odometer<kOperands> walk;  // over the batch dims and M
  for (uint32_t d = 0; d + 1 < out.rank; ++d) {
    int64_t strides[kOperands];
    for (int k = 0; k < kOperands; ++k) strides[k] = absent(*t[k]) ? 0 : t[k]->strides[d];
    if (d + 2 == out.rank) strides[B] = 0;
    walk.add(out.dims[d], strides);
  }
  const int64_t columns = sdk::dim(out, -1), inner = sdk::dim(*t[A], -1);
  if (walk.empty() || columns == 0) return;
  const Codes<Acc> a_codes(t[A]->dtype), b_codes(t[B]->dtype);
  const uint8_t* a = call.view<const uint8_t>(A).data();
  const uint8_t* b = call.view<const uint8_t>(B).data();
  const int64_t a_step = sdk::stride(*t[A], -1), b_step = sdk::stride(*t[B], -2);
  in_parallel(call, walk.count(), walk.count() * columns * inner, [&](int64_t begin, int64_t end) {
    sdk::Odometer<kOperands> own = walk;
    own.seek(begin);
    for (int64_t row = begin; row < end; ++row, own.next()) {
      for (int64_t n = 0; n < columns; ++n) {
        auto place = [&](int k) { return own.at(k) + n * sdk::stride(*t[k], -1); };
        auto zero = [&](int k) {
          const bool none = absent(*t[k]);
          return none ? Acc(0) : static_cast<Acc>(integer_at(t[k]->dtype, call.data(k), place(k)));
        };
        const Acc a_zero = zero(kRowZero), b_zero = zero(kColumnZero);
        const uint8_t *x = a + own.at(A), *w = b + place(B);
        Acc sum = Acc(0);
        for (int64_t k = 0; k < inner; ++k)
          sum +=
              (a_codes.values[x[k * a_step]] - a_zero) * (b_codes.values[w[k * b_step]] - b_zero);
        double value;
        if constexpr (std::is_same_v<Acc, double>) {
          value = sum;
        } else {
          value = static_cast<double>(static_cast<int32_t>(sum));
        }
        for (int k : {kRowScale, kColumnScale})
          value *= float_at(t[k]->dtype, call.data(k), place(k));
        if (!absent(*t[kBias])) value += float_at(t[kBias]->dtype, call.data(kBias), place(kBias));
        put_float(out.dtype, call.data(kOut), place(kOut), value);
      }
    }
  });
}

}  // namespace

Answer scaled_matmul_fits(const Desc& desc) {
  Answer count = operands_are(desc, 7, 4);
  if (!count.yes()) return count;
  const bool small = sdk::kF8.has(sdk::operand(desc, A).dtype);
  const sdk::Dtypes bytes = sdk::dtypes(ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8);
  const sdk::Dtypes scales = sdk::dtypes(ANYHAL_DTYPE_F32);
  for (uint32_t i : {kRowZero, kColumnZero, kBias}) {
    if (absent(sdk::operand(desc, i))) continue;
    if (i != kBias && small) return sdk::invalid("8-bit floats have no zero point", int32_t(i));
    const sdk::Dtypes of_bias = scales | sdk::dtypes(sdk::output(desc).dtype);
    Answer fits =
        all({dtype_in(desc, i, i == kBias ? of_bias : kZeroPoints), dims_equal(desc, i, kOut)});
    if (!fits.yes()) return fits;
  }
  return all({dtype_in(desc, B, small ? sdk::kF8 : bytes), dtype_in(desc, kRowScale, scales),
              dtype_in(desc, kColumnScale, scales), dtype_in(desc, kOut, sdk::kSmallFloats),
              product_dims_fit(desc), dims_equal(desc, kRowScale, kOut),
              dims_equal(desc, kColumnScale, kOut), output_is_single(desc),
              output_may_alias(desc, {})});
}

void scaled_matmul(const Call& call) {
  if (sdk::kF8.has(sdk::operand(call.desc(), A).dtype)) return multiply<double>(call);
  multiply<uint32_t>(call);
}

}  // namespace hal::cpu_ref
