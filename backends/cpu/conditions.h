// What each op's description must look like before a kernel may be prepared for it.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_CONDITIONS_H_
#define BACKENDS_CPU_CONDITIONS_H_

#include "anyhal/sdk/table.hpp"

namespace hal::cpu {

// The rows of this backend, in registry order. Kernels are chosen by instruction set at prepare.
extern const sdk::OpTable kOps;

}  // namespace hal::cpu

#endif  // BACKENDS_CPU_CONDITIONS_H_
