// The interface from C++: handles that release themselves, failures as exceptions.
// SPDX-License-Identifier: Apache-2.0
#include <anyhal/hal_ops.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <vector>

hal_error error;

void must(hal_status status) {
  if (status != HAL_STATUS_OK) throw std::runtime_error(error.text);
}

struct Release {
  void operator()(hal_queue* queue) const { hal_queue_release(queue, nullptr); }
  void operator()(hal_buffer* buffer) const { hal_free(buffer, nullptr); }
};
using Queue = std::unique_ptr<hal_queue, Release>;

// A dense f32 tensor and the buffer that it owns.
struct Tensor {
  Tensor(const Queue& queue, const std::vector<int64_t>& dims) {
    const auto rank = static_cast<int32_t>(dims.size());
    must(hal_tensor_dense(nullptr, 0, HAL_DTYPE_F32, rank, dims.data(), &view, &bytes, &error));
    must(hal_alloc(queue.get(), bytes, HAL_PURPOSE_ACTIVATIONS, &view.buffer, &error));
    owner.reset(view.buffer);
  }
  void set(const Queue& queue, const std::vector<float>& values) const {
    must(hal_buffer_write(queue.get(), view.buffer, 0, values.data(), bytes, &error));
  }
  std::vector<float> get(const Queue& queue) const {
    std::vector<float> values(bytes / sizeof(float));
    must(hal_buffer_read(queue.get(), view.buffer, 0, values.data(), bytes, &error));
    return values;
  }
  hal_tensor view{};
  uint64_t bytes = 0;
  std::unique_ptr<hal_buffer, Release> owner;
};

int main(int argc, char** argv) try {
  must(hal_select_backend(argc > 1 ? argv[1] : nullptr, nullptr, &error));
  hal_queue* made = nullptr;
  must(hal_queue_create(nullptr, &made, &error));
  const Queue queue(made);
  const Tensor x(queue, {2, 2}), y(queue, {2, 2}), out(queue, {2, 2}), wrong(queue, {3, 5});
  x.set(queue, {1, 2, 3, 4}), y.set(queue, {0, 1, 1, 0});
  must(hal_matmul(queue.get(), &x.view, &y.view, &out.view, &error));
  for (const float value : out.get(queue)) std::cout << value << ' ';
  std::cout << '\n';
  must(hal_matmul(queue.get(), &x.view, &wrong.view, &out.view, &error));
} catch (const std::exception& why) {
  std::cout << "refused: " << why.what() << '\n';
}
