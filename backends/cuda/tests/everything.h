// One run through most of the table, for tests in which some call of the driver fails.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_TESTS_EVERYTHING_H_
#define BACKENDS_CUDA_TESTS_EVERYTHING_H_

#include "table_host.h"

namespace {

// Everything once, whatever fails: statuses must be typed, nothing may be left, nothing may crash.
inline void everything(Host& h) {
  anyhal_status worst = ANYHAL_STATUS_OK;
  const auto keep = [&](anyhal_status status) {
    if (status == ANYHAL_STATUS_OK) return true;
    if (worst == ANYHAL_STATUS_OK) worst = status;
    CHECK(h.error.text[0] != 0, "status %d without a text", status);
    return false;
  };
  Floats a(h, 64, 1), b(h, 64, 2), out(h, 64, 0);
  keep(h.status);
  const anyhal_ref large = h.block(4 << 20);
  keep(h.status);
  anyhal_queue* q = h.queue();
  keep(h.status);
  anyhal_queue* q2 = h.queue();
  keep(h.status);
  anyhal_plan* add = h.binary(ANYHAL_BINARY_FN_ADD, 64);
  keep(h.status);
  const anyhal_prepared* prepared = nullptr;
  anyhal_plan* matmul = h.plan(ANYHAL_OP_MATMUL, {{8, 8}, {8, 8}, {8, 8}}, nullptr, 0, &prepared);
  keep(h.status);
  const anyhal_ref workspace =
      matmul && prepared->workspace_bytes ? h.block(prepared->workspace_bytes) : anyhal_ref{0, 0};
  const bool ready = a.there.memory && b.there.memory && out.there.memory && a.pinned.memory &&
                     out.pinned.memory && q && add;
  if (ready) {
    keep(h.copy(q, a.there, a.pinned, a.bytes));
    keep(h.t->queue_fill(q, b.there, b.bytes, "\0\0\0\0", 4, h.clear()));
    keep(h.t->queue_fill(q, out.there, out.bytes, "\1", 1, h.clear()));
    keep(h.t->queue_fill(q, out.there, out.bytes, "\1\1", 2, h.clear()));
    keep(h.enqueue(q, add, {a.there, b.there, out.there}));
    if (matmul && (workspace.memory || prepared->workspace_bytes == 0))
      keep(h.enqueue(q, matmul, {a.there, b.there, out.there}, workspace));
    anyhal_graph_value values[3] = {};
    for (uint32_t i = 0; i < 3; ++i)
      values[i] = {sizeof values[i],
                   0,
                   ANYHAL_VALUE_BINDING,
                   i,
                   nullptr,
                   i == 0   ? a.there
                   : i == 1 ? b.there
                            : out.there};
    const uint32_t numbers[] = {0, 1, 2};
    anyhal_graph_entry entry = {};
    entry.size = sizeof entry;
    entry.kind = ANYHAL_ENTRY_OP;
    entry.plan = add, entry.values = numbers, entry.value_count = 3;
    anyhal_graph_desc desc = {};
    desc.size = sizeof desc;
    desc.mode = ANYHAL_GRAPH_RECORD;
    desc.value_count = desc.binding_count = 3, desc.entry_count = 1;
    desc.values = values, desc.entries = &entry;
    anyhal_plan* graph = nullptr;
    uint32_t failing = 0;
    if (keep(h.t->graph_prepare(h.device, &desc, &graph, &prepared, &failing, h.clear()))) {
      keep(h.enqueue(q, graph, {a.there, b.there, out.there}));
      keep(h.enqueue(q, graph, {b.there, a.there, out.there}));
      keep(h.finish(q, 1));
      keep(h.release(graph));
    }
    if (keep(h.t->queue_signal(q, 2, h.clear())) && q2) keep(h.t->queue_wait(q2, q, 2, h.clear()));
    keep(h.wait(q, 2));
    uint64_t free_bytes = 0, size = sizeof free_bytes;
    keep(h.t->device_query(h.device, ANYHAL_QUERY_FREE_BYTES, 0, &free_bytes, &size, h.clear()));
  }
  if (add) keep(h.release(add));
  if (matmul) keep(h.release(matmul));
  if (q) keep(h.release(q));
  if (q2) keep(h.release(q2));
  if (workspace.memory) keep(h.release(workspace));
  if (large.memory) keep(h.release(large));
  for (anyhal_ref ref : {a.pinned, a.there, b.pinned, b.there, out.pinned, out.there})
    if (ref.memory) keep(h.release(ref));
  keep(h.close());
  std::printf("worst %d\n", worst != ANYHAL_STATUS_OK ? worst : h.worst);
}

}  // namespace

#endif  // BACKENDS_CUDA_TESTS_EVERYTHING_H_
