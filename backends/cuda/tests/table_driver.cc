// Calls the CUDA backend's table directly, on the simulated driver: one scenario per run.
// SPDX-License-Identifier: Apache-2.0
// Usage: table_driver LIBRARY SCENARIO [ARGUMENTS]; exit 0 when all checks held.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "concurrency.h"
#include "everything.h"
#include "queues.h"
#include "table_host.h"

namespace {

// Up, add, down; then everything is given back.
void round_trip(Host& h) {
  constexpr int64_t n = 1000;
  Floats a(h, n, 2), b(h, n, 3), out(h, n, 0);
  anyhal_queue* q = h.queue();
  anyhal_plan* add = h.binary(ANYHAL_BINARY_FN_ADD, n);
  h.copy(q, a.there, a.pinned, a.bytes);
  h.copy(q, b.there, b.pinned, b.bytes);
  CHECK(h.enqueue(q, add, {a.there, b.there, out.there}) == ANYHAL_STATUS_OK, "%s", h.error.text);
  h.copy(q, out.pinned, out.there, out.bytes);
  CHECK(h.finish(q, 1) == ANYHAL_STATUS_OK, "%s", h.error.text);
  CHECK(out.host[0] == 5 && out.host[n - 1] == 5, "%g", out.host[0]);
  h.release(add);
  h.release(q);
  a.end(h), b.end(h), out.end(h);
}

// A list with a product that has a workspace, a copy, a fill and an add; replayed with new values,
// then with new operands, then on another queue.
void graph(Host& h) {
  constexpr int64_t n = 64;
  Floats a(h, n * n, 1), b(h, n * n, 2), product(h, n * n, 0), sum(h, n * n, 0), other(h, n * n, 5);
  anyhal_queue *q = h.queue(), *second = h.queue();
  const anyhal_prepared *prepared = nullptr, *of_product = nullptr;
  anyhal_plan* matmul = h.plan(ANYHAL_OP_MATMUL, {{n, n}, {n, n}, {n, n}}, nullptr, 0, &of_product);
  CHECK(matmul != nullptr, "%s", h.error.text);
  anyhal_plan* add = h.binary(ANYHAL_BINARY_FN_ADD, n * n);
  anyhal_graph_value values[4] = {};
  const anyhal_ref refs[] = {a.there, b.there, product.there, sum.there};
  for (uint32_t i = 0; i < 4; ++i) {
    values[i].size = sizeof values[i];
    values[i].kind = i == 2 ? ANYHAL_VALUE_INTERMEDIATE : ANYHAL_VALUE_BINDING;
    values[i].binding = i == 3 ? 2 : i;
    values[i].ref = refs[i];
  }
  const uint32_t of_matmul[] = {0, 1, 2}, of_add[] = {2, 0, 3}, of_fill[] = {3};
  const float nothing = 0;
  anyhal_graph_entry entries[3] = {};
  for (auto& entry : entries) entry.size = sizeof entry;
  entries[0].kind = entries[2].kind = ANYHAL_ENTRY_OP;
  entries[0].plan = matmul, entries[0].values = of_matmul, entries[0].value_count = 3;
  entries[1].kind = ANYHAL_ENTRY_FILL, entries[1].values = of_fill, entries[1].value_count = 1;
  entries[1].bytes = sum.bytes, entries[1].data = const_cast<float*>(&nothing);
  entries[2].plan = add, entries[2].values = of_add, entries[2].value_count = 3;
  anyhal_graph_desc desc = {};
  desc.size = sizeof desc;
  desc.mode = ANYHAL_GRAPH_RECORD;
  desc.value_count = 4, desc.entry_count = 3, desc.binding_count = 3;
  desc.values = values, desc.entries = entries;
  anyhal_plan* recorded = nullptr;
  uint32_t failing = 99;
  h.status = h.t->graph_prepare(h.device, &desc, &recorded, &prepared, &failing, h.clear());
  CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
  if (recorded == nullptr) return;
  CHECK(prepared->flags == (ANYHAL_PREPARED_SERIAL | ANYHAL_PREPARED_REBIND), "flags");
  CHECK(prepared->workspace_bytes == of_product->workspace_bytes, "entries share one workspace");
  const uint64_t bytes = prepared->workspace_bytes;
  const anyhal_ref workspace = bytes != 0 ? h.block(bytes) : anyhal_ref{0, 0};
  uint64_t value = 0;
  const auto launch = [&](anyhal_queue* on, Floats& x, float factor) {
    for (int64_t i = 0; i < n * n; ++i) x.host[i] = factor;
    h.copy(on, x.there, x.pinned, x.bytes);
    h.copy(on, b.there, b.pinned, b.bytes);
    h.enqueue(on, recorded, {x.there, b.there, sum.there}, workspace);
    CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
    h.copy(on, sum.pinned, sum.there, sum.bytes);
    CHECK(h.finish(on, ++value) == ANYHAL_STATUS_OK, "%s", h.error.text);
    const float want = factor * 2 * n + factor;
    CHECK(sum.host[0] == want && sum.host[n * n - 1] == want, "%g for %g", sum.host[0], want);
  };
  launch(q, a, 1);
  launch(q, a, 3);
  launch(q, other, 4);
  launch(q, a, 5);
  launch(second, a, 6);
  entries[0].values = of_add;  // now the product would be read before it is made; still a list
  entries[1].values = nullptr, entries[1].value_count = 0;
  anyhal_plan* broken = nullptr;
  h.status = h.t->graph_prepare(h.device, &desc, &broken, &prepared, &failing, h.clear());
  CHECK(h.status == ANYHAL_STATUS_INVALID_ARGUMENT && failing == 1, "%d at %u", h.status, failing);
  h.release(recorded), h.release(matmul), h.release(add);
  if (bytes != 0) h.release(workspace);
  h.release(q), h.release(second);
  a.end(h), b.end(h), product.end(h), sum.end(h), other.end(h);
}

// PTX of somebody else's kernel: out[i] = x[i] * factor.
void module(Host& h, const char* ptx) {
  constexpr int64_t n = 300;
  Floats x(h, n, 3), out(h, n, 0);
  anyhal_queue* q = h.queue();
  anyhal_payload payload = {};
  payload.size = sizeof payload;
  payload.format = ANYHAL_PAYLOAD_PTX;
  payload.bytes = ptx;
  payload.byte_count = std::strlen(ptx);
  payload.architecture = "compute_100";
  anyhal_module* loaded = nullptr;
  h.status = h.t->module_load(h.device, &payload, &loaded, h.clear());
  CHECK(h.status == ANYHAL_STATUS_UNSUPPORTED && h.error.reason == ANYHAL_REASON_ARCHITECTURE,
        "%d %s", h.status, h.error.text);
  payload.architecture = "compute_80";
  payload.bytes = "no ptx", payload.byte_count = 6;
  h.status = h.t->module_load(h.device, &payload, &loaded, h.clear());
  CHECK(h.status == ANYHAL_STATUS_INVALID_ARGUMENT && std::strstr(h.error.text, "ptxas") != nullptr,
        "%d %s", h.status, h.error.text);
  payload.bytes = ptx, payload.byte_count = std::strlen(ptx);
  h.status = h.t->module_load(h.device, &payload, &loaded, h.clear());
  CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
  const anyhal_parameter parameters[] = {{16, 4}, {20, 4}};
  anyhal_signature signature = {};
  signature.size = sizeof signature;
  signature.operand_count = 4;
  signature.parameter_count = 2;
  signature.parameters = parameters;
  signature.block[0] = 128, signature.block[1] = signature.block[2] = 1;
  signature.grid[0] = 3, signature.grid[1] = signature.grid[2] = 1;
  anyhal_plan* kernel = nullptr;
  const anyhal_prepared* prepared = nullptr;
  h.status = h.t->kernel_prepare(loaded, "no_such", &signature, &kernel, &prepared, h.clear());
  CHECK(h.status == ANYHAL_STATUS_NOT_FOUND, "%d %s", h.status, h.error.text);
  h.status = h.t->kernel_prepare(loaded, "scale", &signature, &kernel, &prepared, h.clear());
  CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
  const float factor = 7;
  const int32_t count = n;
  anyhal_ref by_value[2] = {};
  std::memcpy(&by_value[0], &factor, 4);
  std::memcpy(&by_value[1], &count, 4);
  h.copy(q, x.there, x.pinned, x.bytes);
  h.enqueue(q, kernel, {x.there, out.there, by_value[0], by_value[1]});
  CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
  h.copy(q, out.pinned, out.there, out.bytes);
  CHECK(h.finish(q, 1) == ANYHAL_STATUS_OK, "%s", h.error.text);
  CHECK(out.host[0] == 21 && out.host[n - 1] == 21, "%g", out.host[0]);
  h.release(kernel);
  h.release(ANYHAL_OBJECT_MODULE, reinterpret_cast<uint64_t>(loaded));
  h.release(q);
  x.end(h), out.end(h);
}

// An index that is outside is found by the kernel, told to the waiter, and kills that queue only.
void bad_index(Host& h) {
  Floats x(h, 8, 1), out(h, 2, 0);
  void* pointer = nullptr;
  const anyhal_ref indices = h.block(16, 1, &pointer);
  static_cast<int64_t*>(pointer)[0] = 3, static_cast<int64_t*>(pointer)[1] = -1;
  anyhal_queue *q = h.queue(), *healthy = h.queue();
  const anyhal_attrs_gather a = {sizeof a, 0, 0, 0};
  anyhal_plan* gather = h.plan(ANYHAL_OP_GATHER, {{8}, {2}, {2}}, &a, sizeof a, nullptr,
                               {ANYHAL_DTYPE_F32, ANYHAL_DTYPE_I64, ANYHAL_DTYPE_F32});
  h.t->queue_fill(q, out.there, out.bytes, "\7", 1, h.clear());
  CHECK(h.enqueue(q, gather, {x.there, indices, out.there}, {0, 0}, 41) == ANYHAL_STATUS_OK, "%s",
        h.error.text);
  // A second one, whose queue has failed by then: the first is the one that is told.
  CHECK(h.enqueue(q, gather, {x.there, indices, out.there}, {0, 0}, 42) == ANYHAL_STATUS_OK, "%s",
        h.error.text);
  h.copy(q, out.pinned, out.there, out.bytes);
  CHECK(h.t->queue_signal(q, 5, h.clear()) == ANYHAL_STATUS_OK, "%s", h.error.text);
  // Behind the position that is waited for; over all the same when the failure is told.
  Floats later(h, 8, 2), kept(h, 8, 1);
  for (int i = 0; i < 200; ++i) h.copy(q, later.there, kept.there, later.bytes);
  CHECK(h.wait(q, 5) == ANYHAL_STATUS_INVALID_ARGUMENT, "%d", h.status);
  CHECK(std::strstr(h.error.text, "index -1 is outside [0, 8)") != nullptr, "%s", h.error.text);
  CHECK(h.state.status == ANYHAL_STATUS_INVALID_ARGUMENT && h.state.failed_value == 5 &&
            h.state.failed_tag == 41 && h.state.completed == 0,
        "%u %llu", h.state.status, static_cast<unsigned long long>(h.state.failed_value));
  CHECK(h.wait(q, 5) == ANYHAL_STATUS_INVALID_ARGUMENT, "again %d", h.status);
  // Index 3 is good, and yet nothing was written.
  CHECK(std::memcmp(out.host, "\7\7\7\7\7\7\7\7", 8) == 0, "%g %g", out.host[0], out.host[1]);
  CHECK(h.enqueue(q, gather, {x.there, indices, out.there}) == ANYHAL_STATUS_EXECUTION_FAILED,
        "dead");
  CHECK(h.copy(q, out.pinned, out.there, out.bytes) == ANYHAL_STATUS_EXECUTION_FAILED, "dead");
  CHECK(h.t->queue_signal(q, 6, h.clear()) == ANYHAL_STATUS_EXECUTION_FAILED, "dead");
  h.copy(healthy, later.there, later.pinned, later.bytes);
  CHECK(h.finish(healthy, 1) == ANYHAL_STATUS_OK, "%s", h.error.text);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  h.copy(healthy, kept.pinned, later.there, later.bytes);
  CHECK(h.finish(healthy, 2) == ANYHAL_STATUS_OK && kept.host[7] == 2, "%g", kept.host[7]);
  h.release(gather), h.release(q), h.release(healthy), h.release(indices);
  x.end(h), out.end(h), later.end(h), kept.end(h);
}

// What a device that died answers, everywhere and always the same.
void loss(Host& h, const char* path) {
  Floats a(h, 64, 1), b(h, 64, 2), out(h, 64, 0);
  anyhal_queue* q = h.queue();
  anyhal_plan* add = h.binary(ANYHAL_BINARY_FN_ADD, 64);
  h.copy(q, a.there, a.pinned, a.bytes);
  h.enqueue(q, add, {a.there, b.there, out.there});
  CHECK(h.finish(q, 1) == ANYHAL_STATUS_DEVICE_LOST, "%d %s", h.status, h.error.text);
  CHECK(h.state.status == ANYHAL_STATUS_DEVICE_LOST && h.state.failed_value == 1, "state");
  CHECK(h.error.vendor_code == 719, "%lld", static_cast<long long>(h.error.vendor_code));
  const std::string first = h.error.text;
  CHECK(h.copy(q, a.there, a.pinned, a.bytes) == ANYHAL_STATUS_DEVICE_LOST, "%d", h.status);
  CHECK(first == h.error.text, "%s", h.error.text);
  CHECK(h.enqueue(q, add, {a.there, b.there, out.there}) == ANYHAL_STATUS_DEVICE_LOST, "lost");
  h.block(1000);
  CHECK(h.status == ANYHAL_STATUS_DEVICE_LOST && first == h.error.text, "%s", h.error.text);
  CHECK(h.wait(q, 1, 0) == ANYHAL_STATUS_DEVICE_LOST, "%d", h.status);
  Host other(path, 1);  // another device of the machine goes on
  round_trip(other);
  CHECK(other.close() == ANYHAL_STATUS_OK, "%s", other.error.text);
  for (anyhal_ref ref : {a.pinned, a.there, b.pinned, b.there, out.pinned, out.there})
    CHECK(h.release(ANYHAL_OBJECT_MEMORY, ref.memory, ANYHAL_RELEASE_ABANDON) == ANYHAL_STATUS_OK,
          "abandoned");
  h.release(ANYHAL_OBJECT_PLAN, reinterpret_cast<uint64_t>(add), ANYHAL_RELEASE_ABANDON);
  h.release(ANYHAL_OBJECT_QUEUE, reinterpret_cast<uint64_t>(q), ANYHAL_RELEASE_ABANDON);
  CHECK(h.close(ANYHAL_RELEASE_ABANDON) == ANYHAL_STATUS_OK, "abandoned");
}

// Memory runs out in a call: nothing happened, and it works again when there is room.
void out_of_memory(Host& h) {
  std::vector<anyhal_ref> blocks;
  while (blocks.size() < 1000) {
    const anyhal_ref ref = h.block(8 << 20);
    if (ref.memory == 0) break;
    blocks.push_back(ref);
  }
  CHECK(h.status == ANYHAL_STATUS_OUT_OF_MEMORY, "%d %s", h.status, h.error.text);
  CHECK(blocks.size() >= 6 && blocks.size() <= 8, "%zu blocks", blocks.size());
  CHECK(h.block(1ull << 60).memory == 0 && h.status == ANYHAL_STATUS_OUT_OF_MEMORY, "2^60 bytes");
  h.release(blocks.back());
  const anyhal_ref again = h.block(8 << 20);
  CHECK(again.memory != 0, "%s", h.error.text);
  blocks.back() = again;
  for (anyhal_ref ref : blocks) CHECK(h.release(ref) == ANYHAL_STATUS_OK, "%s", h.error.text);
}

// Memory of one device to the other and back.
void peers(Host& h, const char* path) {
  Host other(path, 1);
  (void)other;
  Floats a(h, 256, 9), back(h, 256, 0);
  // Both devices of one instance: the second is opened through the first one's table.
  anyhal_device* second = nullptr;
  uint64_t block = 0;
  h.status = h.t->device_open(h.reply.self, 1, nullptr, 0, &second, &block, h.clear());
  CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
  anyhal_device* first = h.device;
  anyhal_queue* q = h.queue();
  h.device = second;
  const anyhal_ref there = h.block(a.bytes);
  anyhal_queue* q2 = h.queue();
  h.device = first;
  h.copy(q, a.there, a.pinned, a.bytes);
  CHECK(h.copy(q, there, a.there, a.bytes) == ANYHAL_STATUS_OK, "%s", h.error.text);
  h.t->queue_signal(q, 1, h.clear());
  h.status = h.t->queue_wait(q2, q, 1, h.clear());
  CHECK(h.status == ANYHAL_STATUS_OK, "%s", h.error.text);
  CHECK(h.t->queue_wait(q2, q, 2, h.clear()) == ANYHAL_STATUS_INVALID_ARGUMENT, "not submitted");
  CHECK(h.copy(q2, back.there, there, a.bytes) == ANYHAL_STATUS_OK, "%s", h.error.text);
  CHECK(h.finish(q2, 1) == ANYHAL_STATUS_OK, "%s", h.error.text);
  h.copy(q, back.pinned, back.there, back.bytes);
  CHECK(h.finish(q, 2) == ANYHAL_STATUS_OK && back.host[255] == 9, "%g", back.host[255]);
  uint32_t edge = 9;
  uint64_t bytes = sizeof edge;
  h.t->device_query(h.device, ANYHAL_QUERY_EDGE, 1, &edge, &bytes, h.clear());
  const bool apart = std::strstr(given("CUDA_DOUBLE"), "peers=0") != nullptr;
  CHECK(edge == (apart ? 0u : 2u), "edge %u", edge);
  h.release(q), h.release(q2), h.release(there);
  a.end(h), back.end(h);
  h.release(ANYHAL_OBJECT_DEVICE, reinterpret_cast<uint64_t>(second));
  CHECK(other.close() == ANYHAL_STATUS_OK, "%s", other.error.text);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const std::string scenario = arguments[2];
  Host h(arguments[1], count > 4 ? std::strtoull(arguments[4], nullptr, 10) : 0);
  if (h.device == nullptr) {
    std::printf("refused %d %d %s\n", h.status, h.error.reason, h.error.text);
    return h.error.text[0] == 0 || scenario != "everything";
  }
  if (scenario == "everything") {
    Everything(h).run();
    return failures != 0;
  }
  if (scenario == "round_trip") round_trip(h);
  if (scenario == "graph") graph(h);
  if (scenario == "native") native(h), native_order(h);
  if (scenario == "many_positions") many_positions(h);
  if (scenario == "module") module(h, arguments[3]);
  if (scenario == "bad_index") bad_index(h);
  if (scenario == "out_of_memory") out_of_memory(h);
  if (scenario == "peers") peers(h, arguments[1]);
  if (scenario == "schedule") schedule(h, std::atoi(arguments[3]));
  if (scenario == "replays") replays(h, std::atoi(arguments[3]));
  if (scenario == "recapture") recapture(h);
  if (scenario == "beside") beside(h);
  if (scenario == "products") products(h);
  if (scenario == "loss") {
    loss(h, arguments[1]);
  } else {
    CHECK(h.close() == ANYHAL_STATUS_OK, "%s", h.error.text);
  }
  return failures != 0;
}
