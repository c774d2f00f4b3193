// copy: the view that was read is the view that is written.
// SPDX-License-Identifier: Apache-2.0
#include "../rows.h"

namespace hal::pjrt {

Value lower_copy(Text&, const anyhal_op_desc&, const std::vector<Value>& in) { return in[0]; }

}  // namespace hal::pjrt
