/* The extension "anyhal.foreign": a device's memory in the hands of another library of the process.
 * SPDX-License-Identifier: Apache-2.0
 *
 * For backends whose driver has addresses and streams that other libraries know, such as those that
 * exchange tensors by DLPack. A backend without it shares nothing but host memory. Asked for by
 *
 *     extension(self, ANYHAL_FOREIGN_NAME, ANYHAL_FOREIGN_VERSION, &table)
 */
#ifndef ANYHAL_SDK_FOREIGN_H_
#define ANYHAL_SDK_FOREIGN_H_

#include "anyhal/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ANYHAL_FOREIGN_NAME "anyhal.foreign"
#define ANYHAL_FOREIGN_VERSION 1u

/* Lives with the instance. What memory_import takes as ANYHAL_IMPORT_ADDRESS is an address of
 * these. */
typedef struct anyhal_foreign {
  uint32_t size;
  uint32_t version; /* ANYHAL_FOREIGN_VERSION or later; later ones only append */

  /* What the device is called elsewhere.
   *
   * Units    DLDevice's device_type and device_id of DLPack 1; the id is the driver's ordinal.
   * Errors   UNSUPPORTED  this device's memory is not shared
   * Required yes. Since 1. */
  anyhal_status (*place)(anyhal_device* device, int32_t* out_type, int32_t* out_id,
                         anyhal_error* error);

  /* Where the bytes of a ref are, for other libraries.
   *
   * Memory   good as long as the block.
   * Required yes. Since 1. */
  anyhal_status (*address)(anyhal_device* device, anyhal_ref ref, uint64_t* out_address,
                           anyhal_error* error);

  /* The queue as a stream of the driver's, for other libraries to put waits into.
   *
   * Memory   lives with the queue.
   * Required yes. Since 1. */
  anyhal_status (*stream)(anyhal_queue* queue, uint64_t* out_stream, anyhal_error* error);

  /* Makes a foreign stream wait for a position of the queue.
   *
   * Units    `stream` as its driver's calls take it, with the numbers that stand for its default
   *          streams; it belongs to the caller and to this device.
   * Order    what is put on the stream later runs after `value`, which was signalled; no thread
   *          waits.
   * Errors   UNSUPPORTED  the driver cannot; the core waits in place of the stream
   * Required no. Since 1. */
  anyhal_status (*stream_wait)(anyhal_queue* queue, uint64_t value, uint64_t stream,
                               anyhal_error* error);
} anyhal_foreign;

#ifdef __cplusplus
}
#endif

#endif /* ANYHAL_SDK_FOREIGN_H_ */
