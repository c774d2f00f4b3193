// What an op on a PJRT device costs over the same plugin calls made directly, in the same run.
// SPDX-License-Identifier: Apache-2.0
//
//     g++ -std=c++20 -O2 -Iinclude benchmarks/pjrt_call.cc backends/pjrt/plugin.cc
//         backends/pjrt/program.cc $(anyhal config --cflags --libs) -ldl -o pjrt_call
//     ANYHAL_PJRT_PLUGINS=PLUGIN anyhal devices --write-registry
//     ./pjrt_call PLUGIN pjrt:0 [ELEMENTS]   prints: hal us, direct us, difference us (medians)
//
// Both sides add two f32 vectors into a result that replaces the one before, and wait for every
// 24th. The direct side is what a careful C program does: one Execute, one event, the old result
// destroyed after the new one has landed. Blocks alternate.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "anyhal/hal_ops.h"
#include "backends/pjrt/plugin.h"
#include "backends/pjrt/program.h"

namespace {

using namespace hal::pjrt;

constexpr int kDepth = 24, kCalls = kDepth * 20, kBlocks = 41;
hal_error error;

void must(hal_status status) {
  if (status == HAL_STATUS_OK) return;
  std::fprintf(stderr, "%s\n", error.text);
  std::exit(1);
}

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

struct Direct {
  Plugin& plugin;
  Executable program;
  api::Buffer *a, *b, *out;

  void run() {
    std::deque<std::pair<api::Event*, api::Buffer*>> flying;
    for (int i = 0; i < kCalls; ++i) {
      api::Buffer* arguments[2] = {a, b};
      api::Buffer* made = nullptr;
      api::Event* event = nullptr;
      if (program.run(plugin, arguments, 2, &made, &event, {}) != nullptr) std::exit(1);
      flying.push_back({event, out});
      out = made;
      while (!flying.empty() && plugin.ready(flying.front().first)) pop(flying);
      for (; i % kDepth == kDepth - 1 && !flying.empty(); pop(flying)) {
        api::Args<api::EventArgs> wait;
        wait->event = flying.front().first;
        if (plugin.call(api::kEventAwait, wait) != nullptr) std::exit(1);
      }
    }
  }
  void pop(std::deque<std::pair<api::Event*, api::Buffer*>>& flying) {
    plugin.destroy(flying.front().first);
    plugin.destroy(flying.front().second);
    flying.pop_front();
  }
};

hal_tensor tensor(hal_queue* queue, int64_t count, const std::vector<float>& values) {
  hal_tensor t;
  uint64_t bytes;
  must(hal_tensor_dense(nullptr, 0, HAL_DTYPE_F32, 1, &count, &t, &bytes, &error));
  must(hal_alloc(queue, bytes, HAL_PURPOSE_ACTIVATIONS, &t.buffer, &error));
  must(hal_buffer_write(queue, t.buffer, 0, values.data(), bytes, &error));
  return t;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count < 3) return 2;
  const int64_t count = argument_count > 3 ? std::atoll(arguments[3]) : 64;
  const std::vector<float> ones(static_cast<size_t>(count), 1.0F);
  Plugin plugin(arguments[1]);
  plugin.start();
  const std::string type = "tensor<" + std::to_string(count) + "xf32>";
  const std::string text =
      "module @anyhal {\n  func.func public @main(%a0: " + type + ", %a1: " + type + ") -> (" +
      type + ") {\n    %0 = \"stablehlo.add\"(%a0, %a1) : (" + type + ", " + type + ") -> " + type +
      "\n    \"func.return\"(%0) : (" + type + ") -> ()\n  }\n}\n";
  const uint64_t bytes = sizeof(float) * ones.size();
  Direct direct{plugin, compile(plugin, text), plugin.buffer_of(ones.data(), bytes),
                plugin.buffer_of(ones.data(), bytes), plugin.buffer_of(ones.data(), bytes)};

  hal_queue* queue;
  must(hal_select_backend(arguments[2], nullptr, &error));
  must(hal_queue_create(nullptr, &queue, &error));
  const hal_tensor a = tensor(queue, count, ones), b = tensor(queue, count, ones);
  const hal_tensor out = tensor(queue, count, ones);

  std::vector<double> theirs, ours;
  for (int block = 0; block < kBlocks; ++block) {
    double begin = now_us();
    direct.run();
    theirs.push_back((now_us() - begin) / kCalls);
    begin = now_us();
    for (int i = 0; i < kCalls; ++i) {
      must(hal_binary(queue, &a, &b, HAL_BINARY_FN_ADD, &out, &error));
      if (i % kDepth != kDepth - 1) continue;
      uint64_t value;
      must(hal_queue_signal(queue, &value, &error));
      must(hal_queue_wait(queue, value, HAL_NO_LIMIT, &error));
    }
    ours.push_back((now_us() - begin) / kCalls);
  }
  std::vector<float> result(ones.size());
  must(hal_buffer_read(queue, out.buffer, 0, result.data(), bytes, &error));
  if (result[0] != 2.0F || *static_cast<const float*>(plugin.pointer(direct.out)) != 2.0F) return 1;
  std::printf("%.2f %.2f %.2f\n", median(ours), median(theirs), median(ours) - median(theirs));
  return 0;
}
