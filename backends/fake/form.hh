// Whether a description has the form that its op has on every device.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_FAKE_FORM_HH_
#define ANYHAL_BACKENDS_FAKE_FORM_HH_

#include "anyhal/sdk/table.hpp"

namespace hal::fake {

sdk::Answer form(const anyhal_op_desc& desc);

// Whether rows of the op can name the dtype.
bool has_dtype(uint32_t op, uint32_t dtype);

}  // namespace hal::fake

#endif  // ANYHAL_BACKENDS_FAKE_FORM_HH_
