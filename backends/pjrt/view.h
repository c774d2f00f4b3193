// Strided views of a block: read out of its bytes, and written back into them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_VIEW_H_
#define ANYHAL_BACKENDS_PJRT_VIEW_H_

#include "anyhal/backend.h"
#include "text.h"

namespace hal::pjrt {

// Where the elements of an operand lie in its block; formats with shared scales count as bytes,
// with one more dim for those of a block.
struct Place {
  uint32_t dtype = 0;  // as stored: bool is u8
  Dims dims, strides;  // elements of `dtype`
  int64_t first = 0;   // element of the block
  int64_t total = 0;   // elements of the block
  bool whole() const;  // dense, and nothing else is in the block
};

Place place_of(const anyhal_tensor_desc& desc);
// Whether the block divides into elements of the dtype, as a program needs it to.
bool fits_block(const anyhal_tensor_desc& desc);

// The operand's values; bool becomes i1. `block` is flat, of place.dtype.
Value read_view(Text& text, const anyhal_tensor_desc& desc, const Value& block);
// The block after `value` was stored in the operand's place. `block` is not used when whole.
// Where something else reads `block` too, in_place must be false: XLA fuses updates of a part with
// such readers, which then see some of the new values.
Value write_view(Text& text, const anyhal_tensor_desc& desc, const Value& block, const Value& value,
                 bool in_place = true);
// Dims and strides, to tell views of one block apart.
std::string view_key(const anyhal_tensor_desc& desc);
// A flat block under another dtype of the same bytes.
Value as_dtype(Text& text, const Value& block, uint32_t dtype);

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_VIEW_H_
