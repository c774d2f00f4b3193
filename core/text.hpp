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

// Makes a stranger's text one that can be shown: it ends, it is UTF-8, and it is one line.
template <size_t n>
void clean_text(char (&text)[n]) {
  text[n - 1] = 0;
  const size_t size = std::strlen(text), end = whole_characters(text, size, size);
  text[end] = 0;
  for (size_t at = 0; at < end;) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t more = byte < 0x80                  ? 0
                        : byte < 0xc2 || byte > 0xf4 ? n
                        : byte < 0xe0                ? 1
                        : byte < 0xf0                ? 2
                                                     : 3;
    size_t good = 0;
    while (good < more && at + good + 1 < end && (text[at + good + 1] & 0xc0) == 0x80) ++good;
    if (good == more && byte >= 0x20 && byte != 0x7f) {
      at += 1 + more;
    } else {
      text[at++] = '?';
    }
  }
}

}  // namespace hal
