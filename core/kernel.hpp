// The way past the ops: users' modules and kernels, the vendor's handles, named extensions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/dispatch.hpp"

namespace hal {

// Loaded code of one device. Its plans keep it, and it keeps `owner`: what the code belongs to.
struct HAL_API Module {
  std::atomic<uint32_t> refs{1};
  Device* device = nullptr;
  anyhal_module* handle = nullptr;
  void (*deleter)(void*) = nullptr;
  void* owner = nullptr;

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
};
HAL_API void release(Module* module);  // null is allowed

// Throws Unsupported where the device takes no such code, with the reason.
HAL_API Module* load_module(Device& device, const anyhal_payload& payload);

// How a kernel is called: memory operands in order, then values. Their places in the parameter
// buffer are those of a C struct with eight bytes for each address.
struct KernelSignature {
  std::vector<uint32_t> access;  // ANYHAL_ACCESS_* of each memory operand
  std::vector<uint32_t> bytes;   // of each value: 1, 2, 4 or 8
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
};
HAL_API Plan* prepare_kernel(Module& module, const std::string& entry,
                             const KernelSignature& signature);

// What of the vendor stands behind an object; it lives with the object unless `owned`.
struct NativeHandle {
  uint64_t handle = 0;
  uint64_t offset = 0;  // of memory: bytes from there
  uint32_t type = 0;    // anyhal_native_type, or the backend's own number
  uint32_t owned = 0;   // 1: the caller ends it by the vendor's means
};
HAL_API NativeHandle native_handle(Device& device);
HAL_API NativeHandle native_handle(Queue& queue);
HAL_API NativeHandle native_handle(const Operand& memory);

// A named table of functions beyond the contract; throws Unsupported, with what there is.
HAL_API const void* find_extension(Device& device, const std::string& name, uint32_t since);

}  // namespace hal
