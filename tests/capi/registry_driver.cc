// Parses each file named as a registry; prints "ok COUNT" or the refusal, one line a file.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <fstream>
#include <iterator>

#include "core/api/registry.hpp"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    try {
      const auto found = hal::parse_registry(text, "FILE");
      std::printf("ok %zu", found.size());
      for (const auto& b : found) {
        std::printf("|%s|%d|%s", b.name.c_str(), b.rank, b.path.c_str());
        for (const auto& [key, value] : b.settings)
          std::printf("|%s=%s", key.c_str(), value.c_str());
        for (const auto& c : b.quarantined)
          std::printf("|!%s %s %s: %s", c.arch.c_str(), c.op.c_str(), c.dtype.c_str(),
                      c.why.c_str());
      }
      std::printf("\n");
    } catch (const hal::Error& e) {
      std::printf("%s %d %s\n", e.status == ANYHAL_STATUS_INVALID_ARGUMENT ? "refused" : "?",
                  e.reason, e.what());
    }
  }
}
