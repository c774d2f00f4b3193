// embedding: out[i..., d] = table[ids[i...], d], decoded or converted to the output's dtype.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {
namespace {

template <class T>
void put_row(const T* row, int64_t stride, int64_t size, uint32_t dtype, char* out,
             int64_t out_stride) {
  sdk::visit(sdk::FloatTypes{}, dtype, [&](auto o) {
    using Out = typename decltype(o)::is;
    Out* to = reinterpret_cast<Out*>(out);
    for (int64_t d = 0; d < size; ++d)
      to[d * out_stride] = sdk::convert<Out>(static_cast<T>(row[d * stride]));
  });
}

template <class Block>
void put_blocks(const Block* blocks, int64_t size, uint32_t dtype, char* out, int64_t out_stride) {
  const int64_t step = Block::kElements * out_stride * sdk::dtype_facts(dtype).block_bytes;
  for (int64_t b = 0; b < size / Block::kElements; ++b) {
    double values[Block::kElements];
    blocks[b].decode(values);
    put_row(values, 1, Block::kElements, dtype, out + b * step, out_stride);
  }
}

}  // namespace

Answer embedding_fits(const Desc& desc) {
  Answer count = operands_are(desc, 2);
  if (!count.yes()) return count;
  const Tensor& table = sdk::operand(desc, 0);
  const Tensor& ids = sdk::operand(desc, 1);
  const Tensor& out = sdk::operand(desc, 2);
  bool fits = table.rank == 2 && out.rank == ids.rank + 1;
  for (uint32_t d = 0; fits && d < ids.rank; ++d) fits = out.dims[d] == ids.dims[d];
  if (!fits || sdk::dim(out, -1) != table.dims[1])
    return sdk::invalid("the table must be [V, D], the ids [...] and the output [..., D]");
  return all({dtype_in(desc, 1, sdk::kIndices), dtype_in(desc, 2, sdk::kFloats),
              output_is_single(desc), output_may_alias(desc, {})});
}

void embedding(const Call& call) {
  const Tensor& table = sdk::operand(call.desc(), 0);
  const Tensor& ids = sdk::operand(call.desc(), 1);
  const Tensor& out = sdk::operand(call.desc(), 2);
  check_indices(ids, call.data(1), table.dims[0]);
  const int64_t size = table.dims[1], out_stride = sdk::stride(out, -1);
  sdk::Odometer<2> walk = index_walk(ids, out, 0);
  if (walk.empty()) return;
  do {
    const int64_t id = index_at(ids, call.data(1), walk.at(0));
    const char* row = call.data(0) + id * step_bytes(table, 0);
    char* to = call.data(2) + walk.at(1);
    sdk::visit(sdk::FloatTypes{}, table.dtype, [&](auto t) {
      put_row(reinterpret_cast<const typename decltype(t)::is*>(row), table.strides[1], size,
              out.dtype, to, out_stride);
    });
    sdk::visit(sdk::BlockTypes{}, table.dtype, [&](auto t) {
      put_blocks(reinterpret_cast<const typename decltype(t)::is*>(row), size, out.dtype, to,
                 out_stride);
    });
  } while (walk.next());
}

}  // namespace hal::cpu_ref
