// quant_matmul: x[..., M, K] x decode(w[N, K])^T with an epilogue. x is never rounded.
// SPDX-License-Identifier: Apache-2.0
#include "product.h"

namespace hal::cpu_ref {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // rows of x that share one decoding of a block of w

int64_t row_count(const Tensor& x) {
  int64_t rows = 1;
  for (uint32_t d = 0; d + 1 < x.rank; ++d) rows *= x.dims[d];
  return rows;
}

// x as dense f32 rows, in the workspace.
void spread(const Call& call, float* to) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const int64_t inner = sdk::dim(x, -1), stride = sdk::stride(x, -1);
  sdk::Odometer<1> walk;
  for (uint32_t d = 0; d + 1 < x.rank; ++d) walk.add(x.dims[d], {x.strides[d]});
  if (walk.empty()) return;
  sdk::visit(sdk::Types<float, sdk::f16, sdk::bf16>{}, x.dtype, [&](auto t) {
    const auto* data = call.view<const typename decltype(t)::is>(0).data();
    do {
      for (int64_t k = 0; k < inner; ++k) *to++ = data[walk.at(0) + k * stride];
    } while (walk.next());
  });
}

// sums[m] = x[m, :] . decode(w), for `rows` dense rows of x.
template <class Block>
void dot_rows(const float* x, int64_t rows, const Block* w, int64_t blocks, float* sums) {
  float lanes[kRowsAtOnce][kLanes] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    float values[Block::kElements];
    w[b].decode(values);
    for (int64_t m = 0; m < rows; ++m) {
      const float* row = x + (m * blocks + b) * Block::kElements;
      for (int j = 0; j < Block::kElements; j += kLanes) {
        for (int i = 0; i < kLanes; ++i) lanes[m][i] += row[j + i] * values[j + i];
      }
    }
  }
  for (int64_t m = 0; m < rows; ++m) {
    sums[m] = 0;
    for (float lane : lanes[m]) sums[m] += lane;
  }
}

template <class Block>
void multiply(const Call& call, const Epilogue& epilogue) {
  const Tensor& w = sdk::operand(call.desc(), 1);
  const Tensor* const* t = epilogue.tensors();
  const Tensor& out = *t[3];
  sdk::Odometer<3> walk;  // rows of multiplier, residual, out
  for (uint32_t d = 0; d + 1 < out.rank; ++d)
    walk.add(out.dims[d], {absent(*t[1]) ? 0 : t[1]->strides[d],
                           absent(*t[2]) ? 0 : t[2]->strides[d], out.strides[d]});
  const int64_t rows = row_count(out), columns = w.dims[0];
  const int64_t blocks = w.dims[1] / Block::kElements;
  const Block* weights = call.view<const Block>(1).data();
  const float* x = reinterpret_cast<const float*>(call.workspace());
  in_parallel(call, columns, rows * columns * w.dims[1], [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
      const int64_t count = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
      for (int64_t n = begin; n < end; ++n) {
        float sums[kRowsAtOnce];
        dot_rows(x + first * w.dims[1], count, weights + n * w.strides[0], blocks, sums);
        sdk::Odometer<3> row = walk;
        row.seek(first);
        for (int64_t m = 0; m < count; ++m, row.next())
          epilogue(static_cast<double>(sums[m]), {row.at(0), row.at(1), row.at(2)}, n);
      }
    }
  });
}

}  // namespace

Answer quant_matmul_fits(const Desc& desc) {
  Answer count = operands_are(desc, 5, 2);
  if (!count.yes()) return count;
  auto attributes = sdk::attributes<anyhal_attrs_quant_matmul>(desc);
  const Tensor& x = sdk::operand(desc, 0);
  const Tensor& w = sdk::operand(desc, 1);
  const Tensor& out = sdk::output(desc);
  bool fits = x.rank >= 2 && w.rank == 2 && out.rank == x.rank && w.dims[1] == sdk::dim(x, -1) &&
              w.dims[0] == sdk::dim(out, -1);
  for (uint32_t d = 0; fits && d + 1 < x.rank; ++d) fits = x.dims[d] == out.dims[d];
  if (!fits) return sdk::invalid("x must be [..., M, K], w [N, K] and out [..., M, N]");
  return all({dtype_in(desc, 1, sdk::kBlocks), epilogue_fits(desc, attributes.activation)});
}

uint64_t quant_matmul_workspace(const Desc& desc) {
  return static_cast<uint64_t>(sdk::element_count(sdk::operand(desc, 0))) * sizeof(float);
}

void quant_matmul(const Call& call) {
  if (sdk::element_count(sdk::output(call.desc())) == 0) return;
  auto attributes = sdk::attributes<anyhal_attrs_quant_matmul>(call.desc());
  const Epilogue epilogue(call, attributes.activation, attributes.scale);
  spread(call, reinterpret_cast<float*>(call.workspace()));
  sdk::visit(sdk::BlockTypes{}, sdk::operand(call.desc(), 1).dtype,
             [&](auto block) { multiply<typename decltype(block)::is>(call, epilogue); });
}

}  // namespace hal::cpu_ref
