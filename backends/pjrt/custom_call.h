// A custom call of our own: rows of f32 times weights that stay packed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_CUSTOM_CALL_H_
#define ANYHAL_BACKENDS_PJRT_CUSTOM_CALL_H_

#include "ffi_api.h"
#include "plugin.h"
#include "text.h"

namespace hal::pjrt {

// From this many rows of x on, weights that are decoded once are faster.
constexpr int64_t kCustomRowsMax = 16;

// The weights of a product in the bytes of their block: [columns, inner] from `first` on.
struct PackedWeights {
  uint32_t dtype;
  int64_t columns, inner;
  int64_t first, row_bytes;
};

// Whether the plugin runs the custom call and gets it right. Found out once per plugin image, by
// registering the handler there and running a small program; a "no" is said in one line.
bool has_block_product(const Plugin& plugin, const anyhal_services* services);

// [rows, columns] = x[rows, inner] times the transposed weights; `bytes` is their block, flat.
Value block_product(Text& text, const Value& x, const Value& bytes, const PackedWeights& weights);

// What the plugin calls. Refuses, before it reads anything, buffers and numbers that do not fit
// together; any thread may be in it, any number of times.
ffi::Error* run_block_product(ffi::Frame* frame);

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_CUSTOM_CALL_H_
