// The questions that conditions ask, by their short names.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_CONDITIONS_H_
#define BACKENDS_CPU_REF_KERNELS_CONDITIONS_H_

#include "anyhal/sdk/core_ops.hpp"
#include "kernels.h"

namespace hal::cpu_ref {

using sdk::all;
using sdk::axis_in;
using sdk::choice_in;
using sdk::dims_equal;
using sdk::dtype_in;
using sdk::dtypes_equal;
using sdk::operands_are;
using sdk::output_is_single;
using sdk::output_may_alias;
using sdk::product_dims_fit;
using sdk::rank_is;

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_CONDITIONS_H_
