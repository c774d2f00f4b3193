// Buffers and the pools they come from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/lock.hpp"

namespace hal {

struct Device;
struct Queue;
struct Buffer;

inline constexpr int kPurposes = 6;
HAL_API const char* purpose_name(uint32_t purpose);
// Fills what synchronous devices hand out with NaN bytes.
HAL_API void set_debug_pool(bool on);

// Where a queue stood when it last touched a buffer.
struct Use {
  Queue* queue;
  uint64_t value;
};

// A packed copy of a constant, made for plans that ask for this layout.
struct Packed {
  std::string key;  // layout key, source offset and bytes
  Buffer* buffer;
  Packed* next;
};

// Reference-counted bytes in one memory kind. Small ones share a block of their pool.
struct Buffer {
  std::atomic<uint32_t> refs{1};
  uint32_t purpose = 0;
  int32_t size_class = -1;  // -1: not pooled
  bool constant = false;
  bool cell = false;
  bool owns_block = false;
  bool unwritten = false;             // made by a graph that has not been launched
  std::atomic<uint32_t> captured{0};  // graphs being captured that write it
  Device* device = nullptr;
  uint64_t memory = 0;      // block handle
  uint64_t offset = 0;      // of the first byte in the block
  uint64_t bytes = 0;       // usable
  uint8_t* host = nullptr;  // host address of the first byte, or null
  uint64_t content_id = 0;  // constants
  Packed* packed = nullptr;
  void (*deleter)(void*) = nullptr;  // foreign memory
  void* owner = nullptr;
  Buffer* next = nullptr;  // free list
  // Only on devices with queues of their own. Threads may read one buffer at once, so `uses` guards
  // both; a buffer in a pool has nobody left who could.
  SpinLock uses;
  Use written{nullptr, 0};
  std::vector<Use> read;

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
};

HAL_API void release(Buffer* buffer);

// The pools of one device, by purpose; one never hands out another's blocks.
class HAL_API Memory {
 public:
  explicit Memory(Device* device) : device_(device) {}

  // A buffer of at least `bytes`, usable on `queue` at once. Throws OutOfMemory with the ledger
  // after reuse, waiting for what is pending, and trimming have not helped.
  Buffer* alloc(uint64_t bytes, uint32_t purpose, Queue* queue, bool staging = false);
  // The last reference is gone: back to its pool, or to its owner.
  void put(Buffer* buffer);
  // Gives cached blocks back to the backend; returns bytes.
  uint64_t trim();
  // All that can be done without the caller's help: wait for what is pending, trim every pool.
  void reclaim();
  struct Line {
    uint64_t in_use, cached, peak;
  };
  std::array<Line, kPurposes> ledger();
  // Foreign memory whose last use may still be pending.
  void collect_foreign();
  // Kept whole over a fork: another thread may be in the middle of a change.
  SpinLock& fork_lock() { return lock_; }

 private:
  static constexpr int kClasses = 176;
  struct Pool {
    std::array<Buffer*, kClasses> free{};
    std::vector<Buffer*> exact;  // free blocks outside the classes (cells, constants)
    uint8_t* slab_host = nullptr;
    uint64_t slab_memory = 0, slab_used = 0, slab_bytes = 0;
    Line line{};
  };
  Buffer* take(Pool& pool, int size_class, uint64_t bytes, Queue* queue);
  Buffer* grow(Pool& pool, int size_class, uint64_t bytes, uint32_t purpose, bool staging);
  Buffer* carve(Pool& pool, int size_class, uint64_t bytes, uint32_t purpose);
  bool try_block(uint64_t bytes, uint32_t purpose, bool staging, anyhal_memory_block* block);
  void release_block(Buffer* buffer);
  void remember(const anyhal_memory_block& block, const std::string& what);
  void forget(uint64_t memory);
  [[noreturn]] void exhausted(uint64_t bytes, uint32_t purpose, const std::string& why = {});

  std::string refused_;  // why the last block was not given
  Device* device_;
  SpinLock lock_;
  std::array<Pool, kPurposes> pools_{};
  std::vector<Buffer*> foreign_;
  std::unordered_map<uint64_t, uint64_t> blocks_;  // handle to host address
  std::map<uint64_t, uint64_t> hosts_;             // where they begin and end
};

}  // namespace hal
