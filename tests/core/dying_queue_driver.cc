// Several threads wait on a queue that dies: one takes note, all learn of it; prints "ok".
// SPDX-License-Identifier: Apache-2.0
//
// dying_queue_driver LIBRARY ROUNDS, with the scriptable backend. Under a sanitizer as well, see
// CONTRIBUTING.md.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "anyhal/ops.h"
#include "core/dispatch.hpp"
#include "core/instance.hpp"

namespace {

constexpr int kThreads = 4;
constexpr uint32_t kBrokenRules = 110;  // the backend's count of what the core did wrong

hal::OpDesc negate() {
  const anyhal_attrs_unary attributes = {sizeof(attributes), 0, ANYHAL_UNARY_FN_NEG, 0};
  hal::OpDesc desc;
  desc.op = ANYHAL_OP_UNARY, desc.input_count = 1, desc.name = "unary";
  desc.attributes.assign(reinterpret_cast<const char*>(&attributes), sizeof(attributes));
  hal::OperandDesc operand;
  operand.dtype = ANYHAL_DTYPE_F32, operand.alignment = 64;
  operand.dims = {4}, operand.strides = {1};
  desc.operands = {operand, operand};
  return desc;
}

const char* play(const char* library, int round) {
  hal::Instance* instance =
      hal::load_instance(library, "dying" + std::to_string(round),
                         {{"script", "mode=async; late_failure=2; delay=300us"}});
  hal::Device& device =
      *hal::open_device(instance, instance->list_devices().front().info.id, "dying:0");
  hal::Queue queue(&device);
  hal::Plan* plan = hal::prepare_op(device, negate());
  hal::Buffer* x = device.memory.alloc(16, ANYHAL_PURPOSE_ACTIVATIONS, &queue);
  hal::Buffer* y = device.memory.alloc(16, ANYHAL_PURPOSE_ACTIVATIONS, &queue);
  const hal::Operand operands[] = {{hal::data_of(*x), x}, {hal::data_of(*y), y}};
  for (int i = 0; i < 3; ++i) hal::run_plan(*plan, operands, queue);
  const uint64_t last = queue.signal();
  std::vector<std::thread> threads;
  std::atomic<int> told{0};
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      try {
        queue.wait(last);
        queue.require_good(last);
      } catch (const hal::Error& e) {
        told += e.status == ANYHAL_STATUS_EXECUTION_FAILED;
      }
    });
  for (std::thread& t : threads) t.join();
  if (told != kThreads) return "a thread was not told";
  if (queue.failures.size() != 1) return "the failure was noted more than once";
  hal::run_plan(*plan, operands, queue);  // other work goes on
  queue.wait(queue.signal());
  queue.require_good(queue.submitted);
  const std::vector<uint8_t> broken = device.query(ANYHAL_QUERY_COUNTER, kBrokenRules);
  uint64_t count = 1;
  if (broken.size() >= sizeof(count)) std::memcpy(&count, broken.data(), sizeof(count));
  return count ? "the core broke a rule of the contract" : nullptr;
}

}  // namespace

int main(int, char** arguments) {
  for (int round = 0; round < std::atoi(arguments[2]); ++round)
    if (const char* wrong = play(arguments[1], round)) return std::puts(wrong), 1;
  std::puts("ok");
  return 0;
}
