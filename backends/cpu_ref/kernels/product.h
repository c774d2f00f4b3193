// Rows of matrix products: the loops of matmul, and the epilogue of those that have one.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_PRODUCT_H_
#define BACKENDS_CPU_REF_KERNELS_PRODUCT_H_

#include "activation.h"
#include "conditions.h"

namespace hal::cpu_ref {

// Runs body(begin, end) over shares of [0, count) on the core's threads; small jobs stay here.
template <class Body>
void in_parallel(const Call& call, int64_t count, int64_t work, const Body& body) {
  const anyhal_services* services = call.services();
  int64_t shares = 1;
  if (work > 100000 && services != nullptr) shares = services->thread_count(services->context);
  if (shares > count) shares = count;
  if (shares <= 1) return body(int64_t{0}, count);
  struct Job {
    const Body& body;
    int64_t count, shares;
  } job = {body, count, shares};
  services->parallel_for(
      services->context, static_cast<uint32_t>(shares),
      [](void* argument, uint32_t i) {
        const Job& j = *static_cast<Job*>(argument);
        j.body(j.count * i / j.shares, j.count * (i + 1) / j.shares);
      },
      &job);
}

constexpr int kLanes = 8;

// Partial sums in lanes, which the compiler may keep in vectors without changing the order of any.
template <class Acc, class T>
Acc dot(const T* a, int64_t a_stride, const T* b, int64_t count) {
  Acc lanes[kLanes] = {};
  int64_t k = 0;
  if (a_stride == 1) {
    for (; k + kLanes <= count; k += kLanes) {
      for (int i = 0; i < kLanes; ++i)
        lanes[i] += Acc(sdk::Compute<T>(a[k + i])) * Acc(sdk::Compute<T>(b[k + i]));
    }
  }
  for (; k < count; ++k)
    lanes[0] += Acc(sdk::Compute<T>(a[k * a_stride])) * Acc(sdk::Compute<T>(b[k]));
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

constexpr int64_t kTile = 64;  // columns whose sums are kept together

// sums[n] = sum over k of a[k] * b[k, n], for up to kTile columns.
template <class Acc, class T>
void tile(const T* a, int64_t a_stride, const T* b, int64_t b_row, int64_t b_column, int64_t inner,
          int64_t columns, Acc* sums) {
  if (b_row == 1) {  // columns of b lie in memory as rows
    for (int64_t n = 0; n < columns; ++n) sums[n] = dot<Acc>(a, a_stride, b + n * b_column, inner);
    return;
  }
  for (int64_t n = 0; n < columns; ++n) sums[n] = Acc(0);
  for (int64_t k = 0; k < inner; ++k) {
    const Acc factor = Acc(sdk::Compute<T>(a[k * a_stride]));
    const T* row = b + k * b_row;
    for (int64_t n = 0; n < columns; ++n)
      sums[n] += factor * Acc(sdk::Compute<T>(row[n * b_column]));
  }
}

// out[..., m, n] = finish(sum, offsets, n): the operands after a and b walk with the rows of out.
// offsets are those of row m of the operands in `along`, of which the last is out.
template <class Acc, class T, int N, class Finish>
void rows_of_product(const Call& call, const Tensor* const (&along)[N], Finish finish) {
  const Tensor& a = sdk::operand(call.desc(), 0);
  const Tensor& b = sdk::operand(call.desc(), 1);
  const Tensor& out = *along[N - 1];
  sdk::Odometer<N + 2> walk;  // a, b, along: over the batch dims and M
  for (uint32_t d = 0; d + 1 < out.rank; ++d) {
    const bool row = d + 2 == out.rank;
    int64_t strides[N + 2] = {a.strides[d], row ? 0 : b.strides[d]};
    for (int k = 0; k < N; ++k) strides[k + 2] = absent(*along[k]) ? 0 : along[k]->strides[d];
    walk.add(out.dims[d], strides);
  }
  const int64_t columns = sdk::dim(out, -1), inner = sdk::dim(a, -1);
  if (walk.empty() || columns == 0) return;
  const T* a_data = call.view<const T>(0).data();
  const T* b_data = call.view<const T>(1).data();
  in_parallel(call, walk.count(), walk.count() * columns * inner, [&](int64_t begin, int64_t end) {
    sdk::Odometer<N + 2> own = walk;
    own.seek(begin);
    for (int64_t row = begin; row < end; ++row, own.next()) {
      int64_t offsets[N];
      for (int k = 0; k < N; ++k) offsets[k] = own.at(k + 2);
      for (int64_t n = 0; n < columns; n += kTile) {
        Acc sums[kTile];
        const int64_t count = columns - n < kTile ? columns - n : kTile;
        tile<Acc>(a_data + own.at(0), sdk::stride(a, -1),
                  b_data + own.at(1) + n * sdk::stride(b, -1), sdk::stride(b, -2),
                  sdk::stride(b, -1), inner, count, sums);
        for (int64_t i = 0; i < count; ++i) finish(sums[i], offsets, n + i);
      }
    }
  });
}

inline double float_at(uint32_t dtype, const char* data, int64_t offset) {
  double value = 0;
  sdk::visit(sdk::FloatTypes{}, dtype, [&](auto t) {
    value = static_cast<double>(reinterpret_cast<const typename decltype(t)::is*>(data)[offset]);
  });
  return value;
}

inline void put_float(uint32_t dtype, char* data, int64_t offset, double value) {
  sdk::visit(sdk::FloatTypes{}, dtype, [&](auto t) {
    using T = typename decltype(t)::is;
    reinterpret_cast<T*>(data)[offset] = sdk::convert<T>(value);
  });
}

// out = act(scale * sum + bias) * multiplier + residual, in f64 and rounded once. bias, multiplier,
// residual and out are operands 2 to 5.
class Epilogue {
 public:
  Epilogue(const Call& call, int32_t activation, float scale)
      : activation_(activation), scale_(static_cast<double>(scale)) {
    for (uint32_t i = 0; i < 4; ++i) {
      tensors_[i] = &sdk::operand(call.desc(), i + 2);
      data_[i] = absent(*tensors_[i]) ? nullptr : call.data(i + 2);
    }
  }
  const Tensor* const* tensors() const { return tensors_; }

  // offsets: of the row in multiplier, residual and out.
  void operator()(double sum, const int64_t (&offsets)[3], int64_t n) const {
    double value = scale_ * sum;
    if (data_[0] != nullptr)
      value += float_at(tensors_[0]->dtype, data_[0], n * sdk::stride(*tensors_[0], -1));
    value = activate(activation_, value);
    if (data_[1] != nullptr) value *= extra(1, offsets[0], n);
    if (data_[2] != nullptr) value += extra(2, offsets[1], n);
    put_float(tensors_[3]->dtype, data_[3], offsets[2] + n * sdk::stride(*tensors_[3], -1), value);
  }

 private:
  double extra(int i, int64_t row, int64_t n) const {
    return float_at(tensors_[i]->dtype, data_[i], row + n * sdk::stride(*tensors_[i], -1));
  }

  int32_t activation_;
  double scale_;
  const Tensor* tensors_[4];
  char* data_[4];
};

// What the two products with an epilogue share; x is operand 0.
inline Answer epilogue_fits(const Desc& desc, int32_t activation) {
  const Tensor& out = sdk::output(desc);
  sdk::Dtypes allowed = sdk::dtypes(sdk::operand(desc, 0).dtype);
  if (sdk::kHalves.has(sdk::operand(desc, 0).dtype))
    allowed = allowed | sdk::dtypes(ANYHAL_DTYPE_F32);
  for (uint32_t i = 2; i < 5; ++i) {
    const Tensor& extra = sdk::operand(desc, i);
    if (absent(extra)) continue;
    Answer fits = dtype_in(desc, i, allowed);
    if (!fits.yes()) return fits;
    bool same =
        i == 2 ? extra.rank == 1 && extra.dims[0] == sdk::dim(out, -1) : sdk::same_dims(extra, out);
    if (!same) return sdk::invalid("its dims do not fit the output", static_cast<int32_t>(i));
  }
  return all({choice_in(activation, ANYHAL_ACTIVATION_TANH), dtype_in(desc, 5, allowed),
              output_is_single(desc), output_may_alias(desc, {3, 4})});
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_PRODUCT_H_
