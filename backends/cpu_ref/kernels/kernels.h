// Every op of the registry: its condition beyond dtypes, and its kernel. One file per op.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_KERNELS_H_
#define BACKENDS_CPU_REF_KERNELS_KERNELS_H_

#include "anyhal/sdk/core_ops.hpp"

namespace hal::cpu_ref {

using sdk::absent;
using sdk::Answer;
using sdk::Call;
using Desc = anyhal_op_desc;
using Tensor = anyhal_tensor_desc;

// What quantize makes and dequantize takes.
constexpr sdk::Dtypes kQuantised =
    sdk::kF8 | sdk::kPacked |
    sdk::dtypes(ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8, ANYHAL_DTYPE_I16, ANYHAL_DTYPE_U16);

Answer copy_fits(const Desc& desc);
void copy(const Call& call);
Answer fill_fits(const Desc& desc);
void fill(const Call& call);
Answer cast_fits(const Desc& desc);
void cast(const Call& call);
using sdk::unary_fits;
void unary(const Call& call);
using sdk::binary_fits;
void binary(const Call& call);
using sdk::where_fits;
void where(const Call& call);
using sdk::reduce_fits;
void reduce(const Call& call);
Answer matmul_fits(const Desc& desc);
void matmul(const Call& call);
Answer gather_fits(const Desc& desc);
void gather(const Call& call);
Answer scatter_add_fits(const Desc& desc);
void scatter_add(const Call& call);
uint64_t scatter_add_workspace(const Desc& desc);
Answer matmul_epilogue_fits(const Desc& desc);
void matmul_epilogue(const Call& call);
Answer quant_matmul_fits(const Desc& desc);
void quant_matmul(const Call& call);
uint64_t quant_matmul_workspace(const Desc& desc);
Answer attention_fits(const Desc& desc);
void attention(const Call& call);
uint64_t attention_workspace(const Desc& desc);
Answer rms_norm_fits(const Desc& desc);
void rms_norm(const Call& call);
Answer softmax_fits(const Desc& desc);
void softmax(const Call& call);
Answer rope_fits(const Desc& desc);
void rope(const Call& call);
Answer embedding_fits(const Desc& desc);
void embedding(const Call& call);
Answer cache_append_fits(const Desc& desc);
void cache_append(const Call& call);
Answer argmax_fits(const Desc& desc);
void argmax(const Call& call);
Answer concat_fits(const Desc& desc);
void concat(const Call& call);
Answer log_softmax_fits(const Desc& desc);
void log_softmax(const Call& call);
Answer logsumexp_fits(const Desc& desc);
void logsumexp(const Call& call);
Answer layer_norm_fits(const Desc& desc);
void layer_norm(const Call& call);
Answer group_norm_fits(const Desc& desc);
void group_norm(const Call& call);
Answer batch_norm_fits(const Desc& desc);
void batch_norm(const Call& call);
Answer cumsum_fits(const Desc& desc);
void cumsum(const Call& call);
Answer argmin_fits(const Desc& desc);
void argmin(const Call& call);
Answer topk_fits(const Desc& desc);
void topk(const Call& call);
uint64_t topk_workspace(const Desc& desc);
Answer sort_fits(const Desc& desc);
void sort(const Call& call);
uint64_t sort_workspace(const Desc& desc);
Answer clip_fits(const Desc& desc);
void clip(const Call& call);
Answer take_along_axis_fits(const Desc& desc);
void take_along_axis(const Call& call);
Answer scatter_fits(const Desc& desc);
void scatter(const Call& call);
uint64_t scatter_workspace(const Desc& desc);
Answer slice_update_fits(const Desc& desc);
void slice_update(const Call& call);
Answer pad_fits(const Desc& desc);
void pad(const Call& call);
Answer one_hot_fits(const Desc& desc);
void one_hot(const Call& call);
Answer stack_fits(const Desc& desc);
void stack(const Call& call);
Answer conv_fits(const Desc& desc);
void conv(const Call& call);
Answer conv_transpose_fits(const Desc& desc);
void conv_transpose(const Call& call);
Answer max_pool_fits(const Desc& desc);
void max_pool(const Call& call);
Answer avg_pool_fits(const Desc& desc);
void avg_pool(const Call& call);
Answer resize_fits(const Desc& desc);
void resize(const Call& call);
Answer cross_entropy_fits(const Desc& desc);
void cross_entropy(const Call& call);
Answer cross_entropy_backward_fits(const Desc& desc);
void cross_entropy_backward(const Call& call);
Answer softmax_backward_fits(const Desc& desc);
void softmax_backward(const Call& call);
Answer log_softmax_backward_fits(const Desc& desc);
void log_softmax_backward(const Call& call);
Answer rms_norm_backward_fits(const Desc& desc);
void rms_norm_backward(const Call& call);
uint64_t rms_norm_backward_workspace(const Desc& desc);
Answer layer_norm_backward_fits(const Desc& desc);
void layer_norm_backward(const Call& call);
uint64_t layer_norm_backward_workspace(const Desc& desc);
Answer group_norm_backward_fits(const Desc& desc);
void group_norm_backward(const Call& call);
uint64_t group_norm_backward_workspace(const Desc& desc);
Answer batch_norm_backward_fits(const Desc& desc);
void batch_norm_backward(const Call& call);
Answer attention_backward_fits(const Desc& desc);
void attention_backward(const Call& call);
uint64_t attention_backward_workspace(const Desc& desc);
Answer embedding_backward_fits(const Desc& desc);
void embedding_backward(const Call& call);
uint64_t embedding_backward_workspace(const Desc& desc);
Answer conv_backward_fits(const Desc& desc);
void conv_backward(const Call& call);
uint64_t conv_backward_workspace(const Desc& desc);
Answer adamw_step_fits(const Desc& desc);
void adamw_step(const Call& call);
Answer sgd_step_fits(const Desc& desc);
void sgd_step(const Call& call);
Answer paged_attention_fits(const Desc& desc);
void paged_attention(const Call& call);
uint64_t paged_attention_workspace(const Desc& desc);
Answer paged_cache_append_fits(const Desc& desc);
void paged_cache_append(const Call& call);
uint64_t paged_cache_append_workspace(const Desc& desc);
Answer grouped_matmul_fits(const Desc& desc);
void grouped_matmul(const Call& call);
Answer random_floats_fit(const Desc& desc);
void random_uniform(const Call& call);
void random_normal(const Call& call);
Answer random_integers_fit(const Desc& desc);
void random_integers(const Call& call);
Answer dropout_fits(const Desc& desc);
void dropout(const Call& call);
Answer quantize_fits(const Desc& desc);
void quantize(const Call& call);
Answer dequantize_fits(const Desc& desc);
void dequantize(const Call& call);
Answer scaled_matmul_fits(const Desc& desc);
void scaled_matmul(const Call& call);

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_KERNELS_H_
