// The extension "anyhal.foreign": addresses and streams as every library on the driver knows them.
// SPDX-License-Identifier: Apache-2.0
#include "anyhal/sdk/foreign.h"

#include <cstring>

#include "device.h"

namespace hal::cuda {
namespace {

constexpr int32_t kDlpackCuda = 2;

anyhal_status place(anyhal_device* handle, int32_t* out_type, int32_t* out_id, anyhal_error*) {
  *out_type = kDlpackCuda;
  *out_id = reinterpret_cast<Device*>(handle)->ordinal;
  return ANYHAL_STATUS_OK;
}

anyhal_status address(anyhal_device*, anyhal_ref ref, uint64_t* out_address, anyhal_error*) {
  *out_address = address_of(ref);
  return ANYHAL_STATUS_OK;
}

anyhal_status stream(anyhal_queue* handle, uint64_t* out_stream, anyhal_error*) {
  *out_stream = reinterpret_cast<uint64_t>(reinterpret_cast<Queue*>(handle)->stream);
  return ANYHAL_STATUS_OK;
}

// 1 and 2 are the driver's own names of its legacy and per-thread default streams.
anyhal_status stream_wait(anyhal_queue* handle, uint64_t value, uint64_t stream,
                          anyhal_error* error) {
  auto& queue = *reinterpret_cast<Queue*>(handle);
  return guarded(error, [&] {
    const auto live = require_live(queue);
    if (value > queue.signalled)
      throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                  "value " + std::to_string(value) + " was not signalled; signal it first");
    Current current(*queue.device);
    for (uint32_t i = 0; i < queue.marks.count(); ++i) {
      if (queue.marks.at(i).value < value) continue;
      HAL_CUDA(*queue.device, cuStreamWaitEvent, reinterpret_cast<CUstream>(stream),
               queue.marks.at(i).event, 0);
      return;
    }
  });
}

constexpr anyhal_foreign kTable = {sizeof kTable, ANYHAL_FOREIGN_VERSION, place, address, stream,
                                   stream_wait};

}  // namespace

namespace slots {

anyhal_status extension(anyhal_self*, const char* name, uint32_t since, const void** out_table,
                        anyhal_error* error) {
  *out_table = nullptr;
  if (std::strcmp(name, ANYHAL_FOREIGN_NAME) != 0 || since > ANYHAL_FOREIGN_VERSION)
    return sdk::fail(error, ANYHAL_STATUS_NOT_FOUND, 0,
                     "there is no extension %s of version %u; ask for %s, version %u", name, since,
                     ANYHAL_FOREIGN_NAME, ANYHAL_FOREIGN_VERSION);
  *out_table = &kTable;
  return ANYHAL_STATUS_OK;
}

}  // namespace slots
}  // namespace hal::cuda
