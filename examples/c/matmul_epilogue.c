/* A matrix product with bias and activation in one op, and the receipt that says what ran.
 * matmul_epilogue.txt is its output with the argument cpu_ref.
 * SPDX-License-Identifier: Apache-2.0 */
#include <anyhal/hal_ops.h>
#include <stdio.h>
#include <stdlib.h>

static hal_error error;

static void must(hal_status status) {
  if (status == HAL_STATUS_OK) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

/* A dense f32 tensor with these values. */
static hal_tensor tensor(hal_queue* queue, int32_t rank, const int64_t* dims, const float* values) {
  hal_tensor t;
  hal_buffer* buffer;
  uint64_t bytes;
  must(hal_tensor_dense(NULL, 0, HAL_DTYPE_F32, rank, dims, &t, &bytes, &error));
  must(hal_alloc(queue, bytes, HAL_PURPOSE_ACTIVATIONS, &buffer, &error));
  if (values) must(hal_buffer_write(queue, buffer, 0, values, bytes, &error));
  t.buffer = buffer;
  return t;
}

int main(int argc, char** argv) {
  const float x_values[] = {1, 2, 3, 4, 5, 6}, w_values[] = {1, -1, 0, 2, 1, -2};
  const float bias_values[] = {1, 3};
  const int64_t x_dims[] = {2, 3}, w_dims[] = {3, 2}, bias_dims[] = {2}, out_dims[] = {2, 2};
  float result[4];
  hal_queue* queue;
  hal_receipt receipt;
  uint32_t count;

  must(hal_select_backend(argc > 1 ? argv[1] : NULL, NULL, &error));
  must(hal_queue_create(NULL, &queue, &error));
  must(hal_receipts_enable(1, &error));

  const hal_tensor x = tensor(queue, 2, x_dims, x_values), w = tensor(queue, 2, w_dims, w_values);
  const hal_tensor bias = tensor(queue, 1, bias_dims, bias_values);
  const hal_tensor out = tensor(queue, 2, out_dims, NULL);
  must(hal_matmul_epilogue(queue, &x, &w, &bias, NULL, NULL, HAL_ACTIVATION_RELU, 1.0f, &out,
                           &error));
  must(hal_buffer_read(queue, out.buffer, 0, result, sizeof result, &error));
  printf("relu(x @ w + bias) = [[%g, %g], [%g, %g]]\n", result[0], result[1], result[2], result[3]);

  must(hal_receipts_read(&receipt, 1, sizeof receipt, &count, &error));
  printf("%s\nran on %s (%s) by the kernel \"%s\" of %s\n", receipt.call, receipt.device,
         receipt.state, receipt.kernel,
         receipt.library[0] ? receipt.library : "the backend itself");

  must(hal_free(x.buffer, &error));
  must(hal_free(w.buffer, &error));
  must(hal_free(bias.buffer, &error));
  must(hal_free(out.buffer, &error));
  must(hal_queue_release(queue, &error));
  return 0;
}
