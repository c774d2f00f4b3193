// What must hold for each op, asked by op_query and op_prepare alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_CONDITIONS_H_
#define BACKENDS_CUDA_CONDITIONS_H_

#include "anyhal/sdk/table.hpp"

namespace hal::cuda {

sdk::Answer copy_fits(const anyhal_op_desc& desc);
sdk::Answer fill_fits(const anyhal_op_desc& desc);
sdk::Answer cast_fits(const anyhal_op_desc& desc);
sdk::Answer unary_fits(const anyhal_op_desc& desc);
sdk::Answer binary_fits(const anyhal_op_desc& desc);
sdk::Answer where_fits(const anyhal_op_desc& desc);
sdk::Answer reduce_fits(const anyhal_op_desc& desc);
sdk::Answer matmul_fits(const anyhal_op_desc& desc);
sdk::Answer gather_fits(const anyhal_op_desc& desc);
sdk::Answer scatter_add_fits(const anyhal_op_desc& desc);

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_CONDITIONS_H_
