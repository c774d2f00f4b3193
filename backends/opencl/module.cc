// Kernels that users bring as OpenCL C, and what their authors must know of a device.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "anyhal/sdk/kernel_limits.h"
#include "objects.h"

namespace hal::opencl {
namespace {

struct Module {
  Device* device;
  cl_program program;
};

// Sets each parameter once, so that a signature which is not the kernel's is found now.
class Probe {
 public:
  Probe(Module& module, const char* entry) : device_(*module.device), entry_(entry) {
    cl_int code = kSuccess;
    kernel_ = device_.self->api.CreateKernel(module.program, entry, &code);
    if (code == kInvalidKernelName)
      throw Failure(ANYHAL_STATUS_NOT_FOUND, 0,
                    "the source has no kernel '%.80s'; correct the name", entry);
    check(device_, code, "clCreateKernel");
  }
  ~Probe() {
    gave_back(*device_.self, device_.self->api.ReleaseKernel(kernel_), "clReleaseKernel");
  }
  Probe(const Probe&) = delete;

  void parameter(size_t bytes, const char* what) {
    const unsigned char zeros[16] = {};
    const cl_int code = device_.self->api.SetKernelArg(kernel_, count_++, bytes, zeros);
    if (code == kSuccess) return;
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "parameter %u of '%.60s' is not %s of %zu bytes (%s); each array is two "
                  "parameters, a __global pointer and a ulong",
                  count_ - 1, entry_, what, bytes, error_name(code));
  }
  void end() {
    const uint64_t zero = 0;
    if (device_.self->api.SetKernelArg(kernel_, count_, sizeof(zero), &zero) == kInvalidArgIndex)
      return;
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "'%.60s' has more than the %u parameters that the signature makes; each array is "
                  "two, a __global pointer and a ulong",
                  entry_, count_);
  }

 private:
  Device& device_;
  const char* entry_;
  cl_kernel kernel_ = nullptr;
  cl_uint count_ = 0;
};

void set_sizes(const Device& device, const anyhal_signature& signature, Launch& launch) {
  uint64_t items = 1;
  launch.rank = 3;
  for (int d = 0; d < 3; ++d) {
    launch.local[d] = signature.block[d];
    launch.global[d] = size_t{signature.block[d]} * signature.grid[d];
    items *= signature.block[d];
  }
  if (signature.shared_bytes != 0 || signature.grid_rule != ANYHAL_GRID_FIXED)
    throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ATTRIBUTE,
                  "shared memory is declared in the kernel, and the grid is fixed; leave both out");
  if (items == 0 || items > device.facts->group_size || launch.global[0] == 0)
    throw Failure(ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "a block has %llu items, and this device takes 1 to %zu; change `block`",
                  static_cast<unsigned long long>(items), device.facts->group_size);
}

anyhal_status limits_of(anyhal_device* device, anyhal_kernel_limits* out, anyhal_error*) {
  const Found& facts = *device->facts;
  anyhal_kernel_limits limits = {};
  limits.units = facts.units;
  limits.group_items = static_cast<uint32_t>(facts.group_size);
  limits.group_bytes = facts.local_bytes;
  std::string words = facts.extensions.substr(0, sizeof(limits.features) - 1);
  if (words.size() < facts.extensions.size()) words.resize(words.rfind(' '));  // whole words
  std::memcpy(limits.features, words.data(), words.size());
  sdk::write_record(out, limits);
  return ANYHAL_STATUS_OK;
}

const anyhal_kernel_limits_table kKernelLimits = {sizeof(kKernelLimits),
                                                  ANYHAL_KERNEL_LIMITS_VERSION, limits_of};

}  // namespace

namespace slots {

anyhal_status module_load(anyhal_device* device, const anyhal_payload* payload,
                          anyhal_module** out_module, anyhal_error* error) {
  return sdk::guard(error, [&] {
    require_present(*device);
    if (payload->format != ANYHAL_PAYLOAD_OPENCL_C)
      throw Failure(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ARCHITECTURE,
                    "the code is of format %u, and this device loads OpenCL C source; pass that",
                    payload->format);
    const std::string source(static_cast<const char*>(payload->bytes), payload->byte_count);
    *out_module =
        reinterpret_cast<anyhal_module*>(new Module{device, user_program(*device, source)});
    return ANYHAL_STATUS_OK;
  });
}

void release_module(uint64_t object, bool abandon) {
  auto* module = reinterpret_cast<Module*>(object);
  const anyhal_self& self = *module->device->self;
  if (!abandon) gave_back(self, self.api.ReleaseProgram(module->program), "clReleaseProgram");
  delete module;
}

// In the kernel each array is two parameters: the memory, and the byte where the array begins.
anyhal_status kernel_prepare(anyhal_module* handle, const char* entry,
                             const anyhal_signature* signature, anyhal_plan** out_plan,
                             const anyhal_prepared** out_prepared, anyhal_error* error) {
  auto& module = *reinterpret_cast<Module*>(handle);
  return sdk::guard(error, [&] {
    require_present(*module.device);
    Probe probe(module, entry);
    auto plan = std::make_unique<Plan>();
    plan->device = module.device;
    plan->operand_count = signature->operand_count;
    plan->memory_count = signature->operand_count - signature->parameter_count;
    plan->spans.resize(plan->operand_count);
    Launch launch;
    launch.program = module.program;
    launch.kernel = entry;
    for (uint32_t i = 0; i < plan->operand_count; ++i) {
      Argument argument;
      argument.operand = i;
      argument.kind = i < plan->memory_count ? Argument::kOperand : Argument::kValue;
      if (argument.kind == Argument::kOperand) {
        probe.parameter(sizeof(cl_mem), "a pointer");
        probe.parameter(sizeof(uint64_t), "a ulong");
      } else {
        argument.bytes.resize(signature->parameters[i - plan->memory_count].bytes);
        probe.parameter(argument.bytes.size(), "a value");
      }
      launch.arguments.push_back(std::move(argument));
    }
    probe.end();
    set_sizes(*module.device, *signature, launch);
    plan->launches.push_back(std::move(launch));
    plan->name = entry;
    plan->prepared.size = sizeof(plan->prepared);
    plan->prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    plan->prepared.workspace_alignment = 64;
    plan->prepared.kernel = plan->name.c_str();
    plan->prepared.library = "";
    ++module.device->plans;
    *out_prepared = &plan->prepared;
    *out_plan = reinterpret_cast<anyhal_plan*>(plan.release());
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status extension(anyhal_self*, const char* name, uint32_t since, const void** out_table,
                        anyhal_error* error) {
  if (std::strcmp(name, ANYHAL_EXTENSION_KERNEL_LIMITS) != 0 || since > kKernelLimits.version)
    return sdk::fail(error, ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_OP,
                     "it has none such; there is: " ANYHAL_EXTENSION_KERNEL_LIMITS " 1");
  *out_table = &kKernelLimits;
  return ANYHAL_STATUS_OK;
}

}  // namespace slots
}  // namespace hal::opencl
