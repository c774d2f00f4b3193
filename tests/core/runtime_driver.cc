// Plays one scenario of the core on the scriptable backend; prints "ok" or what went wrong.
// SPDX-License-Identifier: Apache-2.0
//
// runtime_driver LIBRARY SCENARIO SCRIPT. No Python, so that a scenario sees the core alone.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "anyhal/ops.h"
#include "core/device.hpp"
#include "core/dispatch.hpp"
#include "core/error.hpp"
#include "core/graph.hpp"
#include "core/instance.hpp"
#include "core/memory.hpp"
#include "core/plan.hpp"
#include "core/queue.hpp"

namespace {

using hal::Buffer;
using hal::Device;
using hal::Queue;

void expect(bool holds, const std::string& text) {
  if (!holds) throw std::string(text);
}

// One device with f32 vectors of one length.
struct Bench {
  Device* device;
  int64_t length;

  uint64_t bytes() const { return static_cast<uint64_t>(length) * sizeof(float); }

  Buffer* vector(Queue& queue, uint32_t purpose = ANYHAL_PURPOSE_ACTIVATIONS) const {
    return device->memory.alloc(bytes(), purpose, &queue);
  }

  hal::Operand operand(Buffer* buffer) const { return {hal::data_of(*buffer), buffer}; }

  void put(Queue& queue, Buffer* to, float value) const {
    const std::vector<float> values(static_cast<size_t>(length), value);
    if (device->host_memory) {
      std::memcpy(to->host, values.data(), bytes());
      return;
    }
    Buffer* staging = device->memory.alloc(bytes(), ANYHAL_PURPOSE_STAGING, &queue, true);
    hal::wait_idle(*staging, true);  // the host is no queue: reuse is safe for the device only
    std::memcpy(staging->host, values.data(), bytes());
    hal::copy_bytes(queue, operand(to), operand(staging), bytes());
    hal::release(staging);
  }

  // Queues the way to the host; `first` looks once the queue was waited for.
  Buffer* take(Queue& queue, Buffer* from) const {
    if (device->host_memory) {
      from->retain();
      return from;
    }
    Buffer* staging = device->memory.alloc(bytes(), ANYHAL_PURPOSE_STAGING, &queue, true);
    hal::copy_bytes(queue, operand(staging), operand(from), bytes());
    return staging;
  }

  float first(Buffer* staging) const {
    float value;
    std::memcpy(&value, staging->host, sizeof value);
    return value;
  }

  float read(Queue& queue, Buffer* from) const {
    Buffer* staging = take(queue, from);
    hal::wait_idle(*staging, false);
    const float value = first(staging);
    hal::release(staging);
    return value;
  }

  hal::OpDesc description(uint32_t op, uint32_t inputs, uint32_t alias = 0) const {
    hal::OpDesc desc;
    desc.op = op;
    desc.input_count = inputs;
    for (uint32_t i = 0; i <= inputs; ++i) {
      hal::OperandDesc operand;
      operand.dtype = ANYHAL_DTYPE_F32;
      operand.alignment = 64;
      operand.dims = {length};
      operand.strides = {1};
      operand.block_bytes = device->cells ? bytes() : 0;
      operand.alias_of = i == inputs ? alias : 0;
      desc.operands.push_back(operand);
    }
    return desc;
  }

  hal::Plan* adder(uint32_t alias = 0) const {
    hal::OpDesc desc = description(ANYHAL_OP_BINARY, 2, alias);
    const anyhal_attrs_binary attributes = {sizeof attributes, 0, ANYHAL_BINARY_FN_ADD, 0};
    desc.attributes.assign(reinterpret_cast<const char*>(&attributes), sizeof attributes);
    hal::Plan* plan = hal::prepare_op(*device, desc);
    plan->op_name = "add";
    return plan;
  }

  void add(Queue& queue, hal::Plan* plan, Buffer* a, Buffer* b, Buffer* out) const {
    const hal::Operand operands[] = {operand(a), operand(b), operand(out)};
    hal::run_plan(*plan, operands, queue);
  }

  uint64_t counter(uint64_t number) const {
    const auto answer = device->query(ANYHAL_QUERY_COUNTER, number);
    uint64_t value = 0;
    expect(answer.size() == sizeof value, "no counter");
    std::memcpy(&value, answer.data(), sizeof value);
    return value;
  }

