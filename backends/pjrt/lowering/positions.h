// Positions along an axis that only the run knows.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_LOWERING_POSITIONS_H_
#define ANYHAL_BACKENDS_PJRT_LOWERING_POSITIONS_H_

#include <numeric>

#include "../rows.h"

namespace hal::pjrt {

struct Inside {
  Value each;  // for each position
  Value all;   // 0-d
};

// Which of them lie in 0..bound-1; the run fails unless all do.
inline Inside check_positions(Text& text, const Value& positions, int64_t bound) {
  const Value low = text.compare("GE", positions, text.number_like(0, positions));
  const Value high =
      text.compare("LT", positions, text.number_like(static_cast<double>(bound), positions));
  const Value each = text.binary("and", low, high);
  std::vector<int64_t> axes(positions.dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  const Value all = axes.empty()
                        ? each
                        : text.reduce("and", each, text.constant("true", ANYHAL_DTYPE_BOOL), axes);
  text.require(all);
  return {each, all};
}

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_LOWERING_POSITIONS_H_
