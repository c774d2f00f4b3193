// Opening what others must not have changed: once, checked on the way, and copied before it runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace hal {

// An open descriptor; closed at the end.
class HAL_API Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& from) noexcept : number_(std::exchange(from.number_, -1)) {}
  Descriptor& operator=(Descriptor&& from) noexcept {
    std::swap(number_, from.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }
  int keep() { return std::exchange(number_, -1); }  // never closed

 private:
  int number_;
};

// Why a file was not opened, as a part of a sentence.
struct NotOpened {
  enum Why {
    kMissing,
    kUntrusted,
    kChanged,   // it is not what was hashed before
    kNoMemory,  // for a private copy
    kNoRoom,    // the copy is larger than this process may write
  } why;
  std::string text;
};

// Opens a regular file that only root and this user can write; throws NotOpened. With `every_step`
// the same goes for each folder on the way, also those in which a link lies
// (runtime/file_rights.py has the same rule). Never waits: a pipe or device is not opened at all.
HAL_API Descriptor open_trusted(const std::string& path, bool every_step);

// A file's bytes in memory that nobody can change any more, and their hash.
struct Sealed {
  Descriptor memory;
  std::string sha256;
  // Names exactly these bytes while `memory` is open.
  std::string path() const { return "/proc/self/fd/" + std::to_string(memory.number()); }
};
// Reads from the descriptor's beginning. Throws NotOpened.
HAL_API Sealed seal(const Descriptor& file, const std::string& name);

// Opens those libraries beside `library` that its sealed copy needs, since the loader looks for
// them beside the copy ($ORIGIN); it takes what is open already by its name.
HAL_API void open_neighbours(const Sealed& copy, const std::string& library);

}  // namespace hal
