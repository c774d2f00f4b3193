// Ranges of imported memory.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/imports.hpp"

#include <string>

#include "core/api/edge.hpp"

namespace hal {

bool Imports::overlap_locked(const Device& device, uint64_t begin, uint64_t bytes) const {
  if (bytes == 0) return false;
  const auto next = ends_.lower_bound({&device, begin});
  if (next != ends_.end() && next->first.first == &device && next->first.second < begin + bytes)
    return true;
  if (next == ends_.begin()) return false;
  const auto before = std::prev(next);
  return before->first.first == &device && before->second > begin;
}

bool Imports::overlap(const Device& device, uint64_t begin, uint64_t bytes) {
  std::lock_guard guard(mutex_);
  return overlap_locked(device, begin, bytes);
}

void Imports::add(const Device& device, uint64_t begin, uint64_t bytes) {
  const std::string what = "importing " + std::to_string(bytes) + " bytes on " + device.name + ": ";
  if (begin + bytes < begin) invalid(what + "they leave the address space", HAL_REASON_BOUNDS);
  std::lock_guard guard(mutex_);
  if (overlap_locked(device, begin, bytes))
    invalid(what +
                "some are in a buffer that was imported before; use that buffer with an offset, or "
                "free it and wait until it was released",
            HAL_REASON_ALIASING);
  if (bytes) ends_.emplace(std::pair(&device, begin), begin + bytes);
}

void Imports::remove(const Device& device, uint64_t begin, uint64_t bytes) {
  if (bytes == 0) return;
  std::lock_guard guard(mutex_);
  ends_.erase({&device, begin});
}

Imports& imports() {
  static auto* i = new Imports;
  return *i;
}

}  // namespace hal
