// SHA-256 (FIPS 180-4), so that a library can be told from the one that was registered.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace hal {

// Fed in pieces of any size. Visible: the Python binding hashes with it too.
class __attribute__((visibility("default"))) Sha256 {
 public:
  void add(const void* data, uint64_t bytes);
  std::array<uint8_t, 32> finish();

 private:
  void compress(const uint8_t* blocks, uint64_t count);

  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t pending_[64];
  uint64_t total_ = 0;
};

// In lower-case hex.
__attribute__((visibility("default"))) std::string hex_of(const std::array<uint8_t, 32>& digest);

}  // namespace hal
