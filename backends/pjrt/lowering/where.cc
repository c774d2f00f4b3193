// where: select.
// SPDX-License-Identifier: Apache-2.0
#include "../rows.h"

namespace hal::pjrt {

Value lower_where(Text& text, const anyhal_op_desc&, const std::vector<Value>& in) {
  return text.select(in[0], in[1], in[2]);
}

}  // namespace hal::pjrt
