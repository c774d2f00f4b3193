// fill: one value, broadcast.
// SPDX-License-Identifier: Apache-2.0
#include "../rows.h"

namespace hal::pjrt {

Value lower_fill(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const anyhal_tensor_desc& out = sdk::output(desc);
  return text.broadcast(in[0], Dims(out.dims, out.dims + out.rank), {});
}

}  // namespace hal::pjrt
