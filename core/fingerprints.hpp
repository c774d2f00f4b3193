// Whether a backend's records lie as this core's do.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/instance.hpp"

namespace hal {

// Compares the layout that the reply states, field by field as far as both sides know it, and keeps
// the sizes of the backend's records. Throws Error of the stage "fingerprint".
void compare_fingerprints(Instance& in);

}  // namespace hal
