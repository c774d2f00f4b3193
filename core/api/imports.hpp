// Which memory of the application's each device has as a buffer now.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/device.hpp"

namespace hal {

// One buffer for a byte: aliasing, order and freezing are known by buffer, and a warm call compares
// no addresses.
class Imports {
 public:
  bool overlap(const Device& device, uint64_t begin, uint64_t bytes);
  // Throws InvalidArgument where a byte is in another one.
  void add(const Device& device, uint64_t begin, uint64_t bytes);
  void remove(const Device& device, uint64_t begin, uint64_t bytes);
  std::mutex& fork_lock() { return mutex_; }

 private:
  bool overlap_locked(const Device& device, uint64_t begin, uint64_t bytes) const;
  std::mutex mutex_;
  std::map<std::pair<const Device*, uint64_t>, uint64_t> ends_;  // by beginning
};
Imports& imports();

}  // namespace hal
