// Streams and positions: native work in order, more positions than events, two queues in turns.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_TESTS_QUEUES_H_
#define BACKENDS_CUDA_TESTS_QUEUES_H_

#include <random>
#include <string>

#include "table_host.h"

namespace {

// The callback gets the stream and the addresses, once and in order.
inline void native(Host& h) {
  Floats a(h, 16, 1);
  anyhal_queue* q = h.queue();
  struct Seen {
    uint64_t stream, address;
    uint32_t type;
    int calls;
  } seen = {};
  const auto callback = [](void* argument, const anyhal_native_queue* given) {
    auto& s = *static_cast<Seen*>(argument);
    s = {given->handle, given->operands[0], given->type, s.calls + 1};
    return ANYHAL_STATUS_OK;
  };
  const anyhal_native_operand operand = {a.there, ANYHAL_ACCESS_READ, 0};
  h.status = h.t->queue_native(q, callback, &seen, &operand, 1, h.clear());
  CHECK(h.status == ANYHAL_STATUS_OK && seen.calls == 1, "%s", h.error.text);
  CHECK(seen.type == ANYHAL_NATIVE_CUDA_STREAM, "type %u", seen.type);
  uint64_t handle = 0;
  uint32_t type = 0, owned = 9;
  h.t->native_handle(h.reply.self, ANYHAL_OBJECT_QUEUE, reinterpret_cast<uint64_t>(q), &handle,
                     &type, &owned, h.clear());
  CHECK(handle == seen.stream && owned == 0, "the queue's stream");
  h.t->native_handle(h.reply.self, ANYHAL_OBJECT_MEMORY, a.there.memory, &handle, &type, &owned,
                     h.clear());
  CHECK(handle == seen.address, "the block's address");
  const auto refuses = [](void*, const anyhal_native_queue*) { return ANYHAL_STATUS_CANCELLED; };
  h.status = h.t->queue_native(q, refuses, nullptr, &operand, 1, h.clear());
  CHECK(h.status == ANYHAL_STATUS_CANCELLED, "%d", h.status);
  h.release(q);
  a.end(h);
}

// What the callback puts on the stream comes after what was queued before and before what follows.
inline void native_order(Host& h) {
  constexpr int64_t n = 4096;
  Floats x(h, n, 1), y(h, n, 0);
  anyhal_queue* q = h.queue();
  anyhal_plan* add = h.binary(ANYHAL_BINARY_FN_ADD, n);
  void* library =
      dlopen((std::string(given("ANYHAL_CUDA_DRIVER")) + "/libcuda.so.1").c_str(), RTLD_NOW);
  if (library == nullptr) library = dlopen("libcuda.so.1", RTLD_NOW);
  using Copy = int (*)(uint64_t to, uint64_t from, size_t bytes, void* stream);
  static const auto copy = reinterpret_cast<Copy>(dlsym(library, "cuMemcpyAsync"));
  const auto callback = [](void*, const anyhal_native_queue* given) {
    const int code =
        copy(given->operands[1], given->operands[0], n * 4, reinterpret_cast<void*>(given->handle));
    return code == 0 ? ANYHAL_STATUS_OK : ANYHAL_STATUS_EXECUTION_FAILED;
  };
  const anyhal_native_operand operands[] = {{x.there, ANYHAL_ACCESS_READ, 0},
                                            {y.there, ANYHAL_ACCESS_WRITE, 0}};
  h.copy(q, x.there, x.pinned, x.bytes);
  float want = 1;
  for (int round = 0; round < 6; ++round, want *= 4) {
    h.enqueue(q, add, {x.there, x.there, x.there});  // 2x
    h.status = h.t->queue_native(q, callback, nullptr, operands, 2, h.clear());
    CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
    h.enqueue(q, add, {y.there, x.there, x.there});  // 4x
  }
  h.copy(q, x.pinned, x.there, x.bytes);
  CHECK(h.finish(q, 1) == ANYHAL_STATUS_OK && x.host[n - 1] == want, "%g", x.host[n - 1]);
  h.release(add), h.release(q);
  x.end(h), y.end(h);
}

// More positions than a queue keeps events for: the oldest are waited for through a later one.
inline void many_positions(Host& h) {
  Floats x(h, 64, 0), one(h, 64, 1), seen(h, 64, 0);
  anyhal_queue *q = h.queue(), *other = h.queue();
  anyhal_plan* add = h.binary(ANYHAL_BINARY_FN_ADD, 64);
  h.copy(q, x.there, x.pinned, x.bytes);
  h.copy(q, one.there, one.pinned, one.bytes);
  for (uint64_t value = 1; value <= 300; ++value) {
    h.enqueue(q, add, {x.there, one.there, x.there});
    CHECK(h.t->queue_signal(q, 2 * value, h.clear()) == ANYHAL_STATUS_OK, "%s", h.error.text);
  }
  // Between two signals means the later one; the first of all is long out of the ring.
  for (uint64_t value : {uint64_t{1}, uint64_t{301}, uint64_t{600}}) {
    CHECK(h.t->queue_wait(other, q, value, h.clear()) == ANYHAL_STATUS_OK, "%s", h.error.text);
    h.copy(other, seen.pinned, x.there, x.bytes);
    CHECK(h.finish(other, value) == ANYHAL_STATUS_OK, "%s", h.error.text);
    const float least = static_cast<float>((value + 1) / 2);
    CHECK(seen.host[63] >= least, "%g of %g", seen.host[63], least);
  }
  CHECK(h.t->queue_wait(other, q, 601, h.clear()) == ANYHAL_STATUS_INVALID_ARGUMENT, "ahead");
  CHECK(h.t->queue_signal(q, 600, h.clear()) == ANYHAL_STATUS_INVALID_ARGUMENT, "not rising");
  CHECK(h.wait(q, 599) == ANYHAL_STATUS_OK && h.state.completed == 600, "%s", h.error.text);
  h.release(add), h.release(q), h.release(other);
  x.end(h), one.end(h), seen.end(h);
}

// Producer and consumer on two queues, `rounds` times in one buffer: each value must arrive.
inline void schedule(Host& h, int rounds) {
  constexpr int64_t n = 512;
  Floats x(h, n, 0), y(h, n, 0), one(h, n, 1);
  anyhal_queue *producer = h.queue(), *consumer = h.queue();
  anyhal_plan* add = h.binary(ANYHAL_BINARY_FN_ADD, n);
  h.t->queue_fill(producer, x.there, x.bytes, "\0\0\0\0", 4, h.clear());
  h.copy(producer, one.there, one.pinned, one.bytes);
  std::mt19937 random(static_cast<unsigned>(rounds));
  uint64_t produced = 0, consumed = 0;
  for (int round = 1; round <= rounds; ++round) {
    if (consumed != 0) h.t->queue_wait(producer, consumer, consumed, h.clear());
    h.enqueue(producer, add, {x.there, one.there, x.there});
    CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
    h.t->queue_signal(producer, ++produced, h.clear());
    h.t->queue_wait(consumer, producer, produced, h.clear());
    h.copy(consumer, y.there, x.there, x.bytes);
    h.copy(consumer, y.pinned, y.there, y.bytes);
    h.t->queue_signal(consumer, ++consumed, h.clear());
    if (random() % 3 != 0 && round != rounds) continue;
    CHECK(h.wait(consumer, consumed) == ANYHAL_STATUS_OK, "%s", h.error.text);
    const auto want = static_cast<float>(round);
    CHECK(y.host[0] == want && y.host[n - 1] == want, "round %d: %g", round, y.host[0]);
  }
  h.release(add), h.release(producer), h.release(consumer);
  x.end(h), y.end(h), one.end(h);
}

}  // namespace

#endif  // BACKENDS_CUDA_TESTS_QUEUES_H_
