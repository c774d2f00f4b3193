// Prints the core's hash of each file named. Built with the core's source, which exports none of
// it. SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "core/api/sha256.hpp"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::printf("%s\n", hal::sha256_of_file(argv[i]).c_str());
}
