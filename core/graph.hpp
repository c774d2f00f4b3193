// A recording of calls on one queue, replayed natively.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>
#include <vector>

#include "core/region.hpp"

namespace hal {

// While capturing, every call on the queue is recorded instead of run. The graph keeps its plans,
// its operands' buffers and its own workspace, so that no later allocation can share their bytes.
struct HAL_API Graph {
  explicit Graph(Queue& q);
  ~Graph();
  Graph(const Graph&) = delete;

  void end();    // stops capturing
  void abort();  // stops capturing and forgets what was recorded
  void launch();

  // Called by the dispatch while capturing:
  void require_owner() const;  // throws in other threads than the one that captures
  void record(Plan& plan, const Operand* operands);
  Buffer* workspace(size_t index, uint64_t bytes);  // retained for the caller
  void hold(Buffer* buffer);

  Queue* queue;
  bool capturing = true;
  const std::thread::id thread = std::this_thread::get_id();  // that captures
  size_t size() const { return nodes_.size(); }
  // "compiled" or "recorded" by the backend, else "replayed" from the list kept here, and why.
  const char* form() const { return region_.form; }
  const std::string& why() const { return region_.why; }

 private:
  struct Step {
    anyhal_status (*enqueue)(anyhal_queue*, anyhal_plan*, const anyhal_call*, anyhal_error*);
    anyhal_plan* handle;
    Plan* plan;
    uint32_t first, count;
  };
  bool ended_ = false, launched_ = false;
  void forget();
  void stop();
  void give_workspace();
  void make_calls();
  void launch_ordered();
  void hand_over();

  std::vector<Step> nodes_;
  std::vector<anyhal_ref> refs_;
  std::vector<Operand> operands_;
  std::vector<anyhal_call> calls_;
  std::vector<Buffer*> held_;
  std::vector<Buffer*> written_;  // by what was captured; all held
  std::vector<Buffer*> workspaces_;
  Buffer* plan_workspace_ = nullptr;  // of the region, or of each replayed call
  uint64_t plan_workspace_bytes_ = 0;
  Region region_;
};

}  // namespace hal
