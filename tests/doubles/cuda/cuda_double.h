// What makes C++ of a kernel's source: launches block by block, and memory behind false addresses.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_DOUBLES_CUDA_CUDA_DOUBLE_H_
#define TESTS_DOUBLES_CUDA_CUDA_DOUBLE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

namespace cuda_double {

// The addresses handed out are never mapped: a host that follows one faults. Kernels and copies of
// the double find the bytes at a fixed distance.
constexpr uint64_t kSpace = 256ull << 30;
constexpr int kPageBits = 12;
extern uint64_t false_base;
extern uint64_t true_base;
extern uint8_t* owner;                 // device + 1 of each page, 0 where nothing is
extern thread_local uint32_t visible;  // bit d: memory of device d may be touched now

struct IllegalAddress {};

template <class T>
inline T* reach(T* pointer) {
  const uint64_t offset = reinterpret_cast<uint64_t>(pointer) - false_base;
  if (offset >= kSpace) return pointer;  // the host's own, such as pinned memory
  const uint8_t device = owner[offset >> kPageBits];
  if (device == 0 || (visible >> (device - 1) & 1) == 0) throw IllegalAddress{};
  return reinterpret_cast<T*>(true_base + offset);
}

struct Launch {
  unsigned grid, block, index;
};
extern thread_local Launch launch;

struct Kernel {
  Kernel(const char* kernel_name, size_t bytes, void (*code)(const void*));
  const char* name;
  size_t parameter_bytes;
  void (*run)(const void* parameters);
  Kernel* next;
};

}  // namespace cuda_double

namespace hal::cuda {
using cuda_double::reach;
}

#define HAL_DEVICE inline
#define HAL_SHARED
#define HAL_KERNEL(name, Params)                                                           \
  static void name(const Params& p);                                                       \
  static cuda_double::Kernel name##_entry(                                                 \
      #name, sizeof(Params), [](const void* q) { name(*static_cast<const Params*>(q)); }); \
  static void name(const Params& p)
#define HAL_EACH(i, total)                                                                        \
  for (long long first = (long long)cuda_double::launch.index * cuda_double::launch.block;        \
       first < (total); first += (long long)cuda_double::launch.grid * cuda_double::launch.block) \
    for (long long i = first, end = first + cuda_double::launch.block < (total)                   \
                                        ? first + cuda_double::launch.block                       \
                                        : (total);                                                \
         i < end; ++i)
#define HAL_EACH_BLOCK(i, total) \
  for (long long i = cuda_double::launch.index; i < (total); i += cuda_double::launch.grid)
#define HAL_STOP_AFTER_FAULT(fault) \
  if (hal::cuda::has_fault(fault)) return
#define HAL_PHASE(t) for (int t = 0; t < (int)cuda_double::launch.block; ++t)

#endif  // TESTS_DOUBLES_CUDA_CUDA_DOUBLE_H_
