// where: cond ? a : b, element by element; broadcasts are strides of 0.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

namespace hal::cpu_ref {
namespace {

template <class Bits>
void select(const Call& call) {
  const sdk::boolean* cond = call.view<const sdk::boolean>(0).data();
  const Bits* a = call.view<const Bits>(1).data();
  const Bits* b = call.view<const Bits>(2).data();
  Bits* out = call.view<Bits>(3).data();
  const Desc& desc = call.desc();
  sdk::Rows<4> rows({&sdk::operand(desc, 0), &sdk::operand(desc, 1), &sdk::operand(desc, 2),
                     &sdk::operand(desc, 3)});
  rows.each([&](const int64_t (&at)[4]) {
    const int64_t (&step)[4] = rows.row_strides;
    for (int64_t i = 0; i < rows.row_count; ++i) {
      Bits x = a[at[1] + i * step[1]], y = b[at[2] + i * step[2]];
      out[at[3] + i * step[3]] = cond[at[0] + i * step[0]] ? x : y;
    }
  });
}

}  // namespace

void where(const Call& call) {
  switch (sdk::dtype_facts(sdk::operand(call.desc(), 1).dtype).block_bytes) {
    case 1:
      return select<uint8_t>(call);
    case 2:
      return select<uint16_t>(call);
    case 4:
      return select<uint32_t>(call);
    case 8:
      return select<uint64_t>(call);
  }
}

}  // namespace hal::cpu_ref
