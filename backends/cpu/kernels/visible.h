// Which keys a query of an attention op sees, before any mask.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_KERNELS_VISIBLE_H_
#define BACKENDS_CPU_KERNELS_VISIBLE_H_

#include "convert.h"

namespace hal::cpu::HAL_CPU_ISA {

// Keys [0, this) of `length` are visible to query t of `queries`.
static inline int64_t visible_keys(int32_t causal, int64_t length, int64_t queries, int64_t t) {
  int64_t limit = length;
  if (causal == ANYHAL_CAUSAL_FIRST_KEY) limit = t + 1;
  if (causal == ANYHAL_CAUSAL_LAST_KEY) limit = length - queries + t + 1;
  return limit < 0 ? 0 : limit > length ? length : limit;
}

// A length that is no number of keys is the caller's mistake, found before anything is written.
static inline anyhal_status check_key_counts(uint32_t dtype, const char* lengths, int64_t stride,
                                             int64_t batch, int64_t keys, anyhal_error* error) {
  for (int64_t b = 0; b < batch; ++b) {
    int64_t length = read_index(dtype, lengths + b * stride);
    if (length < 0 || length > keys) {
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
                  "kv_length %lld is outside [0, %lld], the number of keys; "
                  "nothing was written; correct it",
                  static_cast<long long>(length), static_cast<long long>(keys));
    }
  }
  return ANYHAL_STATUS_OK;
}

}  // namespace hal::cpu::HAL_CPU_ISA

#endif  // BACKENDS_CPU_KERNELS_VISIBLE_H_
