// Size classes, slabs, reuse by death frontier, trimming, and the ledger that explains exhaustion.
// SPDX-License-Identifier: Apache-2.0
#include "core/memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>

#include "core/answers.hpp"
#include "core/process.hpp"
#include "core/queue.hpp"

namespace hal {
namespace {

constexpr uint64_t kSmall = 64 << 10;  // above this a buffer owns its block
constexpr uint64_t kSlab = 1 << 20;
constexpr uint64_t kAlignment = 256;  // DLPack's figure; small ones get 64
constexpr uint64_t kSmallAlignment = 64;
constexpr uint64_t kAskHost = 64 << 20;  // from here on the host is asked what it has left

// 64, 128, 192, 256, then four classes per power of two.
int class_of(uint64_t bytes) {
  if (bytes <= 256) return bytes ? int((bytes - 1) / 64) : 0;
  const int e = 63 - __builtin_clzll(bytes - 1);
  return 4 + (e - 8) * 4 + int((bytes - 1 - (1ull << e)) >> (e - 2));
}
uint64_t class_bytes(int c) {
  if (c < 4) return uint64_t(c + 1) * 64;
  const int e = (c - 4) / 4 + 8, sub = (c - 4) % 4;
  return (1ull << e) + uint64_t(sub + 1) * (1ull << (e - 2));
}
uint64_t round_up(uint64_t n, uint64_t to) { return to > 1 ? (n + to - 1) / to * to : n; }

bool done_for(const Use& use, const Queue* queue) {
  return !use.queue || use.queue == queue || use.queue->settled(use.value);
}
// Whether `queue` may overwrite it now.
bool reusable(const Buffer& b, const Queue* queue) {
  return done_for(b.written, queue) && std::all_of(b.read.begin(), b.read.end(), [&](const Use& u) {
           return done_for(u, queue);
         });
}
bool idle(const Buffer& b) { return reusable(b, nullptr); }
// Whether no queued call can touch foreign memory any more. Asking may be what finds the device
// lost, and whoever lets go of memory is not the one to be told.
bool is_let_go(const Buffer& b) {
  try {
    if (b.device->synchronous || idle(b)) return true;
  } catch (const Error&) {
  }
  return b.device->lost;
}

// A buffer that is handed out again is new: what came of its old content concerns nobody, a failure
// least of all. Uses that are still pending stay, since they order the next ones.
void forget_past(Buffer& b) {
  const auto past = [](const Use& use) {
    return use.queue && use.queue->completed.load(std::memory_order_acquire) >= use.value;
  };
  if (past(b.written)) b.written = {nullptr, 0};
  std::erase_if(b.read, past);
}

std::atomic<bool> g_poison{false};

void drop_packed(Buffer* b) {
  for (Packed* p = b->packed; p;) {
    Packed* next = p->next;
    release(p->buffer);
    delete p;
    p = next;
  }
  b->packed = nullptr;
}

}  // namespace

void set_debug_pool(bool on) { g_poison.store(on); }

const char* purpose_name(uint32_t purpose) {
  static const char* const kNames[] = {"activations", "weights", "cache",
                                       "workspace",   "staging", "arena"};
  return purpose < kPurposes ? kNames[purpose] : "unknown";
}

void release(Buffer* buffer) {
  if (buffer && buffer->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
    buffer->device->memory.put(buffer);
}

Buffer* Memory::take(Pool& pool, int size_class, uint64_t bytes, Queue* queue) {
  if (size_class < 0) {
    for (size_t i = 0; i < pool.exact.size(); ++i)
      if (pool.exact[i]->bytes == bytes && reusable(*pool.exact[i], queue)) {
        Buffer* b = pool.exact[i];
        pool.exact[i] = pool.exact.back();
        pool.exact.pop_back();
        return b;
      }
    return nullptr;
  }
  // A few steps only: on one queue the first fits, elsewhere a fresh block beats a long search.
  Buffer** link = &pool.free[size_class];
  for (int i = 0; *link && i < 8; ++i, link = &(*link)->next)
    if (device_->synchronous || reusable(**link, queue)) {
      Buffer* b = *link;
      *link = b->next;
      return b;
    }
  return nullptr;
}

bool Memory::try_block(uint64_t bytes, uint32_t purpose, bool staging, anyhal_memory_block* block) {
  const uint32_t kind = staging ? device_->staging_kind : device_->compute_kind;
  const anyhal_memory_kind& k = device_->kinds[kind];
  refused_ = "no device has so much";
  if (bytes > kBytesMax) return false;
  bytes = round_up(std::max<uint64_t>(bytes, 1), k.granularity);
  if (k.block_bytes_max && bytes > k.block_bytes_max)
    throw Error(ANYHAL_STATUS_OUT_OF_MEMORY,
                "a block of " + std::to_string(bytes) + " bytes on " + device_->name +
                    " is above the device's limit of " + std::to_string(k.block_bytes_max) +
                    " bytes per block; split the tensor",
                ANYHAL_REASON_SHAPE_LIMIT);
  refused_.clear();
  if (k.heap_bytes && bytes > k.heap_bytes) {  // a driver may promise it all the same
    refused_ = "it has " + std::to_string(k.heap_bytes) + " bytes in all";
    return false;
  }
  // The host's allocator promises anything; the process then dies at the first write.
  if (device_->host_memory && bytes >= kAskHost && bytes > host_available()) return false;
  const uint64_t alignment = std::max<uint64_t>(kAlignment, k.base_alignment);
  const anyhal_memory_request request = {sizeof(request), 0,         kind,  purpose,
                                         bytes,           alignment, {0, 0}};
  const std::string what = "allocating " + std::to_string(bytes) + " bytes on " + device_->name;
  Guarded<anyhal_memory_block> given;
  ErrorRecord error;
  const anyhal_status status =
      device_->table->memory_alloc(device_->handle, &request, &given.record, error);
  given.check(what);
  if (status == ANYHAL_STATUS_OUT_OF_MEMORY) {
    refused_ = said(error.record, *device_->instance);
    return false;
  }
  if (status == ANYHAL_STATUS_DEVICE_LOST) device_->lose(error.record);
  check(status, error, what, *device_->instance);
  device_->counters.driver_allocs.fetch_add(1, std::memory_order_relaxed);
  *block = given.record;
  check_block(*device_, request, *block, what);
  block->bytes = bytes;
  remember(*block, what);
  return true;
}

// Two blocks that are one would overwrite each other's tensors.
void Memory::remember(const anyhal_memory_block& block, const std::string& what) {
  const auto twice = [&] {
    throw Error(ANYHAL_STATUS_INTERNAL,
                what + ": the backend gave a block that is in use; report this to its vendor");
  };
  if (block.host_address) {
    const auto next = hosts_.lower_bound(block.host_address);
    if (next != hosts_.end() && next->first < block.host_address + block.bytes) twice();
    if (next != hosts_.begin() && std::prev(next)->second > block.host_address) twice();
  }
  if (!blocks_.emplace(block.memory, block.host_address).second) twice();
  if (block.host_address) hosts_[block.host_address] = block.host_address + block.bytes;
}

void Memory::forget(uint64_t memory) {
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return;
  hosts_.erase(found->second);
  blocks_.erase(found);
}

Buffer* Memory::carve(Pool& pool, int size_class, uint64_t bytes, uint32_t purpose) {
  if (pool.slab_used + bytes > pool.slab_bytes) {
    anyhal_memory_block block;
    if (!try_block(kSlab, purpose, false, &block)) return nullptr;
    pool.slab_host = reinterpret_cast<uint8_t*>(block.host_address);
    pool.slab_memory = block.memory, pool.slab_used = 0, pool.slab_bytes = block.bytes;
  }
  auto* b = new Buffer;
  b->size_class = size_class, b->bytes = bytes, b->purpose = purpose, b->device = device_;
  b->memory = pool.slab_memory, b->offset = pool.slab_used;
  b->host = pool.slab_host ? pool.slab_host + pool.slab_used : nullptr;
  // What a plan gets as its workspace is aligned as plans may ask.
  const bool workspace = purpose == ANYHAL_PURPOSE_WORKSPACE || purpose == ANYHAL_PURPOSE_ARENA;
  pool.slab_used +=
      round_up(bytes, std::max<uint64_t>(workspace ? kAlignment : kSmallAlignment,
                                         device_->kinds[device_->compute_kind].offset_alignment));
  return b;
}

Buffer* Memory::grow(Pool& pool, int size_class, uint64_t bytes, uint32_t purpose, bool staging) {
  if (size_class >= 0 && bytes <= kSmall && !staging && !device_->cells)
    return carve(pool, size_class, bytes, purpose);
  anyhal_memory_block block;
  if (!try_block(bytes, purpose, staging, &block)) return nullptr;
  auto* b = new Buffer;
  b->size_class = size_class, b->bytes = bytes, b->purpose = purpose, b->device = device_;
  b->memory = block.memory, b->owns_block = true;
  b->cell = device_->cells && !staging;
  b->host = reinterpret_cast<uint8_t*>(block.host_address);
  return b;
}

Buffer* Memory::alloc(uint64_t bytes, uint32_t purpose, Queue* queue, bool staging) {
  if (staging) purpose = ANYHAL_PURPOSE_STAGING;
  const bool exact =
      (device_->cells && !staging) || (purpose == ANYHAL_PURPOSE_WEIGHTS && bytes > kSmall);
  const int size_class = exact ? -1 : class_of(bytes);
  if (size_class >= kClasses) exhausted(bytes, purpose);
  const uint64_t wanted = exact ? std::max<uint64_t>(bytes, 1) : class_bytes(size_class);
  device_->counters.pool_allocs.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock(lock_);
  Pool& pool = pools_[purpose];
  // The host fills staging memory as soon as it has it, so order on a queue is not enough.
  Queue* const user = staging ? nullptr : queue;
  Buffer* b = take(pool, size_class, wanted, user);
  if (!b) b = grow(pool, size_class, wanted, purpose, staging);
  if (!b) {
    // Reuse has failed: wait for what is pending, trim every pool, ask once more.
    lock.unlock();
    reclaim();
    lock.lock();
    b = take(pool, size_class, wanted, user);
    if (!b) b = grow(pool, size_class, wanted, purpose, staging);
    if (!b) {
      const std::string why = refused_;
      lock.unlock();
      exhausted(bytes, purpose, why);
    }
  }
  if (b->refs.load(std::memory_order_relaxed) == 0) pool.line.cached -= b->bytes;
  b->refs.store(1, std::memory_order_relaxed);
  b->next = nullptr;
  forget_past(*b);
  pool.line.in_use += b->bytes;
  pool.line.peak = std::max(pool.line.peak, pool.line.in_use);
  lock.unlock();
  if (g_poison.load(std::memory_order_relaxed) && b->host && device_->synchronous)
    std::memset(b->host, 0xff, b->bytes);
  return b;
}

void Memory::put(Buffer* b) {
  drop_packed(b);
  if (b->deleter) {
    if (is_let_go(*b)) {
      b->deleter(b->owner);
      delete b;
    } else {
      std::lock_guard lock(lock_);
      foreign_.push_back(b);
    }
    return;
  }
  b->constant = false;
  b->unwritten = false;
  b->content_id = 0;
  std::lock_guard lock(lock_);
  Pool& pool = pools_[b->purpose];
  pool.line.in_use -= b->bytes;
  pool.line.cached += b->bytes;
  if (b->size_class < 0) {
    pool.exact.push_back(b);
    return;
  }
  b->next = pool.free[b->size_class];
  pool.free[b->size_class] = b;
}

void Memory::collect_foreign() {
  std::vector<Buffer*> ready;
  {
    std::lock_guard lock(lock_);
    std::erase_if(foreign_, [&](Buffer* b) {
      if (!is_let_go(*b)) return false;
      ready.push_back(b);
      return true;
    });
  }
  for (Buffer* b : ready) {
    b->deleter(b->owner);
    delete b;
  }
}

void Memory::release_block(Buffer* b) {
  forget(b->memory);
  ErrorRecord error;
  device_->table->release(device_->instance->reply.self, ANYHAL_OBJECT_MEMORY, b->memory,
                          device_->lost ? uint32_t(ANYHAL_RELEASE_ABANDON) : 0u, error);
  device_->counters.driver_frees.fetch_add(1, std::memory_order_relaxed);
  delete b;
}

void Memory::reclaim() {
  {
    std::unique_lock ordered(device_->order, std::defer_lock);
    if (!device_->synchronous) ordered.lock();
    device_->require_alive();
    for (Queue* q : device_->queues()) q->wait(q->submitted);
    device_->collect_plans();
  }
  collect_foreign();  // runs code of the owners, which may want other locks
  trim();
  // Devices that are this host share its memory, so what their pools keep is in the way as well.
  if (device_->host_memory)
    for (Device* d : all_devices())
      if (d != device_ && d->host_memory) d->memory.trim();
}

uint64_t Memory::trim() {
  std::lock_guard lock(lock_);
  uint64_t given = 0;
  for (Pool& pool : pools_) {
    const auto drop = [&](Buffer* b) {
      pool.line.cached -= b->bytes;
      given += b->bytes;
      release_block(b);
    };
    for (Buffer*& head : pool.free)
      for (Buffer** link = &head; *link;) {
        Buffer* b = *link;
        if (b->owns_block && idle(*b)) {
          *link = b->next;
          drop(b);
        } else {
          link = &b->next;
        }
      }
    std::erase_if(pool.exact, [&](Buffer* b) {
      if (!idle(*b)) return false;
      drop(b);
      return true;
    });
  }
  return given;
}

std::array<Memory::Line, kPurposes> Memory::ledger() {
  std::lock_guard lock(lock_);
  std::array<Line, kPurposes> out;
  for (int i = 0; i < kPurposes; ++i) out[i] = pools_[i].line;
  return out;
}

void Memory::exhausted(uint64_t bytes, uint32_t purpose, const std::string& why) {
  std::string text = "allocating " + std::to_string(bytes) + " bytes for " + purpose_name(purpose) +
                     " on " + device_->name + " failed: the device has no more memory" +
                     (why.empty() ? "" : " (" + why + ")") + "; in use:";
  const auto lines = ledger();
  for (int i = 0; i < kPurposes; ++i)
    if (lines[i].in_use || lines[i].cached)
      text += std::string(" ") + purpose_name(i) + " " + std::to_string(lines[i].in_use) + " (+" +
              std::to_string(lines[i].cached) + " cached)";
  throw Error(ANYHAL_STATUS_OUT_OF_MEMORY, text + "; free arrays or use smaller batches");
}

}  // namespace hal
