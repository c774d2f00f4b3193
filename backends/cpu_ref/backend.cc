// The plain CPU reference: its table of slots, one device, host memory, and one row for each op.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "anyhal/sdk/exact.hpp"
#include "anyhal/sdk/host.hpp"
#include "kernels/kernels.h"

struct anyhal_self {
  const anyhal_services* services;
  anyhal_memory_kind kind;
};

struct anyhal_device {
  anyhal_self* self;
};

namespace hal::cpu_ref {
namespace {

using sdk::fail;
constexpr sdk::Condition kNone = sdk::no_attributes;
template <class T>
constexpr sdk::Condition kHas = sdk::known_attributes<T>;
constexpr sdk::Dtypes kBytes = sdk::dtypes(ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8);

// op, name, main operand, its dtypes, attributes, what else must hold, kernel, workspace, promise.
// Each element is computed on its own and in a fixed order, so every row is batch invariant.
const sdk::Row kRows[] = {
    {ANYHAL_OP_COPY, "copy", 0, sdk::kAny, kNone, copy_fits, copy, nullptr, sdk::kExact},
    {ANYHAL_OP_FILL, "fill", 1, sdk::kStored, kNone, fill_fits, fill, nullptr, sdk::kExact},
    {ANYHAL_OP_CAST, "cast", 0, sdk::kAny, sdk::later_attributes<anyhal_attrs_cast>, cast_fits,
     cast, nullptr, sdk::kExact},
    {ANYHAL_OP_UNARY,
     "unary",
     0,
     sdk::kPlain,
     kHas<anyhal_attrs_unary>,
     unary_fits,
     unary,
     nullptr,
     {},
     sdk::unary_exact},
    {ANYHAL_OP_BINARY,
     "binary",
     0,
     sdk::kPlain,
     kHas<anyhal_attrs_binary>,
     binary_fits,
     binary,
     nullptr,
     {},
     sdk::binary_exact},
    {ANYHAL_OP_WHERE, "where", 1, sdk::kStored, kNone, where_fits, where, nullptr, sdk::kExact},
    {ANYHAL_OP_REDUCE,
     "reduce",
     0,
     sdk::kPlain,
     kHas<anyhal_attrs_reduce>,
     reduce_fits,
     reduce,
     nullptr,
     {},
     sdk::reduce_exact},
    {ANYHAL_OP_MATMUL,
     "matmul",
     0,
     sdk::kFloats | sdk::kIndices | kBytes,
     kNone,
     matmul_fits,
     matmul,
     nullptr,
     {},
     sdk::integers_exact},
    {ANYHAL_OP_GATHER, "gather", 0, sdk::kAny, kHas<anyhal_attrs_gather>, gather_fits, gather,
     nullptr, sdk::kExact},
    {ANYHAL_OP_SCATTER_ADD,
     "scatter_add",
     0,
     sdk::kNumbers,
     kHas<anyhal_attrs_scatter_add>,
     scatter_add_fits,
     scatter_add,
     scatter_add_workspace,
     {},
     sdk::integers_exact},
    {ANYHAL_OP_MATMUL_EPILOGUE, "matmul_epilogue", 0, sdk::kFloats,
     kHas<anyhal_attrs_matmul_epilogue>, matmul_epilogue_fits, matmul_epilogue},
    {ANYHAL_OP_QUANT_MATMUL, "quant_matmul", 0, sdk::kSmallFloats, kHas<anyhal_attrs_quant_matmul>,
     quant_matmul_fits, quant_matmul, quant_matmul_workspace},
    {ANYHAL_OP_ATTENTION, "attention", 0, sdk::kFloats, kHas<anyhal_attrs_attention>,
     attention_fits, attention, attention_workspace},
    {ANYHAL_OP_RMS_NORM, "rms_norm", 0, sdk::kFloats, kHas<anyhal_attrs_rms_norm>, rms_norm_fits,
     rms_norm},
    {ANYHAL_OP_SOFTMAX, "softmax", 0, sdk::kFloats, kHas<anyhal_attrs_softmax>, softmax_fits,
     softmax},
    {ANYHAL_OP_ROPE, "rope", 0, sdk::kFloats, kHas<anyhal_attrs_rope>, rope_fits, rope},
    {ANYHAL_OP_EMBEDDING, "embedding", 0, sdk::kFloats | sdk::kBlocks, kNone, embedding_fits,
     embedding, nullptr, sdk::kExact},
    {ANYHAL_OP_CACHE_APPEND, "cache_append", 0, sdk::kStored, kNone, cache_append_fits,
     cache_append, nullptr, sdk::kExact},
    {ANYHAL_OP_ARGMAX, "argmax", 0, sdk::kNumbers, kHas<anyhal_attrs_argmax>, argmax_fits, argmax,
     nullptr, sdk::kExact},
    {ANYHAL_OP_CONCAT, "concat", 0, sdk::kAny, kHas<anyhal_attrs_concat>, concat_fits, concat,
     nullptr, sdk::kExact},
    {ANYHAL_OP_LOG_SOFTMAX, "log_softmax", 0, sdk::kFloats, kHas<anyhal_attrs_log_softmax>,
     log_softmax_fits, log_softmax},
    {ANYHAL_OP_LOGSUMEXP, "logsumexp", 0, sdk::kFloats, kHas<anyhal_attrs_logsumexp>,
     logsumexp_fits, logsumexp},
    {ANYHAL_OP_LAYER_NORM, "layer_norm", 0, sdk::kFloats, kHas<anyhal_attrs_layer_norm>,
     layer_norm_fits, layer_norm},
    {ANYHAL_OP_GROUP_NORM, "group_norm", 0, sdk::kFloats, kHas<anyhal_attrs_group_norm>,
     group_norm_fits, group_norm},
    {ANYHAL_OP_BATCH_NORM, "batch_norm", 0, sdk::kFloats, kHas<anyhal_attrs_batch_norm>,
     batch_norm_fits, batch_norm},
    {ANYHAL_OP_CUMSUM,
     "cumsum",
     0,
     sdk::kNumbers,
     kHas<anyhal_attrs_cumsum>,
     cumsum_fits,
     cumsum,
     nullptr,
     {},
     sdk::integers_exact},
    {ANYHAL_OP_ARGMIN, "argmin", 0, sdk::kNumbers, kHas<anyhal_attrs_argmin>, argmin_fits, argmin,
     nullptr, sdk::kExact},
    {ANYHAL_OP_TOPK, "topk", 0, sdk::kNumbers, kHas<anyhal_attrs_topk>, topk_fits, topk,
     topk_workspace, sdk::kExact},
    {ANYHAL_OP_SORT, "sort", 0, sdk::kNumbers, kHas<anyhal_attrs_sort>, sort_fits, sort,
     sort_workspace, sdk::kExact},
    {ANYHAL_OP_CLIP,
     "clip",
     0,
     sdk::kNumbers,
     kNone,
     clip_fits,
     clip,
     nullptr,
     {},
     sdk::integers_exact},
    {ANYHAL_OP_TAKE_ALONG_AXIS, "take_along_axis", 0, sdk::kPlain,
     kHas<anyhal_attrs_take_along_axis>, take_along_axis_fits, take_along_axis, nullptr,
     sdk::kExact},
    {ANYHAL_OP_SCATTER,
     "scatter",
     0,
     sdk::kPlain,
     kHas<anyhal_attrs_scatter>,
     scatter_fits,
     scatter,
     scatter_workspace,
     {},
     sdk::scatter_exact},
    {ANYHAL_OP_SLICE_UPDATE, "slice_update", 0, sdk::kPlain, kHas<anyhal_attrs_slice_update>,
     slice_update_fits, slice_update, nullptr, sdk::kExact},
    {ANYHAL_OP_PAD, "pad", 0, sdk::kPlain, kHas<anyhal_attrs_pad>, pad_fits, pad, nullptr,
     sdk::kExact},
    {ANYHAL_OP_ONE_HOT, "one_hot", 0, sdk::kIndices, kHas<anyhal_attrs_one_hot>, one_hot_fits,
     one_hot, nullptr, sdk::kExact},
    {ANYHAL_OP_STACK, "stack", 0, sdk::kAny, kHas<anyhal_attrs_stack>, stack_fits, stack, nullptr,
     sdk::kExact},
    {ANYHAL_OP_CONV, "conv", 0, sdk::kFloats, kHas<anyhal_attrs_conv>, conv_fits, conv},
    {ANYHAL_OP_CONV_TRANSPOSE, "conv_transpose", 0, sdk::kFloats, kHas<anyhal_attrs_conv_transpose>,
     conv_transpose_fits, conv_transpose},
    {ANYHAL_OP_MAX_POOL,
     "max_pool",
     0,
     sdk::kNumbers,
     kHas<anyhal_attrs_max_pool>,
     max_pool_fits,
     max_pool,
     nullptr,
     {},
     sdk::integers_exact},
    {ANYHAL_OP_AVG_POOL, "avg_pool", 0, sdk::kFloats, kHas<anyhal_attrs_avg_pool>, avg_pool_fits,
     avg_pool},
    {ANYHAL_OP_RESIZE,
     "resize",
     0,
     sdk::kPlain,
     kHas<anyhal_attrs_resize>,
     resize_fits,
     resize,
     nullptr,
     {},
     sdk::resize_exact},
    {ANYHAL_OP_CROSS_ENTROPY, "cross_entropy", 0, sdk::kFloats, kHas<anyhal_attrs_cross_entropy>,
     cross_entropy_fits, cross_entropy},
    {ANYHAL_OP_CROSS_ENTROPY_BACKWARD, "cross_entropy_backward", 0, sdk::kFloats,
     kHas<anyhal_attrs_cross_entropy_backward>, cross_entropy_backward_fits,
     cross_entropy_backward},
    {ANYHAL_OP_SOFTMAX_BACKWARD, "softmax_backward", 0, sdk::kFloats,
     kHas<anyhal_attrs_softmax_backward>, softmax_backward_fits, softmax_backward},
    {ANYHAL_OP_LOG_SOFTMAX_BACKWARD, "log_softmax_backward", 0, sdk::kFloats,
     kHas<anyhal_attrs_log_softmax_backward>, log_softmax_backward_fits, log_softmax_backward},
    {ANYHAL_OP_RMS_NORM_BACKWARD, "rms_norm_backward", 1, sdk::kFloats,
     kHas<anyhal_attrs_rms_norm_backward>, rms_norm_backward_fits, rms_norm_backward,
     rms_norm_backward_workspace},
    {ANYHAL_OP_LAYER_NORM_BACKWARD, "layer_norm_backward", 1, sdk::kFloats,
     kHas<anyhal_attrs_layer_norm_backward>, layer_norm_backward_fits, layer_norm_backward,
     layer_norm_backward_workspace},
    {ANYHAL_OP_GROUP_NORM_BACKWARD, "group_norm_backward", 1, sdk::kFloats,
     kHas<anyhal_attrs_group_norm_backward>, group_norm_backward_fits, group_norm_backward,
     group_norm_backward_workspace},
    {ANYHAL_OP_BATCH_NORM_BACKWARD, "batch_norm_backward", 1, sdk::kFloats,
     kHas<anyhal_attrs_batch_norm_backward>, batch_norm_backward_fits, batch_norm_backward},
    {ANYHAL_OP_ATTENTION_BACKWARD, "attention_backward", 1, sdk::kFloats,
     kHas<anyhal_attrs_attention_backward>, attention_backward_fits, attention_backward,
     attention_backward_workspace},
    {ANYHAL_OP_EMBEDDING_BACKWARD, "embedding_backward", 0, sdk::kFloats, kNone,
     embedding_backward_fits, embedding_backward, embedding_backward_workspace},
    {ANYHAL_OP_CONV_BACKWARD, "conv_backward", 1, sdk::kFloats, kHas<anyhal_attrs_conv_backward>,
     conv_backward_fits, conv_backward, conv_backward_workspace},
    {ANYHAL_OP_ADAMW_STEP, "adamw_step", 0, sdk::kFloats, kHas<anyhal_attrs_adamw_step>,
     adamw_step_fits, adamw_step},
    {ANYHAL_OP_SGD_STEP, "sgd_step", 0, sdk::kFloats, kHas<anyhal_attrs_sgd_step>, sgd_step_fits,
     sgd_step},
    {ANYHAL_OP_PAGED_ATTENTION, "paged_attention", 0, sdk::kFloats,
     kHas<anyhal_attrs_paged_attention>, paged_attention_fits, paged_attention,
     paged_attention_workspace},
    {ANYHAL_OP_PAGED_CACHE_APPEND, "paged_cache_append", 0, sdk::kStored, kNone,
     paged_cache_append_fits, paged_cache_append, paged_cache_append_workspace, sdk::kExact},
    {ANYHAL_OP_GROUPED_MATMUL, "grouped_matmul", 0, sdk::kFloats, kNone, grouped_matmul_fits,
     grouped_matmul},
    {ANYHAL_OP_RANDOM_UNIFORM, "random_uniform", 1, sdk::kFloats, kNone, random_floats_fit,
     random_uniform, nullptr, sdk::kExact},
    {ANYHAL_OP_RANDOM_NORMAL,
     "random_normal",
     1,
     sdk::kFloats,
     kNone,
     random_floats_fit,
     random_normal,
     nullptr,
     {},
     sdk::random_normal_exact},
    {ANYHAL_OP_RANDOM_INTEGERS, "random_integers", 1, sdk::kInts,
     kHas<anyhal_attrs_random_integers>, random_integers_fit, random_integers, nullptr,
     sdk::kExact},
    {ANYHAL_OP_DROPOUT, "dropout", 0, sdk::kFloats, kHas<anyhal_attrs_dropout>, dropout_fits,
     dropout},
    {ANYHAL_OP_QUANTIZE, "quantize", 0, sdk::kFloats, kHas<anyhal_attrs_quantize>, quantize_fits,
     quantize},
    {ANYHAL_OP_DEQUANTIZE, "dequantize", 0, kQuantised, kHas<anyhal_attrs_dequantize>,
     dequantize_fits, dequantize},
    {ANYHAL_OP_SCALED_MATMUL, "scaled_matmul", 0, kBytes | sdk::kF8, kNone, scaled_matmul_fits,
     scaled_matmul},
};
const sdk::OpTable kOps(kRows, sdk::kBatchInvariant);

anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error*) {
  *out_total = 1;
  if (capacity == 0) return ANYHAL_STATUS_OK;
  anyhal_device_info info = {};
  info.flags = ANYHAL_DEVICE_UNIFIED;
  sdk::describe_host_processor(info);
  info.kinds = &self->kind;
  info.kind_count = 1;
  info.preferred_alignment = 64;
  info.rank_max = sdk::kRankMax;
  info.recovery = ANYHAL_RECOVERY_REOPEN;
  sdk::write_record(infos, info);
  return ANYHAL_STATUS_OK;
}

anyhal_status device_open(anyhal_self* self, uint64_t device_id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  if (device_id != 0) {
    return fail(error, ANYHAL_STATUS_NOT_FOUND, 0,
                "there is no device %llu, only 0; list devices first",
                static_cast<unsigned long long>(device_id));
  }
  *out_device = new (std::nothrow) anyhal_device{self};
  *out_address_block = sdk::kAddressBlock;
  if (*out_device != nullptr) return ANYHAL_STATUS_OK;
  return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
              "the host is out of memory; free arrays and try again");
}

anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  if (request->kind != 0 || request->flags != 0) {
    return fail(error, ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                "memory kind %u with flags %u is unknown; use kind 0", request->kind,
                request->flags);
  }
  const uint64_t alignment = request->alignment > 64 ? request->alignment : 64;
  const uint64_t bytes = (request->bytes / alignment + 1) * alignment;
  void* memory = bytes < request->bytes ? nullptr : std::aligned_alloc(alignment, bytes);
  if (memory == nullptr) {
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "the host has no block of %llu bytes; free arrays",
                static_cast<unsigned long long>(request->bytes));
  }
  anyhal_memory_block block = {};
  block.memory = reinterpret_cast<uintptr_t>(memory);
  block.bytes = request->bytes;
  block.device_address = block.host_address = block.memory;
  sdk::write_record(out_block, block);
  return ANYHAL_STATUS_OK;
}

anyhal_status op_query(anyhal_device*, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  return kOps.query(desc, verdict, error);
}

anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  sdk::Plan* plan = nullptr;
  anyhal_status status = kOps.prepare(desc, device->self->services, &plan, out_prepared, error);
  *out_plan = reinterpret_cast<anyhal_plan*>(plan);
  return status;
}

anyhal_status op_enqueue(anyhal_queue*, anyhal_plan* plan, const anyhal_call* call,
                         anyhal_error* error) {
  return sdk::OpTable::enqueue(*reinterpret_cast<const sdk::Plan*>(plan), call, error);
}

