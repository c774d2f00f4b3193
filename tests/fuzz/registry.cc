// Any bytes as a registry file: parsed or refused in a sentence, and what is parsed keeps the
// rules. SPDX-License-Identifier: Apache-2.0
#include "core/api/registry.hpp"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    for (const hal::Registered& b : hal::parse_registry(text, "FILE"))
      if (b.name.empty() || b.path.empty() || b.path[0] != '/' || b.sha256.size() != 64) abort();
  } catch (const hal::Error& e) {
    if (e.status != ANYHAL_STATUS_INVALID_ARGUMENT || !*e.what()) abort();
  }
  return 0;
}
