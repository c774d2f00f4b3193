// Interned operand descriptions: one pointer says dtype, shape, strides and device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/error.hpp"

namespace hal {

struct Device;
inline constexpr int kMaxRank = 8;

// Never changed after interning. Counted: an entry of the plan cache or an array keeps it alive, so
// an address can never come to mean another description while a key still holds it.
struct alignas(64) Spec {
  Device* device = nullptr;
  uint32_t dtype = 0;
  int32_t rank = 0;
  int64_t span_bytes = 0;  // bytes from the first to the last element, inclusive; 0 when empty
  int64_t size = 0;        // elements
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};  // in blocks
  bool dense = false;
  mutable std::atomic<int64_t> refs{0};

  void retain() const { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() const { refs.fetch_sub(1, std::memory_order_release); }
};

struct Block {
  int64_t elements;
  int64_t bytes;
};
// Geometry of a dtype; throws InvalidArgument for an unknown number.
HAL_API Block block_of(uint32_t dtype);
HAL_API const char* dtype_short(uint32_t dtype);
HAL_API std::string describe(const Spec& spec);

// The one Spec with these fields, retained once for the caller. Strides may be null (dense).
HAL_API const Spec* intern_spec(Device* device, uint32_t dtype, int32_t rank, const int64_t* dims,
                                const int64_t* strides);
HAL_API size_t spec_count();
void specs_before_fork();
void specs_after_fork();

}  // namespace hal
