// Instruction sets: which one this processor and this operating system can run.
// SPDX-License-Identifier: Apache-2.0
#include "isa.h"

#include <stdio.h>
#include <string.h>

#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hal::cpu {

#if defined(__x86_64__)

namespace {

// State components that the operating system saves: a feature whose registers it does not save
// must not be used, whatever CPUID says.
uint64_t saved_state() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

constexpr uint64_t kStateAvx = 0x6;      // xmm, ymm
constexpr uint64_t kStateAvx512 = 0xe6;  // and opmask, upper zmm, zmm16-31

bool has(uint32_t word, int bit) { return (word >> bit & 1u) != 0; }

}  // namespace

Isa detect_isa() {
  uint32_t a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return Isa::kBaseline;
  bool avx = has(c, 27) && has(c, 28) && has(c, 12) && has(c, 29);  // osxsave, avx, fma, f16c
  if (!avx || (saved_state() & kStateAvx) != kStateAvx) return Isa::kBaseline;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || !has(b, 5)) return Isa::kBaseline;
  bool wide = has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31);  // avx512 f, dq, bw, vl
  if (!wide || (saved_state() & kStateAvx512) != kStateAvx512) return Isa::kAvx2;
  bool dots = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && has(a, 5);
  return dots ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

bool has_int8_dots(Isa isa) {
  uint32_t a, b, c, d;
  return isa >= Isa::kAvx512Bf16 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && has(c, 11);
}

const KernelSet& kernels_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      return avx512::kKernels;
    case Isa::kAvx2:
      return avx2::kKernels;
    default:
      return baseline::kKernels;
  }
}

void processor_name(char* to, size_t bytes) {
  uint32_t text[13] = {};
  uint32_t highest = __get_cpuid_max(0x80000000u, nullptr);
  if (highest >= 0x80000004u) {
    for (uint32_t i = 0; i < 3; ++i)
      __get_cpuid(0x80000002u + i, &text[4 * i], &text[4 * i + 1], &text[4 * i + 2],
                  &text[4 * i + 3]);
  }
  const char* name = reinterpret_cast<const char*>(text);
  while (*name == ' ') ++name;
  snprintf(to, bytes, "%s", *name != '\0' ? name : "x86-64 processor");
}

#else

Isa detect_isa() { return Isa::kBaseline; }
bool has_int8_dots(Isa) { return false; }
const KernelSet& kernels_of(Isa) { return baseline::kKernels; }
void processor_name(char* to, size_t bytes) { snprintf(to, bytes, "host processor"); }

#endif

bool cap_isa(const char* text, Isa detected, Isa* out) {
  *out = detected;
  if (text == nullptr || text[0] == '\0') return true;
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (strcmp(text, isa_name(isa)) != 0) continue;
    if (isa < detected) *out = isa;
    return true;
  }
  return false;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAvx2:
      return "avx2";
    default:
      return "baseline";
  }
}

}  // namespace hal::cpu
