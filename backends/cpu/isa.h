// Instruction sets: which one this processor and this operating system can run.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_ISA_H_
#define BACKENDS_CPU_ISA_H_

#include "kernels/kernel.h"

namespace hal::cpu {

// The last has kAvx512's kernels, of which some then use bf16 dot products.
enum class Isa { kBaseline = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Bf16 = 3 };

Isa detect_isa();
// Whether a level has the dot instructions of 8-bit integers on this processor.
bool has_int8_dots(Isa isa);
// The level that the text names, at most `detected`; null or empty = `detected`. False: unknown.
bool cap_isa(const char* text, Isa detected, Isa* out);
const char* isa_name(Isa isa);
const KernelSet& kernels_of(Isa isa);
// The processor's marketing name, or the architecture's.
void processor_name(char* to, size_t bytes);

}  // namespace hal::cpu

#endif  // BACKENDS_CPU_ISA_H_
