// cast: x -> out in another dtype. Block formats are decoded; nothing is encoded into them.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "small.h"

namespace hal::cpu_ref {
namespace {

constexpr sdk::Dtypes kSmall = sdk::kF8 | sdk::kPacked;

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
  const int64_t blocks = sdk::dim(x, -1) / Block::kElements, stride = sdk::stride(out, -1);
  if (outer.empty()) return;
  do {
    const Block* block = reinterpret_cast<const Block*>(call.data(0)) + outer.at(0);
    To* to = reinterpret_cast<To*>(call.data(1)) + outer.at(1);
    for (int64_t b = 0; b < blocks; ++b) {
      double values[Block::kElements];
      block[b].decode(values);
      for (int64_t i = 0; i < Block::kElements; ++i)
        to[(b * Block::kElements + i) * stride] = sdk::convert<To>(values[i]);
    }
  } while (outer.next());
}

// From an 8-bit float or a packed integer.
template <class To>
void cast_from_small(const Call& call) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  To* to = call.view<To>(1).data();
  each_row<2>({&x, &out}, [&](const int64_t (&at)[2], const int64_t (&step)[2], int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = at[0] + i * step[0];
      to[at[1] + i * step[1]] = is_packed(x.dtype)
                                    ? sdk::convert<To>(nibble_at(x.dtype, call.data(0), from))
                                    : sdk::convert<To>(small_at(x.dtype, call.data(0), from));
    }
  });
}

// To one: floats round, or are cut off, from double, which holds them; integers wrap to 4 bits.
template <class From>
void cast_to_small(const Call& call, bool saturate) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  const From* from = call.view<const From>(0).data();
  each_row<2>({&x, &out}, [&](const int64_t (&at)[2], const int64_t (&step)[2], int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const From value = from[at[0] + i * step[0]];
      const int64_t to = at[1] + i * step[1];
      if (is_packed(out.dtype) && !sdk::kIsFloat<From>) {
        put_nibble(call.data(1), to, sdk::convert<int64_t>(value));
      } else {
        put_small(out.dtype, call.data(1), to, sdk::convert<double>(value), saturate);
      }
    }
  });
}

void cast_small(const Call& call, bool saturate) {
  const Tensor& x = sdk::operand(call.desc(), 0);
  const Tensor& out = sdk::operand(call.desc(), 1);
  each_row<2>({&x, &out}, [&](const int64_t (&at)[2], const int64_t (&step)[2], int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = at[0] + i * step[0], to = at[1] + i * step[1];
      if (is_packed(x.dtype) && is_packed(out.dtype)) {
        put_nibble(call.data(1), to, nibble_at(x.dtype, call.data(0), from));
      } else {
        put_small(out.dtype, call.data(1), to, small_at(x.dtype, call.data(0), from), saturate);
      }
    }
  });
}

}  // namespace

Answer cast_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const uint32_t from = sdk::operand(desc, 0).dtype, to = sdk::operand(desc, 1).dtype;
  const int32_t overflow = sdk::attributes<anyhal_attrs_cast>(desc).overflow;
  const bool stated = overflow == ANYHAL_OVERFLOW_SATURATE || overflow == ANYHAL_OVERFLOW_NONFINITE;
  if (sdk::kF8.has(to) ? !stated : overflow > ANYHAL_OVERFLOW_UNSTATED || overflow < 0)
    return sdk::no(ANYHAL_REASON_ATTRIBUTE, "overflow must be stated for 8-bit floats alone");
  return all({dtype_in(desc, 1, sdk::kBlocks.has(from) ? sdk::kFloats : kSmall | sdk::kPlain),
              dims_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {})});
}

void cast(const Call& call) {
  const uint32_t from = sdk::operand(call.desc(), 0).dtype;
  const uint32_t to = sdk::operand(call.desc(), 1).dtype;
  const bool saturate =
      sdk::attributes<anyhal_attrs_cast>(call.desc()).overflow == int32_t{ANYHAL_OVERFLOW_SATURATE};
  if (kSmall.has(from) && kSmall.has(to)) return cast_small(call, saturate);
  sdk::visit(sdk::BlockTypes{}, from, [&](auto block) {
    sdk::visit(sdk::FloatTypes{}, to, [&](auto t) {
      cast_blocks<typename decltype(block)::is, typename decltype(t)::is>(call);
    });
  });
  sdk::visit(sdk::PlainTypes{}, from, [&](auto f) {
    using From = typename decltype(f)::is;
    if (kSmall.has(to)) return cast_to_small<From>(call, saturate);
    sdk::visit(sdk::PlainTypes{}, to,
               [&](auto t) { cast_plain<From, typename decltype(t)::is>(call); });
  });
  if (!kSmall.has(from)) return;
  sdk::visit(sdk::PlainTypes{}, to,
             [&](auto t) { cast_from_small<typename decltype(t)::is>(call); });
}

}  // namespace hal::cpu_ref
