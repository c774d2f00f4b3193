// cast: x -> out in another dtype. Block formats are decoded; nothing is encoded into them.
// SPDX-License-Identifier: Apache-2.0
#include "cast.cl.inc"

#include "blocks.cl.inc"
#include "conditions.h"

namespace hal::opencl {
namespace {

const char* kind_of(uint32_t dtype) {
  if (dtype == ANYHAL_DTYPE_F64) return "DOUBLE";
  if (dtype == ANYHAL_DTYPE_BOOL) return "BOOLEAN";
  if (sdk::kBlocks.has(dtype)) return "BLOCK";
  if (sdk::kFloats.has(dtype)) return "FLOAT";
  return sdk::kSigned.has(dtype) ? "SIGNED" : "UNSIGNED";
}

// Rounding f32 to a 16-bit float once more would round twice.
bool narrows(uint32_t from, uint32_t to) {
  return sdk::kHalves.has(to) && (from == ANYHAL_DTYPE_F64 || sdk::kInts.has(from));
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

}  // namespace

Answer cast_fits(const Desc& desc) {
  Answer count = operands_are(desc, 1);
  if (!count.yes()) return count;
  const uint32_t from = sdk::operand(desc, 0).dtype;
  if (sdk::attributes<anyhal_attrs_cast>(desc).overflow > ANYHAL_OVERFLOW_UNSTATED)
    return sdk::no(ANYHAL_REASON_ATTRIBUTE, "overflow is stated for 8-bit floats alone");
  return all({dtype_in(desc, 1, sdk::kBlocks.has(from) ? sdk::kFloats : sdk::kPlain),
              dims_equal(desc, 1, 0), output_is_single(desc), output_may_alias(desc, {})});
}

void cast_plan(Builder& builder) {
  const Tensor &x = builder.operand(0), &out = builder.operand(1);
  Options options;
  options.dtype("Y", out).set("FROM", kind_of(x.dtype)).set("TO", kind_of(out.dtype));
  if (sdk::kBlocks.has(x.dtype)) return decode_plan(builder, options);
  const Walk walk = walk_of(x, out);
  if (walk.count() == 0) return;
  options.dtype("X", x).set("Y_TYPE", c_type(out.dtype));
  if (narrows(x.dtype, out.dtype)) options.set("NARROW");
  if (walk.dense()) options.set("DENSE");
  builder.launch(kCastSource, "cast", options)
      .operand(0)
      .operand(1)
      .walk(walk)
      .value(static_cast<uint64_t>(walk.count()))
      .run(static_cast<size_t>(walk.count()), builder.group(256));
}

}  // namespace hal::opencl
