// A recording handed whole to the backend: compiled or recorded there, one call to launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/dispatch.hpp"

namespace hal {

// One recorded call.
struct Recorded {
  Plan* plan;
  const Operand* operands;
};

// How a backend took a recording. Without a plan it did not, and `why` says so; the core then
// replays its own list. The workspace that the plan wants is the owner's to give with `call`.
struct Region {
  Plan* plan = nullptr;
  const char* form = "replayed";  // "compiled", "recorded"
  std::string why;
  std::vector<Operand> bindings;  // what is read only, then what is written
  std::vector<anyhal_ref> refs;
  anyhal_call call{};
};

// Tries compiling, then recording. `owned`, sorted: buffers that nothing but the recording knows,
// so that no one reads them after a launch. Throws what is no refusal.
Region prepare_region(Device& device, const std::vector<Recorded>& calls,
                      const std::vector<const Buffer*>& owned);

}  // namespace hal
