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
  static constexpr uint64_t kFree = 1;  // no handle is 1; where none ever was, it is 0
  std::atomic<uint64_t> handle;
  void* object;  // ApiDevice, Buffer, ApiQueue or ApiGraph
  Device* device;
  // Buffers:
  uint64_t bytes;
  anyhal_ref base;
  std::atomic<uint64_t> flags;  // as in the key's words
  uint64_t generation;
};

// A handle is kind (4 bits), generation (38), number of the slot (22). One table per kind, so that
// a handle of another kind is simply not in it. The table is address space that is filled as
// needed.
class Handles {
 public:
  explicit Handles(Kind kind);

  // The slot where a handle would be; it is there when `holds` says so.
  Slot* place(const void* given) const { return slots_ + reinterpret_cast<uint64_t>(given) % kMax; }
  static bool holds(const Slot* slot, const void* given) {
    return slot->handle.load(std::memory_order_acquire) == reinterpret_cast<uint64_t>(given);
  }
  // The slot that a handle names, or null.
  Slot* find(const void* given) const {
    Slot* slot = place(given);
    return holds(slot, given) ? slot : nullptr;
  }

  // Makes a handle; `fill` writes the slot before anybody can see it.
  template <class Fill>
  void* add(const Fill& fill) {
    std::lock_guard guard(mutex_);
    const uint32_t number = take_number();
    Slot& slot = slots_[number];
    fill(slot);
    const uint64_t generation = ++slot.generation % (uint64_t(1) << 38);
    const uint64_t handle = uint64_t(kind_) << 60 | generation << 22 | number;
    slot.handle.store(handle, std::memory_order_release);
    return reinterpret_cast<void*>(handle);
  }

  // Ends a handle; of two threads that release it, one gets the object, the other null.
  void* remove(const void* given);

 private:
  static constexpr uint32_t kMax = 1 << 22;
  uint32_t take_number();

  Slot* slots_;
  const Kind kind_;
  std::mutex mutex_;
  uint32_t used_ = 1;  // the first slot stays free: NULL would be there
  std::vector<uint32_t> free_;
};

extern Handles* const g_handles[5];  // by kind; outlive static destructors
inline Handles& handles(Kind kind) { return *g_handles[uint32_t(kind)]; }

// The slot of a handle, or the error that says which argument is wrong and how.
Slot& slot_of(const void* given, Kind kind, const char* argument);

}  // namespace hal
