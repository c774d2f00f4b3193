// Threads, captures that fail, and captures beside other work: field cases of stream capture.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_TESTS_CONCURRENCY_H_
#define BACKENDS_CUDA_TESTS_CONCURRENCY_H_

#include <cstring>
#include <thread>

#include "table_host.h"

namespace {

// A list of `count` adds, each onto the last: out[0] = a + b, out[i] = out[i - 1] + b.
struct Chain {
  Chain(Host& host, int count)
      : h(host), x(host, kLength, 1), step(host, kLength, 0), sum(host, kLength, 0) {
    add = h.binary(ANYHAL_BINARY_FN_ADD, kLength);
    const anyhal_ref refs[] = {x.there, step.there, sum.there};
    for (uint32_t i = 0; i < 3; ++i)
      values[i] = {sizeof values[i], 0, ANYHAL_VALUE_FIXED, 0, nullptr, refs[i]};
    entries.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < entries.size(); ++i) {
      anyhal_graph_entry& entry = entries[i];
      entry = {};
      entry.size = sizeof entry;
      entry.kind = ANYHAL_ENTRY_OP;
      entry.plan = add;
      entry.values = i == 0 ? first : later;
      entry.value_count = 3;
    }
  }

  anyhal_status record() {
    anyhal_graph_desc desc = {};
    desc.size = sizeof desc;
    desc.mode = ANYHAL_GRAPH_RECORD;
    desc.value_count = 3;
    desc.entry_count = static_cast<uint32_t>(entries.size());
    desc.values = values;
    desc.entries = entries.data();
    const anyhal_prepared* prepared = nullptr;
    uint32_t failing = 0;
    plan = nullptr;
    error.size = sizeof error;
    return h.t->graph_prepare(h.device, &desc, &plan, &prepared, &failing, &error);
  }

  // The step is written before each launch; every node must see the new one.
  void replay(anyhal_queue* q, uint64_t value, float by) {
    for (int64_t i = 0; i < kLength; ++i) step.host[i] = by;
    h.copy(q, x.there, x.pinned, x.bytes);
    h.copy(q, step.there, step.pinned, step.bytes);
    CHECK(h.enqueue(q, plan, {}) == ANYHAL_STATUS_OK, "%s", h.error.text);
    h.copy(q, sum.pinned, sum.there, sum.bytes);
    CHECK(h.finish(q, value) == ANYHAL_STATUS_OK, "%s", h.error.text);
    const float want = 1 + by * static_cast<float>(entries.size());
    CHECK(sum.host[kLength - 1] == want, "%g for %g", sum.host[kLength - 1], want);
  }

  void end() {
    if (plan != nullptr) h.release(plan);
    h.release(add);
    x.end(h), step.end(h), sum.end(h);
  }

  static constexpr int64_t kLength = 40;
  static constexpr uint32_t first[] = {0, 1, 2}, later[] = {2, 1, 2};
  Host& h;
  Floats x, step, sum;
  anyhal_plan *add, *plan = nullptr;
  anyhal_graph_value values[3];
  std::vector<anyhal_graph_entry> entries;
  anyhal_error error = {};
};

// STR-04: replays of any length see new values.
inline void replays(Host& h, int count) {
  Chain chain(h, count);
  anyhal_queue* q = h.queue();
  CHECK(chain.record() == ANYHAL_STATUS_OK, "%s", chain.error.text);
  for (uint64_t i = 1; i <= 5; ++i) chain.replay(q, i, static_cast<float>(i));
  h.release(q);
  chain.end();
}

// STR-05: the first end of a capture fails (by script); the next capture works.
inline void recapture(Host& h) {
  Chain chain(h, 3);
  anyhal_queue* q = h.queue();
  CHECK(chain.record() == ANYHAL_STATUS_INTERNAL && chain.error.vendor_code == 901, "%s",
        chain.error.text);
  CHECK(chain.record() == ANYHAL_STATUS_OK, "%s", chain.error.text);
  chain.replay(q, 1, 2);
  h.release(q);
  chain.end();
}

