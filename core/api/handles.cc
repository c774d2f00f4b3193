// The table of handles, errors at the edge, and the names of statuses and reasons.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/handles.hpp"

#include <sys/mman.h>

#include "core/text.hpp"

namespace hal {

hal_status answer(hal_error* error, int32_t status, int32_t reason, const char* text) {
  if (error) {
    error->status = status;
    error->reason = reason;
    copy_text(error->text, text);
  }
  return hal_status(status);
}

constinit Slot Handles::none_[2] = {Slot(Slot::kFree), Slot(0)};
constinit AllHandles g_handles;

void Handles::reserve() {
  // Pages come with their first use; no memory is promised before. Where address space is short,
  // a smaller table serves. Devices are few.
  void* space = MAP_FAILED;
  uint32_t room = kind_ == Kind::kDevice ? kDevices : kMax;
  for (; space == MAP_FAILED && room >= kLeast; room /= 4)
    space = mmap(nullptr, room * sizeof(Slot), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED)
    throw Error(ANYHAL_STATUS_OUT_OF_MEMORY,
                "there is no address space for the table of handles; raise the limit (ulimit -v)");
  room *= 4;
  auto* const slots = static_cast<Slot*>(space);
  slots[0].handle.store(Slot::kFree);
  slots_.store(slots, std::memory_order_release);
  mask_.store(room - 1, std::memory_order_release);
}

uint32_t Handles::take_number() {
  if (!free_.empty()) {
    const uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  if (mask_.load(std::memory_order_relaxed) == 1) reserve();
  if (used_ > mask_.load(std::memory_order_relaxed))
    throw Error(ANYHAL_STATUS_OUT_OF_MEMORY, "too many handles are alive; release some");
  if (free_.capacity() <= used_) free_.reserve(2 * used_ + 1024);  // releasing never allocates
  return used_++;
}

void* Handles::end(const void* given) {
  std::lock_guard guard(mutex_);
  Slot* slot = find(given);
  if (!slot) return nullptr;
  slot->handle.store(Slot::kFree, std::memory_order_seq_cst);
  return slot->object;
}

void Handles::recycle(const void* given) {
  std::lock_guard guard(mutex_);
  free_.push_back(uint32_t(reinterpret_cast<uint64_t>(given) % kMax));
}

Slot& slot_of(const void* given, Kind kind, const char* argument) {
  static const char* const kWords[] = {"",      "device", "buffer", "queue",
                                       "graph", "module", "kernel"};
  if (Slot* slot = handles(kind).find(given)) return *slot;
  const uint64_t handle = reinterpret_cast<uint64_t>(given);
  const char* wanted = kWords[uint32_t(kind)];
  std::string why = "is no handle at all";
  if (!handle) {
    why = "is NULL";
  } else if (handle >> 60 == uint64_t(kind)) {
    why = std::string("names a ") + wanted + " that was released";
  } else if (handle >> 60 <= uint64_t(Kind::kKernel) && handle >> 60) {
    why = std::string("is a ") + kWords[handle >> 60];
  }
  invalid(std::string("the argument ") + argument + " " + why + "; pass a live " + wanted,
          HAL_REASON_HANDLE);
}

}  // namespace hal

extern "C" {

const char* hal_status_name(int32_t status) { return hal::status_name(status); }

const char* hal_reason_name(int32_t reason) {
  static const char* const kNames[] = {"needs_policy", "handle",      "bounds", "aliasing",
                                       "registry",     "untrusted",   "hash",   "state",
                                       "environment",  "needs_python"};
  if (reason < HAL_REASON_NEEDS_POLICY) return hal::reason_name(reason);
  return reason <= HAL_REASON_NEEDS_PYTHON ? kNames[reason - HAL_REASON_NEEDS_POLICY]
                                           : hal::reason_name(-1);
}

}  // extern "C"
