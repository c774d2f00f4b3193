// cast: x -> out in another dtype. Block formats are decoded; nothing is encoded into them.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class From, class To>
void cast_plain(const Call& call) {
  const From* x = call.view<const From>(0).data();
  To* out = call.view<To>(1).data();
  sdk::Rows<2> rows({&sdk::operand(call.desc(), 0), &sdk::operand(call.desc(), 1)});
  const int64_t from_stride = rows.row_strides[0], to_stride = rows.row_strides[1];
  rows.each([&](const int64_t (&at)[2]) {
    const From* from = x + at[0];
    To* to = out + at[1];
    for (int64_t i = 0; i < rows.row_count; ++i)
      to[i * to_stride] = sdk::convert<To>(static_cast<From>(from[i * from_stride]));
  });
}

// The innermost dim is dense in x, so each position of the outer dims is a run of blocks.
template <class Block, class To>
void cast_blocks(const Call& call) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  sdk::Odometer<2> outer;
  for (uint32_t d = 0; d + 1 < x.rank; ++d) outer.add(x.dims[d], {x.strides[d], out.strides[d]});
  const int64_t blocks = sdk::dim(x, -1) / sdk::kBlockElements, stride = sdk::stride(out, -1);
  if (outer.empty()) return;
  do {
    const Block* block = reinterpret_cast<const Block*>(call.data(0)) + outer.at(0);
    To* to = reinterpret_cast<To*>(call.data(1)) + outer.at(1);
    for (int64_t b = 0; b < blocks; ++b) {
      float values[sdk::kBlockElements];
      block[b].decode(values);
      for (int64_t i = 0; i < sdk::kBlockElements; ++i)
        to[(b * sdk::kBlockElements + i) * stride] = sdk::convert<To>(values[i]);
    }
  } while (outer.next());
}

}  // namespace

Answer cast_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  bool blocks = sdk::kBlocks.has(sdk::operand(desc, 0).dtype);
  return all({dtype_in(desc, 1, blocks ? sdk::kFloats : sdk::kPlain), dims_equal(desc, 1, 0),
              output_is_single(desc), output_may_alias(desc, {})});
}

void cast(const Call& call) {
  const uint32_t from = sdk::operand(call.desc(), 0).dtype;
  const uint32_t to = sdk::operand(call.desc(), 1).dtype;
  sdk::visit(sdk::Types<sdk::q4_1, sdk::q8_0>{}, from, [&](auto block) {
    sdk::visit(sdk::FloatTypes{}, to, [&](auto t) {
      cast_blocks<typename decltype(block)::is, typename decltype(t)::is>(call);
    });
  });
  sdk::visit(sdk::PlainTypes{}, from, [&](auto f) {
    sdk::visit(sdk::PlainTypes{}, to, [&](auto t) {
      cast_plain<typename decltype(f)::is, typename decltype(t)::is>(call);
    });
  });
}

}  // namespace hal::cpu_ref
