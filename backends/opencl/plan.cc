// Running a plan: arguments that changed, then its launches. Nothing here allocates after a plan's
// first call on a queue. SPDX-License-Identifier: Apache-2.0
#include "objects.h"

namespace hal::opencl {
namespace {

const Block* block_at(const anyhal_ref& ref) { return reinterpret_cast<const Block*>(ref.memory); }

void release_kernels(const anyhal_self& self, Kernels* kernels, bool abandon) {
  if (kernels == nullptr) return;
  for (cl_kernel kernel : kernels->kernels)
    if (!abandon && kernel != nullptr)
      gave_back(self, self.api.ReleaseKernel(kernel), "clReleaseKernel");
  delete kernels;
}

void set_argument(Device& device, cl_kernel kernel, cl_uint number, size_t bytes,
                  const void* value) {
  check(device, device.self->api.SetKernelArg(kernel, number, bytes, value), "clSetKernelArg");
}

// Sets what stays the same for every call on this queue. Each operand takes two arguments.
void set_fixed(const Queue& queue, const Launch& launch, cl_kernel kernel) {
  cl_uint number = 0;
  for (const Argument& a : launch.arguments) {
    switch (a.kind) {
      case Argument::kBytes:
        set_argument(*queue.device, kernel, number++, a.bytes.size(), a.bytes.data());
        break;
      case Argument::kFault:
        set_argument(*queue.device, kernel, number++, sizeof(cl_mem), &queue.fault);
        break;
      case Argument::kTag:
      case Argument::kValue:
        ++number;
        break;
      default:
        number += 2;
    }
  }
}

Kernels* make_kernels(const Queue& queue, const Plan& plan) {
  const Api& api = queue.device->self->api;
  auto made = std::make_unique<Kernels>();
  made->places.resize(plan.operand_count + 1);
  made->tag = ~uint64_t{0};
  try {
    for (const Launch& launch : plan.launches) {
      cl_int code = kSuccess;
      cl_kernel kernel = api.CreateKernel(launch.program, launch.kernel.c_str(), &code);
      check(*queue.device, code, "clCreateKernel");
      made->kernels.push_back(kernel);
      set_fixed(queue, launch, kernel);
    }
  } catch (...) {
    release_kernels(*queue.device->self, made.release(), false);
    throw;
  }
  return made.release();
}

// A kernel object takes arguments from one thread at a time: each queue has its own.
Kernels& kernels_for(const Queue& queue, Plan& plan) {
  std::atomic<Kernels*>& slot = plan.on_queue[queue.number];
  Kernels* found = slot.load(std::memory_order_acquire);
  // The number may have been another queue's, with another fault report.
  if (found != nullptr && found->queue == queue.serial) return *found;
  Kernels* made = make_kernels(queue, plan);
  made->queue = queue.serial;
  release_kernels(*queue.device->self, found, false);
  slot.store(made, std::memory_order_release);
  return *made;
}

void set_place(Device& device, cl_kernel kernel, cl_uint number, const anyhal_ref& ref) {
  const Block* block = block_at(ref);
  const cl_mem memory = block != nullptr ? block->memory : nullptr;
  set_argument(device, kernel, number, sizeof(memory), &memory);
  set_argument(device, kernel, number + 1, sizeof(ref.offset), &ref.offset);
}

bool moved(const Place& place, const anyhal_ref& ref) {
  const Block* block = block_at(ref);
  return place.offset != ref.offset || place.serial != (block != nullptr ? block->serial : 0);
}

void set_moved(const Plan& plan, const anyhal_call& call, const Launch& launch, cl_kernel kernel,
               const Kernels& kernels) {
  Device& device = *plan.device;
  cl_uint number = 0;
  for (const Argument& a : launch.arguments) {
    if (a.kind == Argument::kOperand) {
      const anyhal_ref& ref = call.operands[a.operand];
      if (moved(kernels.places[a.operand], ref)) set_place(device, kernel, number, ref);
      number += 2;
    } else if (a.kind == Argument::kWorkspace) {
      if (moved(kernels.places[plan.operand_count], call.workspace))
        set_place(device, kernel, number, call.workspace);
      number += 2;
    } else {
      if (a.kind == Argument::kValue)
        set_argument(device, kernel, number, a.bytes.size(), &call.operands[a.operand]);
      if (a.kind == Argument::kTag && kernels.tag != call.tag)
        set_argument(device, kernel, number, sizeof(call.tag), &call.tag);
      ++number;
    }
  }
}

void remember(const Plan& plan, const anyhal_call& call, Kernels& kernels) {
  const auto place = [](const anyhal_ref& ref) {
    const Block* block = block_at(ref);
    return Place{block != nullptr ? block->serial : 0, ref.offset};
  };
  for (uint32_t i = 0; i < plan.memory_count; ++i) kernels.places[i] = place(call.operands[i]);
  kernels.places[plan.operand_count] = place(call.workspace);
  kernels.tag = call.tag;
}

void set_all(const Plan& plan, const anyhal_call& call, Kernels& kernels) {
  try {
    for (size_t i = 0; i < plan.launches.size(); ++i)
      set_moved(plan, call, plan.launches[i], kernels.kernels[i], kernels);
  } catch (...) {
    kernels.places.assign(kernels.places.size(), {});  // unknown: set again
    kernels.tag = ~uint64_t{0};
    throw;
  }
  remember(plan, call, kernels);
}

void require_inside(const Plan& plan, const anyhal_call& call) {
  if (call.operand_count != plan.operand_count)
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "the call has %u operands and the plan %u; prepare a plan for this call",
                  call.operand_count, plan.operand_count);
  for (uint32_t i = 0; i < plan.operand_count; ++i) {
    const uint64_t span = plan.spans[i];
    if (span == 0) continue;
    const Block* block = block_at(call.operands[i]);
    const uint64_t offset = call.operands[i].offset;
    if (block != nullptr && block->host == nullptr && block->device == plan.device &&
        offset <= block->bytes && span <= block->bytes - offset)
      continue;
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_MEMORY_KIND,
                  "operand %u does not lie in a block of this device's memory; correct the ref", i);
  }
}

}  // namespace

anyhal_status enqueue_plan(Queue& queue, Plan& plan, const anyhal_call& call, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_live(queue);
    require_inside(plan, call);
    if (plan.launches.empty()) return ANYHAL_STATUS_OK;
    const Api& api = queue.device->self->api;
    Kernels& kernels = kernels_for(queue, plan);
    set_all(plan, call, kernels);
    if ((call.flags & ANYHAL_CALL_INDEPENDENT) == 0) order_after_all(queue);
    queue.checks = queue.checks || plan.checks;  // also when a later launch is refused
    for (size_t i = 0; i < plan.launches.size(); ++i) {
      const Launch& launch = plan.launches[i];
      if (i != 0) order_after_all(queue);
      enqueue(queue, "clEnqueueNDRangeKernel", call.tag, [&](cl_event* event) {
        return api.EnqueueNDRangeKernel(queue.handle, kernels.kernels[i], launch.rank, nullptr,
                                        launch.global, launch.local, 0, nullptr, event);
      });
    }
    return ANYHAL_STATUS_OK;
  });
}

void release_plan(Plan* plan, bool abandon) {
  for (auto& slot : plan->on_queue)
    release_kernels(*plan->device->self, slot.load(std::memory_order_relaxed), abandon);
  --plan->device->plans;
  delete plan;
}

}  // namespace hal::opencl
