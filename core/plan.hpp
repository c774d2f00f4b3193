// Prepared operations, the composites that decompositions become, and the cache that finds them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "core/spec.hpp"

namespace hal {

inline constexpr uint32_t kMaxOperands = 24;
inline constexpr uint32_t kMaxOutputs = 5;

// One operand as op_prepare sees it.
struct OperandDesc {
  uint32_t dtype = 0;
  uint32_t flags = 0;
  uint32_t alignment = 1;
  uint32_t alias_of = 0;
  std::vector<int64_t> dims, strides;
  uint64_t block_bytes = 0, base_offset = 0;
  int64_t value_min = 0, value_max = 0;
  uint64_t content_id = 0;
  anyhal_ref content{0, 0};
};

struct OpDesc {
  uint32_t op = 0;
  uint32_t input_count = 0;
  std::vector<OperandDesc> operands;
  std::string attributes;  // the C record's bytes
  uint32_t numerics[6] = {};
  std::string name;  // for messages: "add (binary)"
};

struct Verdict {
  uint32_t support = 0, flags = 0;
  int32_t reason = 0, operand = -1;
  uint64_t cost_ns = 0, workspace_bytes = 0, hidden_bytes = 0;
  std::vector<anyhal_want> wants;
  std::string text;
};

struct Plan;
struct Module;

// Where a composite's call finds an operand.
struct NodeRef {
  enum Kind : uint32_t { kAbsent, kOperand, kTemp, kConstant };
  uint32_t kind = kAbsent;
  uint32_t index = 0;
  uint64_t offset = 0;  // bytes into it
};

struct Node {
  Plan* plan;
  std::vector<NodeRef> refs;
};

// A decomposition: calls in order, temporaries inside one workspace (cells: one block each).
struct Composite {
  std::vector<Node> nodes;
  std::vector<uint64_t> temp_offsets, temp_bytes;
  uint64_t workspace_bytes = 0;
  std::vector<Buffer*> constants;
};

struct HAL_API Plan {
  std::atomic<uint32_t> refs{1};
  Device* device = nullptr;
  anyhal_plan* handle = nullptr;
  anyhal_status (*enqueue)(anyhal_queue*, anyhal_plan*, const anyhal_call*,
                           anyhal_error*) = nullptr;
  uint32_t operand_count = 0;
  uint32_t input_count = 0;
  uint32_t reads = 0, writes = 0;  // bit i: operand i is
  Module* module = nullptr;        // of a user's kernel; retained
  // Of the outputs when the core allocates them; null: one that the caller did not ask for.
  const Spec* out_specs[kMaxOutputs] = {};  // retained
  bool simple = false;       // no packs, workspace or composite: the short path applies
  bool release_gil = false;  // estimated to run long enough for it to pay
  bool capture_safe = false;
  std::unique_ptr<const OpDesc> desc;  // where the backend takes graphs whole
  uint64_t workspace_bytes = 0;
  uint64_t constant_bytes = 0;  // of a composite
  std::vector<anyhal_pack> packs;
  std::unique_ptr<Composite> composite;
  // For receipts and summaries:
  uint64_t id = 0;
  uint32_t op = 0;
  std::string op_name, kernel, library, state, signature, numerics;
  std::string called;  // as messages name it: the function and, where it differs, the op
  const std::string& label() const { return called.empty() ? op_name : called; }
  bool decomposed = false;  // part of a decomposition
  double cost_ns = 0;
  std::atomic<uint64_t> calls{0}, time_ns{0};

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  // Inputs are read, outputs written.
  void set_counts(uint32_t operands, uint32_t inputs) {
    operand_count = operands, input_count = inputs;
    reads = (1u << inputs) - 1, writes = ((1u << operands) - 1) & ~reads;
  }
};
HAL_API void release(Plan* plan);
// Gives a plan its id and makes it known to retained_plans().
Plan* track_plan(Plan* plan);

HAL_API Verdict query_op(Device& device, const OpDesc& desc);
HAL_API Plan* prepare_op(Device& device, const OpDesc& desc);
HAL_API Plan* make_composite(Device& device, uint32_t operand_count, uint32_t input_count,
                             Composite parts);
// How messages name the plan of that id; empty when it is gone.
std::string plan_label(uint64_t id);
// Every plan alive, each retained for the caller.
HAL_API std::vector<Plan*> retained_plans();
void plans_before_fork();
void plans_after_fork();

// What plans that are gone have run, summed by what a summary tells apart.
struct Retired {
  std::string op_name, device, backend, state, numerics;
  bool decomposed = false;
  uint64_t calls = 0, time_ns = 0;
};
HAL_API std::vector<Retired> retired_plans();

// Keys are compared whole; a hash is never the proof. One thread at a time uses it (the binding
// holds the GIL); entries are found without a lock.
// words[0] must carry the count, so that a longer key never equals its own prefix.
struct Key {
  static constexpr uint32_t kMax = 4 + 3 * kMaxOperands + 24;
  uint32_t count = 0;
  uint64_t words[kMax];
  void add(uint64_t w) { words[count++] = w; }
};

class HAL_API PlanCache {
 public:
  PlanCache();
  Plan* find(const Key& key) const {
    const uint64_t h = hash(key);
    for (uint64_t i = h & mask_;; i = (i + 1) & mask_) {
      const Entry& e = entries_[i];
      if (!e.plan) return nullptr;
      if (e.hash == h && matches(e, key)) return e.plan;
    }
  }
  // Takes over one reference of the plan, and retains the specs among the key's words.
  void insert(const Key& key, Plan* plan, const std::vector<const Spec*>& specs);
  void clear();
  uint64_t size() const { return used_; }

 private:
  static constexpr uint32_t kInline = 5;
  struct alignas(64) Entry {
    uint64_t hash = 0;
    uint64_t words[kInline] = {};
    Plan* plan = nullptr;
    struct Tail* tail = nullptr;
  };
  static uint64_t hash(const Key& key) {
    uint64_t h = key.count;
    for (uint32_t i = 0; i < key.count; ++i)
      h = (h ^ key.words[i]) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    return h;
  }
  bool matches(const Entry& e, const Key& key) const;
  Entry& vacant(uint64_t hash);
  void rebuild(uint64_t mask);
  void grow();
  void drop(Entry& e);
  void evict();

  Entry* entries_ = nullptr;
  uint64_t mask_ = 0, used_ = 0, constant_bytes_ = 0;
};

HAL_API PlanCache& plan_cache();

}  // namespace hal
