// Device memory in other libraries' hands: its name and address there, and order with their
// streams. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/queue.hpp"

namespace hal {

// Found out once, when first asked for.
HAL_API const ForeignPlace& foreign_of(Device& device);
// Where other libraries find bytes of a device that has a place among them.
HAL_API uint64_t foreign_address(Device& device, const anyhal_ref& ref);
// The queue as other libraries' streams name it.
HAL_API uint64_t foreign_stream(Queue& queue);
// What is put on the foreign stream from now on runs after all that was queued on the buffer.
// Throws where its content is known to be lost.
HAL_API void order_stream(Buffer& buffer, uint64_t stream);
// Foreign memory under an address as a block of the device.
HAL_API uint64_t import_block(Device& device, uint64_t address, uint64_t bytes);
HAL_API void release_block(Device& device, uint64_t block);

}  // namespace hal