// STR-06: one thread records while another allocates, polls and prepares.
inline void beside(Host& h) {
  Chain chain(h, 300);
  anyhal_queue* q = h.queue();
  std::atomic<bool> done{false};
  std::thread other([&] {
    anyhal_error error = {};
    error.size = sizeof error;
    while (!done.load()) {
      anyhal_memory_request request = {};
      request.size = sizeof request;
      request.bytes = 4096;
      anyhal_memory_block block = {};
      block.size = sizeof block;
      CHECK(h.t->memory_alloc(h.device, &request, &block, &error) == ANYHAL_STATUS_OK, "%s",
            error.text);
      h.t->release(h.reply.self, ANYHAL_OBJECT_MEMORY, block.memory, 0, &error);
      uint64_t free_bytes = 0, size = sizeof free_bytes;
      h.t->device_query(h.device, ANYHAL_QUERY_FREE_BYTES, 0, &free_bytes, &size, &error);
    }
  });
  for (int round = 0; round < 10; ++round) {
    CHECK(chain.record() == ANYHAL_STATUS_OK, "%s", chain.error.text);
    if (round != 9) h.release(chain.plan);
  }
  done.store(true);
  other.join();
  chain.replay(q, 1, 1);
  h.release(q);
  chain.end();
}

// STR-07: eight threads, a queue each, one product plan for all.
inline void products(Host& h) {
  constexpr int64_t n = 16;
  const anyhal_prepared* prepared = nullptr;
  anyhal_plan* plan = h.plan(ANYHAL_OP_MATMUL, {{n, n}, {n, n}, {n, n}}, nullptr, 0, &prepared);
  struct Lane {
    Lane(Host& h, float value) : x(h, n * n, value), out(h, n * n, 0), q(h.queue()) {}
    Floats x, out;
    anyhal_queue* q;
    anyhal_ref workspace;
  };
  std::vector<Lane> lanes;
  for (int i = 0; i < 8; ++i) {
    lanes.emplace_back(h, static_cast<float>(i + 1));
    lanes.back().workspace =
        prepared->workspace_bytes != 0 ? h.block(prepared->workspace_bytes) : anyhal_ref{0, 0};
  }
  const auto work = [&](Lane& lane, float value) {
    anyhal_error error = {};
    error.size = sizeof error;
    anyhal_queue_state state = {};
    state.size = sizeof state;
    const anyhal_ref refs[] = {lane.x.there, lane.x.there, lane.out.there};
    for (uint64_t round = 1; round <= 20; ++round) {
      const anyhal_copy_region up = {lane.x.there, lane.x.pinned, lane.x.bytes};
      const anyhal_copy_region down = {lane.out.pinned, lane.out.there, lane.out.bytes};
      anyhal_call call = {};
      call.size = sizeof call;
      call.operands = refs, call.operand_count = 3, call.workspace = lane.workspace;
      h.t->queue_copy(lane.q, &up, 1, &error);
      CHECK(h.t->op_enqueue(lane.q, plan, &call, &error) == ANYHAL_STATUS_OK, "%s", error.text);
      h.t->queue_copy(lane.q, &down, 1, &error);
      h.t->queue_signal(lane.q, round, &error);
      CHECK(h.t->host_wait(lane.q, round, 20 * kSecond, &state, &error) == ANYHAL_STATUS_OK, "%s",
            error.text);
      CHECK(lane.out.host[n] == value * value * n, "%g of %g", lane.out.host[n], value);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back(work, std::ref(lanes[static_cast<size_t>(i)]), static_cast<float>(i + 1));
  for (std::thread& thread : threads) thread.join();
  for (Lane& lane : lanes) {
    h.release(lane.q);
    if (lane.workspace.memory != 0) h.release(lane.workspace);
    lane.x.end(h), lane.out.end(h);
  }
  h.release(plan);
}

}  // namespace

#endif  // BACKENDS_CUDA_TESTS_CONCURRENCY_H_
