// Handles: numbers that look like pointers, so that a wrong one is found and never followed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/api/edge.hpp"
#include "core/queue.hpp"

namespace hal {

enum class Kind : uint32_t { kDevice = 1, kBuffer, kQueue, kGraph };

// One line per live handle. What a call needs of a buffer is here, so that it touches no more.
struct alignas(64) Slot {
  std::atomic<uint64_t> handle{0};  // 0: free
  void* object = nullptr;           // Device, Buffer, ApiQueue or ApiGraph
  Device* device = nullptr;
  // Buffers:
  uint64_t bytes = 0;
  anyhal_ref base{0, 0};
  std::atomic<bool> frozen{false};
  uint32_t generation = 0;
};

// A handle is kind (4 bits), generation (28), number of the slot (32).
class Handles {
 public:
  static constexpr uint32_t kChunk = 1024;

  // The slot that a handle names, or null.
  Slot* find(const void* given, Kind kind) const {
    const auto handle = reinterpret_cast<uint64_t>(given);
    if (handle >> 60 != uint64_t(kind)) return nullptr;
    const uint32_t number = uint32_t(handle);
    if (number >= kChunk * kChunks) return nullptr;
    Slot* chunk = chunks_[number / kChunk].load(std::memory_order_acquire);
    if (!chunk) return nullptr;
    Slot* slot = chunk + number % kChunk;
    return slot->handle.load(std::memory_order_acquire) == handle ? slot : nullptr;
  }

  // Makes a handle; `fill` writes the slot before anybody can see it.
  template <class Fill>
  void* add(Kind kind, const Fill& fill) {
    std::lock_guard guard(mutex_);
    const uint32_t number = take_number();
    Slot& slot = chunks_[number / kChunk].load()[number % kChunk];
    fill(slot);
    slot.generation = (slot.generation + 1) & 0xfffffff;
    const uint64_t handle = uint64_t(kind) << 60 | uint64_t(slot.generation) << 32 | number;
    slot.handle.store(handle, std::memory_order_release);
    return reinterpret_cast<void*>(handle);
  }

  // Ends a handle; of two threads that release it, one gets the object, the other null.
  void* remove(const void* given, Kind kind);

 private:
  static constexpr uint32_t kChunks = 1 << 16;
  uint32_t take_number();

  std::mutex mutex_;
  std::atomic<Slot*> chunks_[kChunks] = {};
  uint32_t used_ = 0;
  std::vector<uint32_t> free_;
};

Handles& handles();

// The slot of a handle, or the error that says which argument is wrong and how.
Slot& slot_of(const void* given, Kind kind, const char* argument);

}  // namespace hal
