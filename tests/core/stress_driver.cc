// Several threads compute, allocate, free, copy and wait at once on one device; prints "ok".
// SPDX-License-Identifier: Apache-2.0
//
// stress_driver LIBRARY SCRIPT ROUNDS. Meant for a build with a sanitizer (CONTRIBUTING.md), where
// a race or a bad access ends it; a plain build checks the results.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "anyhal/ops.h"
#include "core/device.hpp"
#include "core/dispatch.hpp"
#include "core/error.hpp"
#include "core/instance.hpp"
#include "core/memory.hpp"
#include "core/plan.hpp"
#include "core/queue.hpp"

namespace {

using hal::Buffer;
using hal::Device;
using hal::Queue;

constexpr int kThreads = 4;

hal::OpDesc describe(const Device& device, uint32_t op, std::vector<int64_t> dims, uint32_t inputs,
                     const std::string& attributes) {
  hal::OpDesc desc;
  desc.op = op, desc.input_count = inputs, desc.attributes = attributes, desc.name = "stress";
  for (uint32_t i = 0; i <= inputs; ++i) {
    hal::OperandDesc operand;
    operand.dtype = ANYHAL_DTYPE_F32, operand.alignment = 64, operand.dims = dims;
    operand.strides.assign(dims.size(), 1);
    int64_t bytes = sizeof(float);
    for (size_t d = dims.size(); d-- > 0; bytes *= dims[d])
      operand.strides[d] = bytes / int64_t{sizeof(float)};
    operand.block_bytes = device.cells ? uint64_t(bytes) : 0;
    desc.operands.push_back(operand);
  }
  return desc;
}

hal::Operand at(Buffer* buffer) { return {hal::data_of(*buffer), buffer}; }

// The host's side of a device: through a staging block where it has no address.
void put(Device& device, Queue& queue, Buffer* to, float value, int64_t count) {
  const std::vector<float> values(size_t(count), value);
  const uint64_t bytes = values.size() * sizeof(float);
  if (device.host_memory) {
    std::memcpy(to->host, values.data(), bytes);
    return;
  }
  Buffer* staging = device.memory.alloc(bytes, ANYHAL_PURPOSE_STAGING, &queue, true);
  hal::wait_idle(*staging, true);
  std::memcpy(staging->host, values.data(), bytes);
  hal::copy_bytes(queue, at(to), at(staging), bytes);
  hal::release(staging);
}

float last(Device& device, Queue& queue, Buffer* from, int64_t count) {
  float value;
  const uint64_t bytes = uint64_t(count) * sizeof(float), where = bytes - sizeof(float);
  if (device.host_memory) {
    std::memcpy(&value, from->host + where, sizeof(value));
    return value;
  }
  Buffer* staging = device.memory.alloc(bytes, ANYHAL_PURPOSE_STAGING, &queue, true);
  hal::copy_bytes(queue, at(staging), at(from), bytes);
  hal::wait_idle(*staging, false);
  std::memcpy(&value, staging->host + where, sizeof(value));
  hal::release(staging);
  return value;
}

struct Shared {
  Device& device;
  Buffer* ones;  // read by all threads at once
  hal::Plan* square;
  std::mutex mutex;
  std::string wrong;
};

constexpr int64_t kSide = 96;  // a product of this side is shared out over the pool

void work(Shared& shared, Queue& queue, int number, int rounds) {
  Device& device = shared.device;
  const anyhal_attrs_binary add = {sizeof(add), 0, ANYHAL_BINARY_FN_ADD, 0};
  const std::string attributes(reinterpret_cast<const char*>(&add), sizeof(add));
  for (int round = 0; round < rounds; ++round) {
    const int64_t length = 1 + (round * 37 + number * 11) % 5000;
    const uint64_t bytes = uint64_t(length) * sizeof(float);
    hal::Plan* plan =
        hal::prepare_op(device, describe(device, ANYHAL_OP_BINARY, {length}, 2, attributes));
    Buffer* x = device.memory.alloc(bytes, ANYHAL_PURPOSE_ACTIVATIONS, &queue);
    Buffer* y = device.memory.alloc(bytes, ANYHAL_PURPOSE_ACTIVATIONS, &queue);
    Buffer* out = device.memory.alloc(uint64_t(kSide * kSide) * sizeof(float),
                                      ANYHAL_PURPOSE_ACTIVATIONS, &queue);
    put(device, queue, x, float(number), length);
    const hal::Operand sum[] = {at(x), at(x), at(y)};
    hal::run_plan(*plan, sum, queue);
    const hal::Operand product[] = {at(shared.ones), at(shared.ones), at(out)};
    hal::run_plan(*shared.square, product, queue);
    const float got[] = {last(device, queue, y, length), last(device, queue, out, kSide * kSide)};
    if (got[0] != 2.0f * float(number) || got[1] != float(kSide)) {
      std::lock_guard lock(shared.mutex);
      shared.wrong = "thread " + std::to_string(number) + " read " + std::to_string(got[0]) +
                     " and " + std::to_string(got[1]);
    }
    for (Buffer* b : {x, y, out}) hal::release(b);
    hal::release(plan);
    if (round % 16 == 0) device.memory.trim();
    if (round % 8 == 0)
      for (hal::Plan* kept : hal::retained_plans()) hal::release(kept);
  }
  queue.wait_all();
}

}  // namespace

int main(int, char** arguments) {
  try {
    std::vector<std::pair<std::string, std::string>> settings;
    if (*arguments[2]) settings.emplace_back("script", arguments[2]);
    hal::Instance* instance = hal::load_instance(arguments[1], "stressed", settings);
    Device& device =
        *hal::open_device(instance, instance->list_devices().front().info.id, "stressed:0");
    Queue& first = *device.queue;
    Shared shared{device,
                  device.memory.alloc(uint64_t(kSide * kSide) * sizeof(float),
                                      ANYHAL_PURPOSE_WEIGHTS, &first),
                  nullptr,
                  {},
                  {}};
    put(device, first, shared.ones, 1, kSide * kSide);
    const uint32_t none[] = {2 * sizeof(uint32_t), 0};  // size, flags
    const std::string record(reinterpret_cast<const char*>(none), sizeof(none));
    hal::OpDesc square = describe(device, ANYHAL_OP_MATMUL, {kSide, kSide}, 2, record);
    square.operands[1].flags = ANYHAL_TENSOR_CONSTANT;  // a backend may have it packed, once
    shared.ones->constant = true;
    shared.square = hal::prepare_op(device, square);
    first.wait_all();
    std::vector<Queue*> queues;  // each thread its own, as scopes give them; made one by one
    for (int i = 0; i < kThreads; ++i) queues.push_back(new Queue(&device));
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        try {
          work(shared, *queues[size_t(i)], i, std::atoi(arguments[3]));
        } catch (const hal::Error& error) {
          std::lock_guard lock(shared.mutex);
          shared.wrong = error.text;
        }
      });
    for (std::thread& thread : threads) thread.join();
    std::puts(shared.wrong.empty() ? "ok" : shared.wrong.c_str());
    return shared.wrong.empty() ? 0 : 1;
  } catch (const hal::Error& error) {
    std::puts(error.text.c_str());
    return 1;
  }
}
