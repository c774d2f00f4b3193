/* The extension "kernel_limits": what the author of a kernel must know of a device. C11 and C++17.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ANYHAL_SDK_KERNEL_LIMITS_H_
#define ANYHAL_SDK_KERNEL_LIMITS_H_

#include "anyhal/backend.h"

#define ANYHAL_EXTENSION_KERNEL_LIMITS "kernel_limits"
#define ANYHAL_KERNEL_LIMITS_VERSION 1u

/* `size` is set by the caller. */
typedef struct anyhal_kernel_limits {
  uint32_t size;
  uint32_t units;       /* what runs side by side: threads of a processor, compute units */
  uint32_t group_items; /* most items in a block (work group); 1 where there are none */
  uint32_t reserved;
  uint64_t group_bytes; /* of memory that a block shares */
  char features[1024];  /* words, one space apart: instruction sets, language extensions */
} anyhal_kernel_limits;

/* Every extension's table begins with its size and its version. */
typedef struct anyhal_kernel_limits_table {
  uint32_t size;
  uint32_t version;
  anyhal_status (*limits)(anyhal_device* device, anyhal_kernel_limits* out_limits,
                          anyhal_error* error);
} anyhal_kernel_limits_table;

#endif /* ANYHAL_SDK_KERNEL_LIMITS_H_ */
