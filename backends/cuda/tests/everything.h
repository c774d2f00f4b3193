// One run through all of the table, for tests in which some call of the driver fails.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_TESTS_EVERYTHING_H_
#define BACKENDS_CUDA_TESTS_EVERYTHING_H_

#include <cstring>

#include "table_host.h"

namespace {

// Everything once, whatever fails: statuses must be typed, nothing may be left, nothing may crash.
class Everything {
 public:
  explicit Everything(Host& host) : h(host), a(host, 64, 1), b(host, 64, 2), out(host, 64, 0) {
    worst = h.worst;  // of several blocks; the last text need not be that of the failure
  }

  void run() {
    large = taken(h.block(4 << 20));
    q = h.queue(), keep(h.status);
    q2 = h.queue(), keep(h.status);
    add = h.binary(ANYHAL_BINARY_FN_ADD, 64), keep(h.status);
    const bool ready = a.there.memory && b.there.memory && out.there.memory && a.pinned.memory &&
                       out.pinned.memory && q && add;
    if (ready) {
      copies();
      product();
      gather();
      graph();
      module();
      waits();
    }
    import();
    second_device();
    end();
    std::printf("worst %d\n", worst != ANYHAL_STATUS_OK ? worst : h.worst);
  }

 private:
  bool keep(anyhal_status status) {
    if (status == ANYHAL_STATUS_OK) return true;
    if (worst == ANYHAL_STATUS_OK) worst = status;
    CHECK(h.error.text[0] != 0, "status %d without a text", status);
    return false;
  }
  anyhal_ref taken(anyhal_ref ref) {
    keep(h.status);
    return ref;
  }

  void copies() {
    keep(h.copy(q, a.there, a.pinned, a.bytes));
    keep(h.t->queue_fill(q, b.there, b.bytes, "\0\0\0\0", 4, h.clear()));
    keep(h.t->queue_fill(q, out.there, out.bytes, "\1", 1, h.clear()));
    keep(h.t->queue_fill(q, out.there, out.bytes, "\1\1", 2, h.clear()));
    keep(h.enqueue(q, add, {a.there, b.there, out.there}));
  }

  void product() {
    const anyhal_prepared* prepared = nullptr;
    matmul = h.plan(ANYHAL_OP_MATMUL, {{8, 8}, {8, 8}, {8, 8}}, nullptr, 0, &prepared);
    if (!keep(h.status)) return;
    if (prepared->workspace_bytes) workspace = taken(h.block(prepared->workspace_bytes));
    if (workspace.memory || prepared->workspace_bytes == 0)
      keep(h.enqueue(q, matmul, {a.there, b.there, out.there}, workspace));
  }

  // The indices are zeros of b.
  void gather() {
    const anyhal_attrs_gather of = {sizeof of, 0, 0, 0};
    anyhal_plan* plan = h.plan(ANYHAL_OP_GATHER, {{64}, {4}, {4}}, &of, sizeof of, nullptr,
                               {ANYHAL_DTYPE_F32, ANYHAL_DTYPE_I64, ANYHAL_DTYPE_F32});
    if (!keep(h.status)) return;
    keep(h.enqueue(q, plan, {a.there, b.there, out.there}));
    keep(h.release(plan));
  }

  void graph() {
    anyhal_graph_value values[3] = {};
    const anyhal_ref refs[] = {a.there, b.there, out.there};
    for (uint32_t i = 0; i < 3; ++i)
      values[i] = {sizeof values[i], 0, ANYHAL_VALUE_BINDING, i, nullptr, refs[i]};
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
    anyhal_plan* made = nullptr;
    const anyhal_prepared* prepared = nullptr;
    uint32_t failing = 0;
    if (!keep(h.t->graph_prepare(h.device, &desc, &made, &prepared, &failing, h.clear()))) return;
    keep(h.enqueue(q, made, {a.there, b.there, out.there}));
    keep(h.enqueue(q, made, {b.there, a.there, out.there}));
    keep(h.finish(q, 1));
    keep(h.release(made));
  }