anyhal_status release(anyhal_self*, uint32_t object_kind, uint64_t object, uint32_t,
                      anyhal_error* error) {
  switch (object_kind) {
    case ANYHAL_OBJECT_DEVICE:
      delete reinterpret_cast<anyhal_device*>(object);
      break;
    case ANYHAL_OBJECT_MEMORY:
      std::free(reinterpret_cast<void*>(object));
      break;
    case ANYHAL_OBJECT_PLAN:
      delete reinterpret_cast<sdk::Plan*>(object);
      break;
    default:
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "it makes no objects of kind %u; check the kind", object_kind);
  }
  return ANYHAL_STATUS_OK;
}

anyhal_status device_query(anyhal_device*, uint32_t key, uint64_t, void* value, uint64_t* bytes,
                           anyhal_error* error) {
  switch (key) {
    case ANYHAL_QUERY_FREE_BYTES:
      return sdk::answer(value, bytes, sdk::host_bytes_free(), error);
    case ANYHAL_QUERY_HEALTH:
      return sdk::answer(value, bytes, uint32_t{ANYHAL_STATUS_OK}, error);
    case ANYHAL_QUERY_CAPABILITIES:
      return kOps.capabilities(value, bytes, error);
    case ANYHAL_QUERY_NOTES:
      return sdk::answer(value, bytes, "", error);
  }
  return fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "key %u is unknown here; use one of backend.h",
              key);
}

const anyhal_table kTable = [] {
  anyhal_table table = {};  // slots that stay NULL are unsupported
  table.size = sizeof(table);
  table.device_list = device_list;
  table.device_open = device_open;
  table.memory_alloc = memory_alloc;
  table.op_query = op_query;
  table.op_prepare = op_prepare;
  table.op_enqueue = op_enqueue;
  table.release = release;
  table.device_query = device_query;
  return table;
}();

}  // namespace
}  // namespace hal::cpu_ref

extern "C" ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello,
                                                           anyhal_reply* reply,
                                                           anyhal_error* error) {
  anyhal_status status = hal::sdk::agree(*hello, *reply, error);
  if (status != ANYHAL_STATUS_OK) return status;
  anyhal_self* self = new (std::nothrow) anyhal_self{hello->services, hal::sdk::host_memory_kind()};
  if (self == nullptr) return ANYHAL_STATUS_OUT_OF_MEMORY;
  reply->flags = ANYHAL_REPLY_SYNCHRONOUS;
  reply->table = &hal::cpu_ref::kTable;
  reply->self = self;
  reply->build_id = "cpu_ref 0.1, " __VERSION__;
  return ANYHAL_STATUS_OK;
}
