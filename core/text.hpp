// Texts of fixed size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace hal {

// Bytes of `text` that fit into `room`, without a UTF-8 character's first part at the end.
inline size_t whole_characters(const char* text, size_t size, size_t room) {
  size_t end = std::min(size, room);
  // The last character's first byte is among the last four; before it no more is looked at.
  for (size_t back = 1; back <= std::min<size_t>(4, end); ++back) {
    const auto byte = static_cast<unsigned char>(text[end - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t wants = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return wants > back ? end - back : end;
  }
  return end;
}

// Copies what fits, always terminated.
template <size_t n>
void copy_text(char (&to)[n], const char* from) {
  const size_t size = whole_characters(from, std::strlen(from), n - 1);
  std::memcpy(to, from, size);
  to[size] = 0;
}

}  // namespace hal
