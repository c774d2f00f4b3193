// Calls made of random words: each ends in a status, never in a crash; prints how many ran.
// SPDX-License-Identifier: Apache-2.0
//
//     random_calls DEVICE SEED COUNT
//
// Most have the op's number of operands and attribute bytes; of the rest a few words are changed.
#include "check.h"
#include "core/api/op_table.hpp"

enum { BYTES = 1 << 16, BUFFERS = 4 };

static uint64_t state;

static uint64_t next(uint64_t below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return below ? (state >> 11) % below : state;
}

static hal_buffer* buffers[BUFFERS];
static const int32_t dtypes[] = {1, 1, 1, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11, 12, 13, 64, 65, 14};

static int64_t odd_size(void) {
  static const int64_t sizes[] = {0, 1, 1, 2, 3, 4, 4, 8, 8, 32, 64, 100, -1, INT64_MAX, 1 << 20};
  return sizes[next(sizeof sizes / sizeof *sizes)];
}

static void good_tensor(hal_tensor* t, int i) {
  int64_t dims[HAL_RANK_MAX];
  const int32_t rank = (int32_t)next(5);
  for (int d = 0; d < rank; ++d) dims[d] = int64_t{1} << next(6);
  if (rank) dims[rank - 1] = next(2) ? 32 : 4;
  if (hal_tensor_dense(buffers[i % BUFFERS], 0, dtypes[next(20)], rank, dims, t, NULL, NULL))
    hal_tensor_dense(buffers[i % BUFFERS], 0, HAL_DTYPE_F32, rank, dims, t, NULL, NULL);
}

static void spoil(hal_tensor* t) {
  switch (next(9)) {
    case 0:
      t->rank = (int32_t)next(11) - 1;
      break;
    case 1:
      t->dtype = (int32_t)next(80);
      break;
    case 2:
      t->dims[next(HAL_RANK_MAX)] = odd_size();
      break;
    case 3:
      t->strides[next(HAL_RANK_MAX)] = odd_size();
      break;
    case 4:
      t->offset_bytes = next(2) ? next(BYTES) : next(0);
      break;
    case 5:
      t->buffer = next(4) ? buffers[next(BUFFERS)] : (hal_buffer*)(uintptr_t)next(0);
      break;
    default:
      break;
  }
}

/* Enough operands for the op of one shape, as most ops want it. */
static void plausible(hal_tensor* all, uint32_t count) {
  good_tensor(&all[0], 0);
  for (uint32_t i = 1; i < count; ++i) {
    all[i] = all[0];
    all[i].buffer = buffers[i % BUFFERS];
    if (!next(9)) good_tensor(&all[i], (int)i);
    if (!next(9)) all[i].dtype = next(2) ? HAL_DTYPE_I32 : HAL_DTYPE_BOOL;
    if (!next(9) && all[0].rank) all[i].dims[all[0].rank - 1] = all[i].strides[all[0].rank - 1] = 1;
    if (!next(9)) all[i].rank = 0;
  }
}

int main(int argc, char** argv) {
  hal_device* device;
  hal_queue* queue;
  long ran = 0, refused = 0, count;
  if (argc < 4) return 2;
  state = (uint64_t)atoll(argv[2]) * 2654435761u + 88172645463325252u, count = atol(argv[3]);
  GOOD(hal_select_backend(argv[1], &device, error));
  GOOD(hal_queue_create(device, &queue, error));
  for (int i = 0; i < BUFFERS; ++i) {
    char* bytes = (char*)calloc(BYTES, 1);
    if (i % 2)
      for (int j = 0; j < BYTES; ++j) bytes[j] = (char)next(3);
    GOOD(hal_alloc(queue, BYTES, HAL_PURPOSE_ACTIVATIONS, &buffers[i], error));
    GOOD(hal_buffer_write(queue, buffers[i], 0, bytes, BYTES, error));
    free(bytes);
  }
  constexpr int kMost = 16;  // operands of a call: 8 inputs and 5 outputs at most
  for (long n = 0; n < count; ++n) {
    hal_tensor all[kMost + 1];
    const hal_tensor* operands[kMost];
    int32_t attributes[64];
    constexpr uint64_t kRows = sizeof hal::kOps / sizeof *hal::kOps;
    const hal::OpRow& row = hal::kOps[next(kRows)];
    const uint32_t op = next(50) ? row.id : (uint32_t)next(200);
    const uint32_t input_count = next(20) && row.inputs < 9 ? row.inputs : (uint32_t)next(7);
    const uint32_t operand_count = input_count + (next(20) ? row.outputs : (uint32_t)next(2));
    const uint32_t bytes = next(20) ? row.attributes_bytes : 8 * (uint32_t)next(5);
    hal_error error = {0, 0, ""};
    for (int32_t& word : attributes) word = (int32_t)(next(9) ? next(4) : next(0));
    for (const hal::OpChoice& choice : hal::kChoices)
      while (choice.op == op && next(20)) {
        const uint32_t number = (uint32_t)next(64);
        attributes[choice.offset / 4] = (int32_t)number;
        if (choice.known >> number & 1) break;
      }
    attributes[0] = (int32_t)bytes, attributes[1] = next(50) ? 0 : 1;
    plausible(all, kMost + 1);
    for (uint32_t i = 0; i < operand_count; ++i)
      operands[i] = next(i < row.required ? 90 : 3) ? &all[i] : NULL;
    for (uint64_t times = next(4); times > 2; --times) spoil(&all[next(operand_count + 1)]);
    if (hal_op(queue, op, operands, input_count, operand_count, bytes ? attributes : NULL, bytes,
               &error) == HAL_STATUS_OK) {
      ++ran;
    } else {
      ++refused;
      HOLDS(error.status > 0 && error.status != HAL_STATUS_INTERNAL && error.text[0]);
    }
  }
  printf("ran %ld, refused %ld\n", ran, refused);
  return 0;
}