  // Somebody else's kernel, with more shared memory than is there unasked.
  void module() {
    const char ptx[] = ".version 8.1\n.target sm_80\n.visible .entry scale(\n";
    anyhal_payload payload = {};
    payload.size = sizeof payload;
    payload.format = ANYHAL_PAYLOAD_PTX;
    payload.bytes = ptx, payload.byte_count = sizeof ptx - 1;
    payload.architecture = "compute_80";
    anyhal_module* loaded = nullptr;
    if (!keep(h.t->module_load(h.device, &payload, &loaded, h.clear()))) return;
    anyhal_signature signature = {};
    signature.size = sizeof signature;
    signature.operand_count = 2;
    signature.shared_bytes = 64 << 10;
    for (int d = 0; d < 3; ++d) signature.grid[d] = signature.block[d] = 1;
    anyhal_plan* kernel = nullptr;
    const anyhal_prepared* prepared = nullptr;
    if (keep(h.t->kernel_prepare(loaded, "scale", &signature, &kernel, &prepared, h.clear())))
      keep(h.release(kernel));
    keep(h.release(ANYHAL_OBJECT_MODULE, reinterpret_cast<uint64_t>(loaded)));
  }

  void waits() {
    if (keep(h.t->queue_signal(q, 2, h.clear())) && q2) keep(h.t->queue_wait(q2, q, 2, h.clear()));
    keep(h.wait(q, 2));
    if (q2 && keep(h.t->queue_signal(q2, 1, h.clear()))) keep(h.wait(q2, 1));
    uint64_t free_bytes = 0, size = sizeof free_bytes;
    keep(h.t->device_query(h.device, ANYHAL_QUERY_FREE_BYTES, 0, &free_bytes, &size, h.clear()));
  }

  void import() {
    alignas(4096) static char page[4096];
    anyhal_memory_import given = {};
    given.size = sizeof given;
    given.type = ANYHAL_IMPORT_HOST_POINTER;
    given.handle = reinterpret_cast<uint64_t>(page);
    given.bytes = sizeof page;
    anyhal_memory_block block = {};
    block.size = sizeof block;
    if (keep(h.t->memory_import(h.device, &given, &block, h.clear())))
      keep(h.release(ANYHAL_OBJECT_MEMORY, block.memory));
  }

  void second_device() {
    uint32_t edge = 0;
    uint64_t size = sizeof edge, address_block = 0;
    keep(h.t->device_query(h.device, ANYHAL_QUERY_EDGE, 1, &edge, &size, h.clear()));
    anyhal_device *first = h.device, *second = nullptr;
    if (!keep(h.t->device_open(h.reply.self, 1, nullptr, 0, &second, &address_block, h.clear())))
      return;
    h.device = second;
    const anyhal_ref there = taken(h.block(256));
    h.device = first;
    if (there.memory && q && a.there.memory) {
      keep(h.copy(q, there, a.there, 256));
      if (!keep(h.finish(q, 3))) keep(h.finish(q, 4));  // it may not go while it is written
    }
    if (there.memory) keep(h.release(there));
    keep(h.release(ANYHAL_OBJECT_DEVICE, reinterpret_cast<uint64_t>(second)));
  }

  void end() {
    for (anyhal_plan* plan : {add, matmul})
      if (plan) keep(h.release(plan));
    for (anyhal_queue* one : {q, q2})
      if (one) keep(h.release(one));
    for (anyhal_ref ref :
         {workspace, large, a.pinned, a.there, b.pinned, b.there, out.pinned, out.there})
      if (ref.memory) keep(h.release(ref));
    keep(h.close());
  }

  Host& h;
  Floats a, b, out;
  anyhal_ref large = {0, 0}, workspace = {0, 0};
  anyhal_queue *q = nullptr, *q2 = nullptr;
  anyhal_plan *add = nullptr, *matmul = nullptr;
  anyhal_status worst = ANYHAL_STATUS_OK;
};

}  // namespace

#endif  // BACKENDS_CUDA_TESTS_EVERYTHING_H_
