// The extension "anyhal.foreign": the fake backend as a device whose memory other libraries know.
// SPDX-License-Identifier: Apache-2.0
//
// Its addresses are the host's. A stream is one of its own queues, which then really waits, or any
// other number, which is counted and remembered.
#include "anyhal/sdk/foreign.h"

#include <algorithm>

#include "device.hh"

namespace hal::fake {
namespace {

anyhal_status place(anyhal_device* handle, int32_t* out_type, int32_t* out_id,
                    anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 25, error, [&](auto&) {
    *out_type = device.instance->script.foreign;
    *out_id = static_cast<int32_t>(device.number);
  });
}

anyhal_status address(anyhal_device* handle, anyhal_ref ref, uint64_t* out_address,
                      anyhal_error* error) {
  Device& device = *reinterpret_cast<Device*>(handle);
  return guarded(*device.instance, &device, 25, error, [&](auto&) {
    *out_address = reinterpret_cast<uint64_t>(bytes_of(resolve(device, ref, 1, "address")));
  });
}

anyhal_status stream(anyhal_queue* handle, uint64_t* out_stream, anyhal_error*) {
  *out_stream = reinterpret_cast<uint64_t>(handle);
  return ANYHAL_STATUS_OK;
}

anyhal_status stream_wait(anyhal_queue* handle, uint64_t value, uint64_t stream,
                          anyhal_error* error) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  Instance& instance = *queue.device->instance;
  return guarded(instance, queue.device, 25, error, [&](auto&) {
    if (!instance.script.stream_waits)
      throw Fault{ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_NONE, "streams do not wait here"};
    require_alive(instance, &queue, ANYHAL_OBJECT_QUEUE);
    if (queue.status != ANYHAL_STATUS_OK)
      throw Fault{ANYHAL_STATUS_EXECUTION_FAILED, ANYHAL_REASON_NONE,
                  "the queue is dead: " + queue.failure};
    if (value > queue.signalled)
      violation(instance, "a stream is to wait for a value that was not submitted");
    ++instance.stream_waits;
    instance.last_stream = stream;
    const auto& queues = queue.device->queues;
    const auto own = std::find(queues.begin(), queues.end(), reinterpret_cast<Queue*>(stream));
    if (own == queues.end()) return;
    Item item;
    item.type = Item::kWait;
    item.source = &queue;
    item.value = value;
    (*own)->items.push_back(std::move(item));
  });
}

constexpr anyhal_foreign kTable = {sizeof kTable, ANYHAL_FOREIGN_VERSION, place, address, stream,
                                   stream_wait};

}  // namespace

const void* foreign_table() { return &kTable; }

}  // namespace hal::fake
