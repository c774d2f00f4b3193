/* What the programs of this folder share: failing loudly, tensors of f32.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ANYHAL_TESTS_CAPI_CHECK_H_
#define ANYHAL_TESTS_CAPI_CHECK_H_

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "anyhal/hal_ops.h"

/* A status that must be OK. */
#define GOOD(call)                                                              \
  do {                                                                          \
    hal_error error_ = {0, 0, ""};                                              \
    hal_error* error = &error_;                                                 \
    if ((call) != HAL_STATUS_OK) {                                              \
      printf("line %d: %s, %s: %s\n", __LINE__, hal_status_name(error->status), \
             hal_reason_name(error->reason), error->text);                      \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

/* A status and reason that must come, with a sentence. */
#define BAD(wanted_status, wanted_reason, call)                                            \
  do {                                                                                     \
    hal_error error_ = {0, 0, ""};                                                         \
    hal_error* error = &error_;                                                            \
    const hal_status got_ = (call);                                                        \
    if (got_ != HAL_STATUS_##wanted_status || error->status != (int32_t)got_ ||            \
        error->reason != HAL_REASON_##wanted_reason || !error->text[0]) {                  \
      printf("line %d: %s, %s: %s; wanted %s, %s\n", __LINE__, hal_status_name(got_),      \
             hal_reason_name(error->reason), error->text, #wanted_status, #wanted_reason); \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

#define HOLDS(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      printf("line %d: not so: %s\n", __LINE__, #condition); \
      exit(1);                                               \
    }                                                        \
  } while (0)

/* A dense f32 tensor in a buffer of its own. */
static inline hal_tensor tensor(hal_queue* queue, int32_t rank, const int64_t* dims) {
  hal_tensor t;
  uint64_t bytes;
  hal_buffer* buffer;
  GOOD(hal_tensor_dense(NULL, 0, HAL_DTYPE_F32, rank, dims, &t, &bytes, error));
  GOOD(hal_alloc(queue, bytes, HAL_PURPOSE_ACTIVATIONS, &buffer, error));
  t.buffer = buffer;
  return t;
}

static inline hal_tensor matrix(hal_queue* queue, int64_t rows, int64_t columns) {
  const int64_t dims[] = {rows, columns};
  return tensor(queue, 2, dims);
}

static inline uint64_t bytes_of(const hal_tensor* t) {
  uint64_t n = sizeof(float);
  for (int32_t d = 0; d < t->rank; ++d) n *= (uint64_t)t->dims[d];
  return n;
}

/* Fills with small integers, so that sums are exact. */
static inline void fill(hal_queue* queue, const hal_tensor* t, int seed) {
  const uint64_t n = bytes_of(t) / sizeof(float);
  float* values = (float*)malloc(n * sizeof(float) + 1);
  for (uint64_t i = 0; i < n; ++i) values[i] = (float)(((int)i * 7 + seed) % 11 - 5);
  GOOD(hal_buffer_write(queue, t->buffer, t->offset_bytes, values, n * sizeof(float), error));
  free(values);
}

static inline float* values_of(hal_queue* queue, const hal_tensor* t) {
  float* values = (float*)malloc(bytes_of(t) + 1);
  GOOD(hal_buffer_read(queue, t->buffer, t->offset_bytes, values, bytes_of(t), error));
  return values;
}

#endif /* ANYHAL_TESTS_CAPI_CHECK_H_ */
