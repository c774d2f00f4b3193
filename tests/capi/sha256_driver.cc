// Prints the core's hash of each file named, fed in pieces of odd sizes. Built with the core's
// source, which exports none of it.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/sha256.hpp"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    hal::Sha256 hash;
    for (size_t at = 0, piece = 1; at < bytes.size(); at += piece, piece = piece * 3 % 1009) {
      if (piece > bytes.size() - at) piece = bytes.size() - at;
      hash.add(bytes.data() + at, piece);
    }
    std::printf("%s\n", hal::hex_of(hash.finish()).c_str());
  }
}
