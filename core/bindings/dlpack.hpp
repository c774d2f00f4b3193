// What both directions of DLPack share: the capsules' names and the dtypes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include "anyhal/dlpack.h"
#include "core/bindings/array.hpp"

namespace hal::dlpack {

// A capsule has the first name until it is consumed, then the second.
inline constexpr char kName[] = "dltensor", kUsed[] = "used_dltensor";
inline constexpr char kVersionedName[] = "dltensor_versioned",
                      kVersionedUsed[] = "used_dltensor_versioned";

struct Pair {
  uint32_t dtype;
  DLDataType dl;
};
inline constexpr Pair kTypes[] = {{ANYHAL_DTYPE_F32, {kDLFloat, 32, 1}},
                                  {ANYHAL_DTYPE_F16, {kDLFloat, 16, 1}},
                                  {ANYHAL_DTYPE_BF16, {kDLBfloat, 16, 1}},
                                  {ANYHAL_DTYPE_F64, {kDLFloat, 64, 1}},
                                  {ANYHAL_DTYPE_I64, {kDLInt, 64, 1}},
                                  {ANYHAL_DTYPE_I32, {kDLInt, 32, 1}},
                                  {ANYHAL_DTYPE_I16, {kDLInt, 16, 1}},
                                  {ANYHAL_DTYPE_I8, {kDLInt, 8, 1}},
                                  {ANYHAL_DTYPE_U64, {kDLUInt, 64, 1}},
                                  {ANYHAL_DTYPE_U32, {kDLUInt, 32, 1}},
                                  {ANYHAL_DTYPE_U16, {kDLUInt, 16, 1}},
                                  {ANYHAL_DTYPE_U8, {kDLUInt, 8, 1}},
                                  {ANYHAL_DTYPE_BOOL, {kDLBool, 8, 1}},
                                  {ANYHAL_DTYPE_F8_E4M3FN, {kDLFloat8_e4m3fn, 8, 1}},
                                  {ANYHAL_DTYPE_F8_E5M2, {kDLFloat8_e5m2, 8, 1}},
                                  {ANYHAL_DTYPE_F8_E4M3FNUZ, {kDLFloat8_e4m3fnuz, 8, 1}},
                                  {ANYHAL_DTYPE_F8_E5M2FNUZ, {kDLFloat8_e5m2fnuz, 8, 1}}};

void bind_import(nanobind::module_& m);

}  // namespace hal::dlpack