  void expect_no_broken_rule() const {
    const auto notes = device->query(ANYHAL_QUERY_NOTES);
    expect(counter(110) == 0, std::string(notes.begin(), notes.end()));
  }
};

// What a call throws, or the empty error.
hal::Error caught(const std::function<void()>& call) {
  try {
    call();
  } catch (const hal::Error& error) {
    return error;
  }
  return hal::Error(ANYHAL_STATUS_OK, "");
}

void chain(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  Buffer *x = bench.vector(queue), *y = bench.vector(queue);
  bench.put(queue, x, 1);
  hal::Plan* plan = bench.adder();
  for (int i = 0; i < 10; ++i) {
    bench.add(queue, plan, x, x, y);
    std::swap(x, y);
  }
  expect(bench.read(queue, x) == 1024, "ten doublings of 1 are not 1024");
  bench.expect_no_broken_rule();
}

// Producer and consumer on two queues: each hazard once, nobody says wait.
void hazards(const Bench& bench) {
  Queue &a = *bench.device->queue, &b = *new Queue(bench.device);
  Buffer *x = bench.vector(a), *y = bench.vector(a);
  hal::Plan* plan = bench.adder();
  bench.put(a, x, 1);
  bench.add(b, plan, x, x, y);  // read after write
  bench.put(a, x, 5);           // write after read
  expect(bench.read(b, y) == 2, "the second queue read too early or too late");
  bench.add(b, plan, x, x, y);
  bench.put(a, y, 7);  // write after write
  expect(bench.read(a, y) == 7, "a later write was overtaken");
  bench.expect_no_broken_rule();
}

// MEM-04: a block given back while another queue still reads it.
void reuse(const Bench& bench) {
  Queue &a = *bench.device->queue, &b = *new Queue(bench.device);
  Buffer* x = bench.vector(a);
  bench.put(a, x, 3);
  Buffer* host = bench.take(b, x);
  hal::release(x);
  Buffer* y = bench.vector(a);
  bench.put(a, y, NAN);
  a.wait_all();
  b.wait_all();
  expect(bench.first(host) == 3, "the copy delivered what was written after the free");
  bench.expect_no_broken_rule();
}

// MEM-05: the staging buffer of a copy goes back while the copy has not run.
void staging(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  Buffer *x = bench.vector(queue), *y = bench.vector(queue);
  bench.put(queue, x, 1);
  bench.put(queue, y, 2);
  expect(bench.read(queue, x) == 1 && bench.read(queue, y) == 2,
         "a staging buffer was overwritten");
  bench.expect_no_broken_rule();
}

// The fourth call is accepted and fails later: everything from there is bad, the rest is good.
void late_failure(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  hal::Plan* plan = bench.adder();
  Buffer *x = bench.vector(queue), *good = bench.vector(queue);
  bench.put(queue, x, 1);
  bench.add(queue, plan, x, x, good);
  queue.wait_all();
  Buffer *never = bench.vector(queue), *after = bench.vector(queue);
  bench.add(queue, plan, x, x, never);
  bench.add(queue, plan, x, x, after);
  const auto status = caught([&] { queue.wait_all(); }).status;
  expect(status == ANYHAL_STATUS_EXECUTION_FAILED || status == ANYHAL_STATUS_OUT_OF_MEMORY,
         "the failure was not reported by a wait");
  expect(bench.read(queue, good) == 2, "what was computed before is gone");
  const hal::Error error = caught([&] { bench.read(queue, never); });
  expect(
      error.status == ANYHAL_STATUS_EXECUTION_FAILED || error.status == ANYHAL_STATUS_OUT_OF_MEMORY,
      "the failed call's output reads as if it were good");
  expect(caught([&] { bench.read(queue, after); }).status != ANYHAL_STATUS_OK,
         "what came after the failed call reads as if it were good");
  bench.add(queue, plan, x, x, never);
  expect(bench.read(queue, never) == 2, "the remade queue does not work");
  bench.expect_no_broken_rule();
}

void lost(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  hal::Plan* plan = bench.adder();
  Buffer* x = bench.vector(queue);
  for (int call = 0; call < 1000; ++call) {
    const hal::Error error = caught([&] { bench.add(queue, plan, x, x, x); });
    if (call < 2) continue;
    expect(error.status == ANYHAL_STATUS_DEVICE_LOST, "a call on a lost device went through");
    expect(error.text.find("op_enqueue call 3") != std::string::npos,
           "the first failure is not named: " + error.text);
  }
  expect(bench.counter(6) == 3, "a lost device was asked again");
  hal::release(x);
  bench.device->memory.trim();
}

// MEM-02: the cache is trimmed before a request fails.
void trim(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  const auto alloc = [&](uint64_t mib) {
    return bench.device->memory.alloc(mib << 20, ANYHAL_PURPOSE_ACTIVATIONS, &queue);
  };
  std::vector<Buffer*> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(alloc(10));
  for (Buffer* buffer : buffers) hal::release(buffer);
  hal::release(alloc(60));
  // MEM-01: a failure leaves everything as it was.
  for (int round = 0; round < 100; ++round) {
    buffers.clear();
    while (caught([&] { buffers.push_back(alloc(4)); }).status == ANYHAL_STATUS_OK);
    expect(buffers.size() == 25, "round " + std::to_string(round) + ": " +
                                     std::to_string(buffers.size()) + " blocks of 4 MiB fit");
    for (Buffer* buffer : buffers) hal::release(buffer);
  }
  bench.expect_no_broken_rule();
}

// STR-03 and STR-04: a recording keeps its memory and sees new values.
void graph(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  hal::Plan* plan = bench.adder();
  Buffer *x = bench.vector(queue), *out = bench.vector(queue);
  hal::Graph graph(queue);
  Buffer* temporary = bench.vector(queue, ANYHAL_PURPOSE_ARENA);
  bench.add(queue, plan, x, x, temporary);
  for (int i = 0; i < 200; ++i) bench.add(queue, plan, temporary, x, temporary);
  bench.add(queue, plan, temporary, x, out);
  hal::release(temporary);
  graph.end();
  std::vector<Buffer*> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(bench.vector(queue, ANYHAL_PURPOSE_ARENA));
    bench.put(queue, others.back(), 42);
  }
  for (int replay = 1; replay <= 5; ++replay) {
    bench.put(queue, x, static_cast<float>(replay));
    graph.launch();
    expect(bench.read(queue, out) == 203.0f * static_cast<float>(replay),
           "a stale value was replayed");
  }
  for (Buffer* other : others)
    expect(bench.read(queue, other) == 42, "a replay wrote into memory handed out later");
  bench.expect_no_broken_rule();
}

