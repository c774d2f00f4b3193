// matmul: dot_general; halves are multiplied and summed in f32, bytes in i32.
// SPDX-License-Identifier: Apache-2.0
#include "../rows.h"

namespace hal::pjrt {

Value lower_matmul(Text& text, const anyhal_op_desc& desc, const std::vector<Value>& in) {
  const anyhal_tensor_desc& out = sdk::output(desc);
  const uint32_t given = in[0].dtype;
  const uint32_t compute = bytes_of(given) == 1 ? uint32_t{ANYHAL_DTYPE_I32} : wide_of(given);
  const Dims dims(out.dims, out.dims + out.rank);
  if (in[0].dims.back() == 0) return text.number(0, out.dtype, dims);
  const size_t lead = in[0].dims.size() - 2;
  Value a = text.convert(in[0], compute), b = text.convert(in[1], compute);
  return text.convert(text.dot(a, b, lead, compute), out.dtype);
}

}  // namespace hal::pjrt
