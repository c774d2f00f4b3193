// Every op of the registry: its condition beyond dtypes, and its kernel. One file per op.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_KERNELS_H_
#define BACKENDS_CPU_REF_KERNELS_KERNELS_H_

#include "anyhal/sdk/table.hpp"

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
Answer unary_fits(const Desc& desc);
void unary(const Call& call);
Answer binary_fits(const Desc& desc);
void binary(const Call& call);
Answer where_fits(const Desc& desc);
void where(const Call& call);
Answer reduce_fits(const Desc& desc);
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
Answer quantize_fits(const Desc& desc);
void quantize(const Call& call);
Answer dequantize_fits(const Desc& desc);
void dequantize(const Call& call);
Answer scaled_matmul_fits(const Desc& desc);
void scaled_matmul(const Call& call);

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_KERNELS_H_