// STR-05: a capture that fails leaves the queue usable.
void failed_capture(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  hal::Plan* plan = bench.adder();
  Buffer *x = bench.vector(queue), *out = bench.vector(queue);
  bench.put(queue, x, 1);
  {
    hal::Graph broken(queue);
    bench.add(queue, plan, x, x, out);
    expect(caught([&] { hal::Graph second(queue); }).status == ANYHAL_STATUS_INVALID_ARGUMENT,
           "two captures of one queue at once");
  }
  hal::Graph graph(queue);
  bench.add(queue, plan, x, x, out);
  graph.end();
  graph.launch();
  expect(bench.read(queue, out) == 2, "the second capture does not work");
  bench.expect_no_broken_rule();
}

// MEM-09: nothing is left behind by a call.
void leaks(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  hal::Plan* plan = bench.adder();
  Buffer *x = bench.vector(queue), *out = bench.vector(queue);
  bench.put(queue, x, 1);
  const auto run = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      bench.add(queue, plan, x, x, out);
      if (i % 1000 == 999) queue.wait_all();
    }
    queue.wait_all();
  };
  run(1000);
  const uint64_t objects[] = {bench.counter(102), bench.counter(103), bench.counter(104)};
  run(100000);
  for (int kind = 0; kind < 3; ++kind)
    expect(bench.counter(102 + static_cast<uint64_t>(kind)) == objects[kind], "objects leak");
  expect(bench.counter(113) == 0, "calls are left in the queue");
  bench.expect_no_broken_rule();
}

void depth(const Bench& bench) {
  chain(bench);
  leaks(bench);
}

void workspace(const Bench& bench) {
  chain(bench);
  hazards(bench);
}

// A plan that goes away while its call has not run.
void plan_release(const Bench& bench) {
  Queue& queue = *bench.device->queue;
  Buffer *x = bench.vector(queue), *out = bench.vector(queue);
  bench.put(queue, x, 1);
  hal::Plan* plan = bench.adder();
  bench.add(queue, plan, x, x, out);
  hal::release(plan);
  expect(bench.read(queue, out) == 2, "the call was lost with its plan");
  bench.expect_no_broken_rule();
}

const std::map<std::string, std::function<void(const Bench&)>> kScenarios = {
    {"chain", chain},
    {"hazards", hazards},
    {"reuse", reuse},
    {"staging", staging},
    {"late", late_failure},
    {"lost", lost},
    {"trim", trim},
    {"graph", graph},
    {"failed_capture", failed_capture},
    {"leaks", leaks},
    {"depth", depth},
    {"workspace", workspace},
    {"plan_release", plan_release}};

}  // namespace

int main(int, char** arguments) {
  try {
    hal::Instance* instance = hal::load_instance(arguments[1], "test", {{"script", arguments[3]}});
    Device* device = hal::open_device(instance, 1, "test:0");
    kScenarios.at(arguments[2])({device, 64});
    std::puts("ok");
    return 0;
  } catch (const hal::Error& error) {
    std::printf("error %s: %s\n", hal::status_name(error.status), error.text.c_str());
  } catch (const std::string& text) {
    std::printf("wrong: %s\n", text.c_str());
  }
  return 1;
}
