// What a kernel sees: a plan made from an op description, and one call of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_KERNEL_H_
#define BACKENDS_CPU_KERNELS_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

namespace hal::cpu {

class OneDnn;

// Functions that every instruction set's files share must not exist as symbols: the linker would
// keep one copy, possibly one that the processor cannot run.
#define HAL_CPU_INLINE inline __attribute__((always_inline))

constexpr uint32_t kRankMax = 16;

// An operand as prepared: everything but its address. Strides count elements (blocks for block
// formats).
struct Tensor {
  uint32_t dtype;
  uint32_t rank;
  uint32_t flags;
  uint32_t alias_of;
  int64_t dims[kRankMax];
  int64_t strides[kRankMax];

  HAL_CPU_INLINE bool absent() const { return (flags & ANYHAL_TENSOR_ABSENT) != 0; }
  HAL_CPU_INLINE bool constant() const { return (flags & ANYHAL_TENSOR_CONSTANT) != 0; }
};

// The executor threads of the core; this backend starts none of its own.
struct Team {
  const anyhal_services* services;
  uint32_t threads;

  HAL_CPU_INLINE void run(uint32_t count, void (*fn)(void* argument, uint32_t index),
                          void* argument) const {
    if (count == 1 || threads == 1 || services == nullptr) {
      for (uint32_t i = 0; i < count; ++i) fn(argument, i);
      return;
    }
    services->parallel_for(services->context, count, fn, argument);
  }
};

struct Plan;
using Run = anyhal_status (*)(const Plan& plan, char* const* data, char* workspace,
                              anyhal_error* error);
// Writes the packed form of a constant operand.
using PackConstant = void (*)(const Plan& plan, const char* source, char* packed);

// Immutable after prepare, shared by queues and threads.
struct Plan {
  Run run;
  const char* kernel;   // for receipts
  const char* library;  // "" = own code
  Team team;
  const Tensor* operands;
  uint32_t operand_count;
  uint32_t input_count;
  uint64_t workspace_bytes;
  uint64_t hidden_bytes;  // that a library allocates for the time of a call
  PackConstant pack;      // null = no constant is packed
  uint32_t pack_operand;
  uint64_t pack_bytes;
  const char* pack_key;
  uint32_t accumulate;   // anyhal_accumulate that the caller allows
  uint32_t accumulated;  // what the kernel makes of it: the same, or strict
  bool ordered;          // a row's sums may not depend on the other rows
  bool dots_bf16;        // the processor has dot instructions for bf16
  bool dots_int8;        // and for 8-bit integers
  OneDnn* onednn;        // null = absent or switched off
  void* library_state;   // owned by the library's wrapper, ended by end_library_state
  void (*end_library_state)(void* state);
  alignas(16) unsigned char attributes[64];
  alignas(64) unsigned char state[3328];

  HAL_CPU_INLINE const Tensor& input(uint32_t i) const { return operands[i]; }
  HAL_CPU_INLINE const Tensor& output() const { return operands[input_count]; }
  template <class T>
  HAL_CPU_INLINE const T& attribute() const {
    static_assert(sizeof(T) <= sizeof(attributes));
    return *reinterpret_cast<const T*>(attributes);
  }
  template <class T>
  HAL_CPU_INLINE T& make_state() {
    static_assert(sizeof(T) <= sizeof(state) && alignof(T) <= 64);
    return *reinterpret_cast<T*>(state);
  }
  template <class T>
  HAL_CPU_INLINE const T& get_state() const {
    return *reinterpret_cast<const T*>(state);
  }
};

// Completes a plan whose operands, attributes and team are set. A kernel that turns out unable
// answers false, which prepare reports as unsupported.
using Prepare = bool (*)(Plan& plan);

// The kernels of one instruction set; one function per file in kernels/.
struct KernelSet {
  Prepare copy, fill, cast, unary, binary, where, reduce, matmul, gather, scatter_add, attention,
      rms_norm, softmax, rope, embedding, cache_append, argmax, concat, quant_matmul, sort, topk;
};

#define HAL_CPU_DECLARE_KERNELS(isa)                                                    \
  namespace isa {                                                                       \
  bool prepare_copy(Plan& plan);                                                        \
  bool prepare_fill(Plan& plan);                                                        \
  bool prepare_cast(Plan& plan);                                                        \
  bool prepare_unary(Plan& plan);                                                       \
  bool prepare_binary(Plan& plan);                                                      \
  bool prepare_where(Plan& plan);                                                       \
  bool prepare_reduce(Plan& plan);                                                      \
  bool prepare_matmul(Plan& plan); /* also matmul_epilogue */                           \
  bool prepare_gather(Plan& plan);                                                      \
  bool prepare_scatter_add(Plan& plan);                                                 \
  bool prepare_attention(Plan& plan);                                                   \
  bool prepare_rms_norm(Plan& plan);                                                    \
  bool prepare_softmax(Plan& plan);                                                     \
  bool prepare_rope(Plan& plan);                                                        \
  bool prepare_embedding(Plan& plan);                                                   \
  bool prepare_cache_append(Plan& plan);                                                \
  bool prepare_argmax(Plan& plan);                                                      \
  bool prepare_concat(Plan& plan);                                                      \
  bool prepare_quant_matmul(Plan& plan);                                                \
  bool prepare_sort(Plan& plan); /* in order.cc */                                      \
  bool prepare_topk(Plan& plan);                                                        \
  inline constexpr KernelSet kKernels = {                                               \
      prepare_copy,    prepare_fill,        prepare_cast,         prepare_unary,        \
      prepare_binary,  prepare_where,       prepare_reduce,       prepare_matmul,       \
      prepare_gather,  prepare_scatter_add, prepare_attention,    prepare_rms_norm,     \
      prepare_softmax, prepare_rope,        prepare_embedding,    prepare_cache_append, \
      prepare_argmax,  prepare_concat,      prepare_quant_matmul, prepare_sort,         \
      prepare_topk};                                                                    \
  }

HAL_CPU_DECLARE_KERNELS(baseline)
#if defined(__x86_64__)
HAL_CPU_DECLARE_KERNELS(avx2)
HAL_CPU_DECLARE_KERNELS(avx512)
#endif
#undef HAL_CPU_DECLARE_KERNELS

// Fills an error record from a format and returns `status`. Compiled once, without vector flags.
anyhal_status fail(anyhal_error* error, anyhal_status status, int32_t reason, const char* format,
                   ...) __attribute__((format(printf, 4, 5)));

}  // namespace hal::cpu

#endif  // BACKENDS_CPU_KERNELS_KERNEL_H_
