// What a fuzzer's bytes are read with: numbers, choices and texts, until nothing is left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace fuzz {

class Source {
 public:
  Source(const uint8_t* data, size_t size) : at_(data), left_(size) {}

  // The next bytes as a T; zeros behind the end.
  template <class T>
  T take() {
    T value{};
    const size_t n = left_ < sizeof(T) ? left_ : sizeof(T);
    std::memcpy(static_cast<void*>(&value), at_, n);
    at_ += n, left_ -= n;
    return value;
  }
  // One time in four the bytes' own number, else `usual`: a record that is wrong everywhere is
  // refused at its first field.
  template <class T>
  T mostly(T usual) {
    return take<uint8_t>() % 4 == 0 ? take<T>() : usual;
  }
  bool rarely() { return take<uint8_t>() % 8 == 0; }
  std::string text(size_t most) {
    const size_t wanted = take<uint8_t>() % (most + 1), n = left_ < wanted ? left_ : wanted;
    std::string out(reinterpret_cast<const char*>(at_), n);
    at_ += n, left_ -= n;
    return out;
  }
  // Fills a fixed text, sometimes to its very end without a NUL.
  template <size_t N>
  void fill(char (&out)[N]) {
    for (char& c : out) c = take<char>();
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

}  // namespace fuzz
