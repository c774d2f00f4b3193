// Handles: numbers that look like pointers, so that a wrong one is found and never followed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/api/edge.hpp"
#include "core/queue.hpp"

namespace hal {

enum class Kind : uint32_t { kDevice = 1, kBuffer, kQueue, kGraph, kModule, kKernel };

// A field that may be read while its slot goes to another handle: what was read counts only where
// the handle is known to be there still.
template <class T>
struct Field {
  std::atomic<T> value{};
  operator T() const { return value.load(std::memory_order_relaxed); }
  void operator=(T to) { value.store(to, std::memory_order_relaxed); }
};

// One line per live handle. What a call needs of a buffer is here, so that it touches no more.
struct alignas(64) Slot {
  static constexpr uint64_t kFree = 1;  // no handle is 1; where none ever was, it is 0
  constexpr explicit Slot(uint64_t number) : handle(number) {}
  std::atomic<uint64_t> handle;
  Field<void*> object;  // ApiDevice, Buffer, ApiQueue, ApiGraph, Module or Plan
  Field<Device*> device;
  // Buffers:
  Field<uint64_t> bytes;
  Field<uint64_t> memory, offset;  // the ref of the first byte
  Field<uint64_t> flags;           // as in the key's words
  uint64_t generation = 0;

  template <class T>
  T* as() const {
    return static_cast<T*>(static_cast<void*>(object));
  }
};

// Keeps what a handle names while a call uses it, whoever releases the handle meanwhile.
template <class T>
class Held {
 public:
  Held() = default;
  explicit Held(T* adopted) : object_(adopted) {}  // takes over one reference
  Held(Held&& from) noexcept : object_(std::exchange(from.object_, nullptr)) {}
  Held& operator=(Held&& from) noexcept {
    std::swap(object_, from.object_);
    return *this;
  }
  ~Held() {
    if (object_) release(object_);
  }
  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_; }

 private:
  T* object_ = nullptr;
};

// A handle is kind (4 bits), generation (38), number of the slot (22). One table per kind, so that
// a handle of another kind is simply not in it. The table is address space that the first handle
// reserves, as much as there is, and that is filled as needed.
class Handles {
 public:
  constexpr explicit Handles(Kind kind) : slots_(none_), kind_(kind) {}

  // The slot where a handle would be; it is there when `holds` says so.
  Slot* place(const void* given) const {
    // In this order: the mask never belongs to a larger table than the slots.
    const uint64_t mask = mask_.load(std::memory_order_acquire);
    return slots_.load(std::memory_order_acquire) + (reinterpret_cast<uint64_t>(given) & mask);
  }
  static bool holds(const Slot* slot, const void* given) {
    return slot->handle.load(std::memory_order_seq_cst) == reinterpret_cast<uint64_t>(given);
  }
  // The slot that a handle names, or null. Another thread may end the handle at any time: to go on
  // with what it names, `hold` it, or look again with a lock that its end waits for.
  Slot* find(const void* given) const {
    Slot* slot = place(given);
    return holds(slot, given) ? slot : nullptr;
  }

  // Makes a handle; `fill` writes the slot before anybody can see it.
  template <class Fill>
  void* add(const Fill& fill) {
    std::lock_guard guard(mutex_);
    const uint32_t number = take_number();
    Slot& slot = slots_.load(std::memory_order_relaxed)[number];
    fill(slot);
    const uint64_t generation = ++slot.generation % (uint64_t(1) << 38);
    const uint64_t handle = uint64_t(kind_) << 60 | generation << 22 | number;
    slot.handle.store(handle, std::memory_order_release);
    return reinterpret_cast<void*>(handle);
  }

  // What a live handle names, kept for the caller, else nothing. `look` sees the slot.
  template <class T, class Look>
  Held<T> hold(const void* given, const Look& look) {
    std::lock_guard guard(mutex_);
    Slot* slot = find(given);
    if (!slot) return {};
    auto* object = slot->as<T>();
    object->retain();
    look(*slot);
    return Held<T>(object);
  }
  template <class T>
  Held<T> hold(const void* given) {
    return hold<T>(given, [](Slot&) {});
  }

  // Ends a handle; of two threads that release it, one gets the object, the other null. The slot
  // goes to no other handle before `recycle`.
  void* end(const void* given);
  void recycle(const void* given);
  // Over a fork the table is whole.
  std::mutex& fork_lock() { return mutex_; }
  void* remove(const void* given) {
    void* object = end(given);
    if (object) recycle(given);
    return object;
  }

 private:
  static constexpr uint32_t kMax = 1 << 22;
  static constexpr uint32_t kLeast = 1 << 12, kDevices = 1 << 16;
  static Slot none_[2];  // before the first handle
  uint32_t take_number();
  void reserve();

  std::atomic<Slot*> slots_;
  std::atomic<uint64_t> mask_{1};
  const Kind kind_;
  alignas(64) std::mutex mutex_;  // apart from what calls read
  uint32_t used_ = 1;             // the first slot stays free: NULL would be there
  std::vector<uint32_t> free_;
};

// By kind. Made before any code runs, and never destroyed, since threads may outlive `main`.
union AllHandles {
  constexpr AllHandles()
      : of{Handles{Kind(0)},      Handles{Kind::kDevice}, Handles{Kind::kBuffer},
           Handles{Kind::kQueue}, Handles{Kind::kGraph},  Handles{Kind::kModule},
           Handles{Kind::kKernel}} {}
  ~AllHandles() {}
  Handles of[7];
};
extern constinit AllHandles g_handles;
inline Handles& handles(Kind kind) { return g_handles.of[uint32_t(kind)]; }

// The slot of a handle, or the error that says which argument is wrong and how. Its fields may be
// another handle's a moment later: for devices, which have no end, and for messages.
Slot& slot_of(const void* given, Kind kind, const char* argument);

// What a handle names, kept while the call lasts, or that error.
template <class T, class Look>
Held<T> hold_of(const void* given, Kind kind, const char* argument, const Look& look) {
  Held<T> held = handles(kind).hold<T>(given, look);
  // A handle that ended never comes back, so this throws.
  if (!held) slot_of(given, kind, argument);
  return held;
}
template <class T>
Held<T> hold_of(const void* given, Kind kind, const char* argument) {
  return hold_of<T>(given, kind, argument, [](Slot&) {});
}

}  // namespace hal
