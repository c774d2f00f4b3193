// Running a plan on a queue: packs, workspace, hazards, capture, counters, receipts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "core/plan.hpp"
#include "core/queue.hpp"

namespace hal {

// An operand of a call. `data`: an address on devices with an address block, else an offset into
// the buffer's block. Absent: both zero. A value of a user's kernel: no buffer, its bytes.
struct Operand {
  uint64_t data = 0;
  Buffer* buffer = nullptr;
};

inline anyhal_ref ref_of(const Device& device, const Operand& o) {
  if (!o.buffer) return {o.data, 0};
  return {device.address_block ? device.address_block : o.buffer->memory, o.data};
}

// Where a buffer's first byte is, as Operand::data.
inline uint64_t data_of(const Buffer& b) {
  return b.device->address_block ? reinterpret_cast<uint64_t>(b.host) : b.offset;
}

// Where the host finds it, on a device whose memory the host addresses.
inline uint64_t host_address(const Operand& o) {
  const Buffer& b = *o.buffer;
  return b.device->address_block ? o.data : reinterpret_cast<uint64_t>(b.host) + o.data - b.offset;
}

// The general path; throws Error. While the queue captures, records instead of running.
HAL_API void run_plan(Plan& plan, const Operand* operands, Queue& queue);

// The short path for a simple plan on an idle synchronous queue: refs, one indirect call. The
// caller holds the queue's lock.
inline anyhal_status run_simple_locked(Plan& plan, const anyhal_ref* refs, uint32_t count,
                                       Queue& queue, anyhal_error* error) {
  anyhal_call call;
  call.size = sizeof(call);
  call.flags = 0;
  call.tag = plan.id;
  call.operands = refs;
  call.extents = nullptr;
  call.operand_count = count;
  call.extent_count = 0;
  call.workspace = {0, 0};
  call.reserved = 0;
  const anyhal_status status = plan.enqueue(queue.handle, plan.handle, &call, error);
  queue.accept(status == ANYHAL_STATUS_OK);
  plan.calls.store(plan.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return status;
}
inline anyhal_status run_simple(Plan& plan, const anyhal_ref* refs, uint32_t count, Queue& queue,
                                anyhal_error* error) {
  queue.lock.lock();
  const anyhal_status status = run_simple_locked(plan, refs, count, queue, error);
  queue.lock.unlock();
  return status;
}

// Orders, runs, counts and stamps one call whose refs and workspace are already in `call`.
void run_recorded(Plan& plan, const Operand* operands, const anyhal_call& call, Queue& queue);

// Turns an enqueue failure into an Error that names op and device; a lost device is marked.
[[noreturn]] HAL_API void raise_call(Plan& plan, anyhal_status status, const anyhal_error& error);

// Bytes from one buffer to another of the same device, queued.
HAL_API void copy_bytes(Queue& queue, const Operand& to, const Operand& from, uint64_t bytes);

// Work of the caller's own among a queue's calls: `operands` are what it touches, bit i of `reads`
// and `writes` says how. The callback runs before return and under no lock of the queue, which
// takes the general path meanwhile. Where the backend has no native queue and computes in host
// memory, the callback is the work itself.
HAL_API void run_native(Queue& queue, anyhal_native_fn callback, void* argument,
                        const Operand* operands, uint32_t reads, uint32_t writes, uint32_t count);

// ---- receipts

struct Receipt {
  uint64_t sequence, plan_id, time_ns;
  uint32_t op;
  int32_t status;
};
// Off by default; on: each run leaves a record (and its time) in a ring of the last 4096.
HAL_API void set_receipts(bool on);
extern HAL_API std::atomic<bool> g_receipts;
inline bool receipts_on() { return g_receipts.load(std::memory_order_relaxed); }
HAL_API std::vector<Receipt> read_receipts();
void receipts_before_fork();
void receipts_after_fork();
void record_receipt(const Plan& plan, int32_t status, uint64_t time_ns);
HAL_API uint64_t now_ns();

}  // namespace hal
