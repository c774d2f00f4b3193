// The inner loop of a conversion, for other ops that end in one.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_CAST_H_
#define BACKENDS_CPU_KERNELS_CAST_H_

#include "loops.h"

namespace hal::cpu::HAL_CPU_ISA {

// Operands: source, destination. Null where no such cast exists.
Inner cast_of(uint32_t from, uint32_t to);

// The weights of one block, block_elements(dtype) of them, exact.
void dequantise_exactly(uint32_t dtype, const uint8_t* block, double* to);

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_CAST_H_
