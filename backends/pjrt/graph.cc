// Regions: a recorded list of calls as one program.
// SPDX-License-Identifier: Apache-2.0
#include "objects.h"

namespace hal::pjrt::slots {

anyhal_status graph_prepare(anyhal_device*, const anyhal_graph_desc*, anyhal_plan**,
                            const anyhal_prepared**, uint32_t*, anyhal_error* error) {
  return sdk::fail(error, ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_CAPTURE, "not yet");
}

}  // namespace hal::pjrt::slots
