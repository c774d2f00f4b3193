// Records that cross the boundary in arrays or by copy, where one side's are longer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "anyhal/backend.h"

namespace hal {

// The part of a backend's record that this core knows; the rest is zero.
template <class T>
T known_part(const void* theirs, uint32_t their_size) {
  T out{};
  std::memcpy(&out, theirs, std::min<size_t>(their_size, sizeof(T)));
  out.size = std::min<uint32_t>(out.size, sizeof(T));
  return out;
}

// The records as an array of a backend that steps from one to the next by its own size of them.
// The same array when the sizes agree; else a copy in `room`, which must live as long.
template <class T>
const T* laid_out(const std::vector<T>& records, uint32_t stride, std::vector<uint64_t>& room) {
  if (stride == sizeof(T) || records.empty()) return records.data();
  room.assign((size_t(stride) * records.size() + 7) / 8, 0);
  auto* to = reinterpret_cast<char*>(room.data());
  const uint32_t common = std::min<uint32_t>(stride, sizeof(T));
  for (const T& record : records) {
    std::memcpy(to, &record, common);
    std::memcpy(to, &common, sizeof(common));  // its size: what both sides know of it
    to += stride;
  }
  return reinterpret_cast<const T*>(room.data());
}

}  // namespace hal
