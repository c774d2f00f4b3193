// The rows of this backend: the same reading of a description answers op_query and lays out plans.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

namespace hal::opencl {
namespace {

constexpr sdk::Condition kNone = sdk::no_attributes;
template <class T>
constexpr sdk::Condition kHas = sdk::known_attributes<T>;
using LayOut = void (*)(Builder& builder);

// What every op asks of its operands; f64 only where the device has it.
template <bool kDoubles>
Answer operands_fit(const Desc& desc) {
  for (uint32_t i = 0; i < desc.operand_count; ++i) {
    const Tensor& t = sdk::operand(desc, i);
    const int32_t number = static_cast<int32_t>(i);
    if (absent(t)) continue;
    if (!kDoubles && t.dtype == ANYHAL_DTYPE_F64)
      return sdk::no(ANYHAL_REASON_DTYPE, "this device has no f64", number);
    if (t.rank > kRankMax) return sdk::no(ANYHAL_REASON_RANK, "more than 15 dims", number);
    if ((t.flags & ANYHAL_TENSOR_INLINE) != 0)
      return sdk::no(ANYHAL_REASON_ATTRIBUTE, "values are not taken inline here", number);
    const sdk::DtypeFacts facts = sdk::dtype_facts(t.dtype);
    const uint32_t least = facts.block_bytes == 1      ? 1
                           : facts.block_elements == 1 ? facts.block_bytes
                                                       : 2;
    if (t.alignment != 0 && t.alignment % least != 0)
      return sdk::no(ANYHAL_REASON_ALIGNMENT, "elements must be aligned to their size", number);
  }
  return sdk::yes();
}

template <bool kDoubles, sdk::Condition kAlso>
Answer fits(const Desc& desc) {
  const Answer operands = operands_fit<kDoubles>(desc);
  return operands.yes() ? kAlso(desc) : operands;
}

constexpr sdk::Dtypes without_f64(const sdk::Dtypes& d) {
  return {{d.words[0] & ~(uint64_t{1} << ANYHAL_DTYPE_F64), d.words[1]}};
}

// op, name, main operand, its dtypes, attributes, what else must hold.
template <bool kDoubles>
struct Rows {
  static constexpr sdk::Dtypes of(const sdk::Dtypes& d) { return kDoubles ? d : without_f64(d); }
  template <sdk::Condition kAlso>
  static constexpr sdk::Condition also = fits<kDoubles, kAlso>;
  static inline const sdk::Row kRows[] = {
      {ANYHAL_OP_COPY, "copy", 0, of(sdk::kAny), kNone, also<copy_fits>, nullptr, nullptr,
       sdk::kExact},
      {ANYHAL_OP_FILL, "fill", 1, of(sdk::kStored), kNone, also<fill_fits>, nullptr, nullptr,
       sdk::kExact},
      {ANYHAL_OP_CAST, "cast", 0, of(sdk::kAny), sdk::later_attributes<anyhal_attrs_cast>,
       also<cast_fits>, nullptr, nullptr, sdk::kExact},
      {ANYHAL_OP_UNARY, "unary", 0, of(sdk::kPlain), kHas<anyhal_attrs_unary>, also<unary_fits>,
       nullptr},
      {ANYHAL_OP_BINARY, "binary", 0, of(sdk::kPlain), kHas<anyhal_attrs_binary>, also<binary_fits>,
       nullptr},
      {ANYHAL_OP_WHERE, "where", 1, of(sdk::kStored), kNone, also<where_fits>, nullptr, nullptr,
       sdk::kExact},
      {ANYHAL_OP_REDUCE, "reduce", 0, of(sdk::kPlain), kHas<anyhal_attrs_reduce>, also<reduce_fits>,
       nullptr},
      {ANYHAL_OP_MATMUL, "matmul", 0,
       of(sdk::kFloats | sdk::kIndices | sdk::dtypes(ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8)), kNone,
       also<matmul_fits>, nullptr},
      {ANYHAL_OP_GATHER, "gather", 0, of(sdk::kAny), kHas<anyhal_attrs_gather>, also<gather_fits>,
       nullptr, nullptr, sdk::kExact},
      {ANYHAL_OP_SCATTER_ADD, "scatter_add", 0, of(sdk::kNumbers), kHas<anyhal_attrs_scatter_add>,
       also<scatter_add_fits>, nullptr},
      {ANYHAL_OP_QUANT_MATMUL, "quant_matmul", 0, sdk::kSmallFloats,
       kHas<anyhal_attrs_quant_matmul>, also<quant_matmul_fits>, nullptr},
      {ANYHAL_OP_ATTENTION, "attention", 0, of(sdk::kFloats), kHas<anyhal_attrs_attention>,
       also<attention_fits>, nullptr},
      {ANYHAL_OP_RMS_NORM, "rms_norm", 0, of(sdk::kFloats), kHas<anyhal_attrs_rms_norm>,
       also<rms_norm_fits>, nullptr},
      {ANYHAL_OP_SOFTMAX, "softmax", 0, of(sdk::kFloats), kHas<anyhal_attrs_softmax>,
       also<softmax_fits>, nullptr},
  };
};

// In the order of the rows.
const LayOut kLayOuts[] = {copy_plan,     fill_plan,        cast_plan,         unary_plan,
                           binary_plan,   where_plan,       reduce_plan,       matmul_plan,
                           gather_plan,   scatter_add_plan, quant_matmul_plan, attention_plan,
                           rms_norm_plan, softmax_plan};
constexpr size_t kCount = sizeof(kLayOuts) / sizeof(kLayOuts[0]);
static_assert(sizeof(Rows<true>::kRows) / sizeof(sdk::Row) == kCount);

const sdk::OpTable kWithDoubles(Rows<true>::kRows);
const sdk::OpTable kWithoutDoubles(Rows<false>::kRows);

const sdk::OpTable& table_of(const Device& device) {
  return device.facts->doubles() ? kWithDoubles : kWithoutDoubles;
}

LayOut lay_out_of(const Device& device, const sdk::Row* row) {
  return kLayOuts[row - (device.facts->doubles() ? Rows<true>::kRows : Rows<false>::kRows)];
}

// Bytes from an operand's first element to the end of its last; 0 where it has none.
uint64_t span_of(const Tensor& t) {
  if (absent(t)) return 0;
  uint64_t steps = 1;
  for (uint32_t d = 0; d < t.rank; ++d) {
    const int64_t dim = sdk::steps(t, d);
    if (dim == 0) return 0;
    steps += static_cast<uint64_t>(dim - 1) * static_cast<uint64_t>(t.strides[d]);
  }
  return steps * sdk::dtype_facts(t.dtype).block_bytes;
}

}  // namespace

anyhal_status query_op(const Device& device, const Desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  return table_of(device).query(desc, verdict, error);
}

anyhal_status prepare_op(Device& device, const Desc* desc, Plan** out_plan, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_present(device);
    Answer answer;
    const sdk::Row* row = table_of(device).find(*desc, answer);
    if (row == nullptr)
      throw Failure(answer.status, answer.reason, "%s (operand %d); use another device", answer.why,
                    answer.operand);
    auto plan = std::make_unique<Plan>();
    plan->device = &device;
    plan->operand_count = plan->memory_count = desc->operand_count;
    for (uint32_t i = 0; i < desc->operand_count; ++i)
      plan->spans.push_back(span_of(sdk::operand(*desc, i)));
    Builder builder(device, *desc, *plan);
    lay_out_of(device, row)(builder);
    plan->prepared.size = sizeof(plan->prepared);
    plan->prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    plan->prepared.workspace_alignment = 64;
    plan->prepared.kernel = row->name;
    plan->prepared.library = "";
    ++device.plans;
    *out_plan = plan.release();
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status capabilities_of(const Device& device, void* value, uint64_t* bytes,
                              anyhal_error* error) {
  const anyhal_status status = table_of(device).capabilities(value, bytes, error);
  if (status != ANYHAL_STATUS_OK || (device.facts->single & kFpDenorm) != 0) return status;
  auto* rows = static_cast<anyhal_capability*>(value);
  for (size_t i = 0; i < kCount; ++i) rows[i].flags |= ANYHAL_CAPABILITY_FLUSHES_DENORMALS;
  return status;
}

}  // namespace hal::opencl
