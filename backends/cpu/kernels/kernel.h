// What a kernel sees: a plan made from an op description, and one call of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_KERNEL_H_
#define BACKENDS_CPU_KERNELS_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#include "anyhal/backend.h"
#include "anyhal/ops.h"

namespace hal::cpu {

class OneDnnLibrary;

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
  uint32_t accumulate;    // anyhal_accumulate that the caller allows
  uint32_t accumulated;   // what the kernel makes of it: the same, or strict
  bool ordered;           // a row's sums may not depend on the other rows
  bool dots_bf16;         // the processor has dot instructions for bf16
  bool dots_int8;         // and for 8-bit integers
  OneDnnLibrary* onednn;  // null = not to be asked, as in op_query
  void* library_state;    // owned by the library's wrapper, ended by end_library_state
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

// The ops that have a kernel of their own; matmul's is also that of matmul_epilogue. One function
// prepare_<op> each, in kernels/<op>.cc or where several share a file.
#define HAL_CPU_KERNELS(X)                          \
  X(copy, COPY)                                     \
  X(fill, FILL)                                     \
  X(cast, CAST)                                     \
  X(unary, UNARY)                                   \
  X(binary, BINARY)                                 \
  X(where, WHERE)                                   \
  X(reduce, REDUCE)                                 \
  X(matmul, MATMUL)                                 \
  X(gather, GATHER)                                 \
  X(scatter_add, SCATTER_ADD)                       \
  X(quant_matmul, QUANT_MATMUL)                     \
  X(attention, ATTENTION)                           \
  X(rms_norm, RMS_NORM)                             \
  X(softmax, SOFTMAX)                               \
  X(rope, ROPE)                                     \
  X(embedding, EMBEDDING)                           \
  X(cache_append, CACHE_APPEND)                     \
  X(argmax, ARGMAX)                                 \
  X(cumsum, CUMSUM)                                 \
  X(concat, CONCAT)                                 \
  X(sort, SORT)                                     \
  X(topk, TOPK)                                     \
  X(layer_norm, LAYER_NORM)                         \
  X(log_softmax, LOG_SOFTMAX)                       \
  X(random_uniform, RANDOM_UNIFORM)                 \
  X(random_normal, RANDOM_NORMAL)                   \
  X(random_integers, RANDOM_INTEGERS)               \
  X(dropout, DROPOUT)                               \
  X(cross_entropy, CROSS_ENTROPY)                   \
  X(cross_entropy_backward, CROSS_ENTROPY_BACKWARD) \
  X(softmax_backward, SOFTMAX_BACKWARD)             \
  X(log_softmax_backward, LOG_SOFTMAX_BACKWARD)     \
  X(rms_norm_backward, RMS_NORM_BACKWARD)           \
  X(layer_norm_backward, LAYER_NORM_BACKWARD)       \
  X(attention_backward, ATTENTION_BACKWARD)         \
  X(adamw_step, ADAMW_STEP)

// The kernels of one instruction set.
struct KernelSet {
#define HAL_CPU_MEMBER(name, op) Prepare name;
  HAL_CPU_KERNELS(HAL_CPU_MEMBER)
#undef HAL_CPU_MEMBER
};

#define HAL_CPU_DECLARE(name, op) bool prepare_##name(Plan& plan);
#define HAL_CPU_ADDRESS(name, op) prepare_##name,
#define HAL_CPU_DECLARE_KERNELS(isa)                                        \
  namespace isa {                                                           \
  HAL_CPU_KERNELS(HAL_CPU_DECLARE)                                          \
  inline constexpr KernelSet kKernels = {HAL_CPU_KERNELS(HAL_CPU_ADDRESS)}; \
  }

HAL_CPU_DECLARE_KERNELS(baseline)
#if defined(__x86_64__)
HAL_CPU_DECLARE_KERNELS(avx2)
HAL_CPU_DECLARE_KERNELS(avx512)
#endif
#undef HAL_CPU_DECLARE_KERNELS
#undef HAL_CPU_ADDRESS
#undef HAL_CPU_DECLARE

// Fills an error record from a format and returns `status`. Compiled once, without vector flags.
anyhal_status fail(anyhal_error* error, anyhal_status status, int32_t reason, const char* format,
                   ...) __attribute__((format(printf, 4, 5)));

}  // namespace hal::cpu

#endif  // BACKENDS_CPU_KERNELS_KERNEL_H_
