// What a context (thread, task) has chosen: contract and queue.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/plan.hpp"
#include "core/queue.hpp"

namespace hal {

struct Scope {
  uint32_t contract = 0;   // interned by Python: fallback, numerics, policy, settings
  Queue* queue = nullptr;  // null: the device's default queue
};

struct PlanRef {
  Plan* plan;
  explicit PlanRef(Plan* p) : plan(p) {}
  PlanRef(const PlanRef& o) : plan(o.plan) { plan->retain(); }
  ~PlanRef() { release(plan); }
};

// The scope in force; the default one until the first scope of the process is opened.
const Scope& current_scope();

inline Queue& queue_for(const Scope& scope, Device& device) {
  return scope.queue && scope.queue->device == &device ? *scope.queue : *device.queue;
}

}  // namespace hal
