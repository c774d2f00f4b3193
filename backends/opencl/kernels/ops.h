// Every op of this backend: its condition beyond dtypes, and how its plan is laid out.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_OPENCL_KERNELS_OPS_H_
#define BACKENDS_OPENCL_KERNELS_OPS_H_

#include "../launch.h"
#include "anyhal/sdk/core_ops.hpp"

namespace hal::opencl {

// Text of kernels/<name>.cl, embedded by the build.
extern const char kAttentionSource[];
extern const char kBinarySource[];
extern const char kBlocksSource[];
extern const char kCastSource[];
extern const char kCopySource[];
extern const char kGatherSource[];
extern const char kMatmulSource[];
extern const char kQuantMatmulSource[];
extern const char kReduceSource[];
extern const char kRmsNormSource[];
extern const char kScatterAddSource[];
extern const char kSmallSource[];
extern const char kSoftmaxSource[];
extern const char kUnarySource[];
extern const char kWhereSource[];

Answer copy_fits(const Desc& desc);
void copy_plan(Builder& builder);
Answer fill_fits(const Desc& desc);
void fill_plan(Builder& builder);
Answer cast_fits(const Desc& desc);
void cast_plan(Builder& builder);
using sdk::unary_fits;
void unary_plan(Builder& builder);
using sdk::binary_fits;
void binary_plan(Builder& builder);
using sdk::where_fits;
void where_plan(Builder& builder);
using sdk::reduce_fits;
void reduce_plan(Builder& builder);
Answer matmul_fits(const Desc& desc);
void matmul_plan(Builder& builder);
Answer gather_fits(const Desc& desc);
void gather_plan(Builder& builder);
Answer scatter_add_fits(const Desc& desc);
void scatter_add_plan(Builder& builder);
Answer quant_matmul_fits(const Desc& desc);
void quant_matmul_plan(Builder& builder);
Answer attention_fits(const Desc& desc);
void attention_plan(Builder& builder);
Answer rms_norm_fits(const Desc& desc);
void rms_norm_plan(Builder& builder);
Answer softmax_fits(const Desc& desc);
void softmax_plan(Builder& builder);

// Copies operand `from` to operand `to` in units of bytes that divide an element; strides of 0 for
// a fill. `from` and `to` have the same dims.
void move_plan(Builder& builder, uint32_t from, uint32_t to, bool repeats);

// How many bytes of an element or block move at once, and how many times.
struct Units {
  uint32_t bytes;
  int64_t count;
};
Units units_of(const Tensor& t);

}  // namespace hal::opencl

#endif  // BACKENDS_OPENCL_KERNELS_OPS_H_
