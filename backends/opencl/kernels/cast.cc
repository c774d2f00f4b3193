// cast: x -> out in another dtype. Block formats are decoded; nothing is encoded into them.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::opencl {
namespace {

const char* kind_of(uint32_t dtype) {
  if (dtype == ANYHAL_DTYPE_F64) return "DOUBLE";
  if (dtype == ANYHAL_DTYPE_BOOL) return "BOOLEAN";
  if (sdk::kBlocks.has(dtype)) return "BLOCK";
  if (sdk::kFloats.has(dtype) || sdk::kF8.has(dtype)) return "FLOAT";
  return sdk::kSigned.has(dtype) || dtype == ANYHAL_DTYPE_I4 ? "SIGNED" : "UNSIGNED";
}

bool is_packed(const Tensor& t) { return sdk::kPacked.has(t.dtype); }

// What an element is held in once it is taken out of its byte.
const char* holder_of(const Tensor& t) {
  return t.dtype == ANYHAL_DTYPE_I4 ? "I8" : t.dtype == ANYHAL_DTYPE_U4 ? "U8" : token(t.dtype);
}

// Rounding f32 to a smaller float once more would round twice.
bool narrows(uint32_t from, uint32_t to) {
  return (sdk::kHalves | sdk::kF8).has(to) && (from == ANYHAL_DTYPE_F64 || sdk::kInts.has(from));
}

const char* c_type(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_I64:
      return "long";
    case ANYHAL_DTYPE_I32:
      return "int";
    case ANYHAL_DTYPE_I16:
      return "short";
    case ANYHAL_DTYPE_I8:
      return "char";
    default:
      return unsigned_type(sdk::dtype_facts(dtype).block_bytes);
  }
}

// Rows of blocks on one side, of elements on the other.
void decode_plan(Builder& builder, Options& options) {
  const Tensor &x = builder.operand(0), &out = builder.operand(1);
  const sdk::DtypeFacts facts = sdk::dtype_facts(x.dtype);
  Walk rows;
  for (uint32_t d = 0; d + 1 < x.rank; ++d) rows.add(x.dims[d], {x.strides[d], out.strides[d]});
  const int64_t width = sdk::dim(x, -1), count = rows.count() * width;
  if (count == 0) return;
  options.set("DECODED", out.dtype == ANYHAL_DTYPE_F64 ? "double" : "float")
      .set("DECODE", std::string("decode_") + token(x.dtype))
      .set("BLOCK_ELEMENTS", facts.block_elements)
      .set("BLOCK_BYTES", facts.block_bytes);
  builder.launch(std::string(kBlocksSource) + kCastSource, "cast", options)
      .operand(0)
      .operand(1)
      .walk(rows)
      .value(static_cast<uint64_t>(count))
      .value(width)
      .value(sdk::stride(out, -1))
      .run(static_cast<size_t>(count), builder.group(256));
}

// Rows that are packed on one side or on both.
void packed_plan(Builder& builder, Options& options) {
  const Tensor &x = builder.operand(0), &out = builder.operand(1);
  Walk rows;
  for (uint32_t d = 0; d + 1 < x.rank; ++d) rows.add(x.dims[d], {x.strides[d], out.strides[d]});
  const int64_t width = sdk::dim(x, -1);
  const int64_t count = rows.count() * (is_packed(out) ? width / 2 : width);
  if (count == 0) return;
  options.set("X_BYTES", element_bytes(x));
  if (is_packed(x)) options.set("X_PACKED");
  if (is_packed(out)) options.set("Y_PACKED");
  builder.launch(std::string(kSmallSource) + kCastSource, "cast", options)
      .operand(0)
      .operand(1)
      .walk(rows)
      .value(static_cast<uint64_t>(count))
      .value(width)
      .value(sdk::stride(x, -1))
      .value(sdk::stride(out, -1))
      .run(static_cast<size_t>(count), builder.group(256));
}

constexpr sdk::Dtypes kTargets = sdk::kPlain | sdk::kF8 | sdk::kPacked;

}  // namespace

Answer cast_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const uint32_t from = sdk::operand(desc, 0).dtype, to = sdk::operand(desc, 1).dtype;
  const int32_t overflow = sdk::attributes<anyhal_attrs_cast>(desc).overflow;
  const bool stated = overflow == ANYHAL_OVERFLOW_SATURATE || overflow == ANYHAL_OVERFLOW_NONFINITE;
  if (sdk::kF8.has(to) ? !stated : overflow > ANYHAL_OVERFLOW_UNSTATED || overflow < 0)
    return sdk::no(ANYHAL_REASON_ATTRIBUTE, "overflow must be stated for 8-bit floats alone");
  return all({dtype_in(desc, 1, sdk::kBlocks.has(from) ? sdk::kFloats : kTargets),
              dims_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {})});
}

void cast_plan(Builder& builder) {
  const Tensor &x = builder.operand(0), &out = builder.operand(1);
  Options options;
  options.set("FROM", kind_of(x.dtype)).set("TO", kind_of(out.dtype)).set("Y", holder_of(out));
  if (sdk::kBlocks.has(x.dtype)) return decode_plan(builder, options);
  options.set("X", holder_of(x)).set("Y_TYPE", c_type(out.dtype));
  if (narrows(x.dtype, out.dtype)) options.set("NARROW");
  const auto attributes = sdk::attributes<anyhal_attrs_cast>(builder.desc());
  if (attributes.overflow == int32_t{ANYHAL_OVERFLOW_SATURATE}) options.set("SATURATES");
  if (is_packed(x) || is_packed(out)) return packed_plan(builder, options);
  const Walk walk = walk_of(x, out);
  if (walk.count() == 0) return;
  if (walk.dense()) options.set("DENSE");
  const bool small = sdk::kF8.has(x.dtype) || sdk::kF8.has(out.dtype);
  builder.launch((small ? std::string(kSmallSource) : "") + kCastSource, "cast", options)
      .operand(0)
      .operand(1)
      .walk(walk)
      .value(static_cast<uint64_t>(walk.count()))
      .run(static_cast<size_t>(walk.count()), builder.group(256));
}

}  // namespace hal::opencl
