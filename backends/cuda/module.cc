// Device code that users bring: PTX or a cubin, and plans of its kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "device.h"

namespace hal::cuda {
namespace {

// Addresses of memory operands from offset 0 on, then values at the offsets that they name.
class ModulePlan final : public Plan {
 public:
  static constexpr size_t kBytesMax = 4096;  // of all parameters, as the driver has it

  ModulePlan(Device& device, CUfunction function, const anyhal_signature& signature)
      : Plan(device), function_(function), signature_(signature) {
    operand_count = signature.operand_count;
    prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    prepared.kernel = "module";
    values_.assign(signature.parameters, signature.parameters + signature.parameter_count);
    addresses_ = signature.operand_count - signature.parameter_count;
    bytes_ = addresses_ * sizeof(CUdeviceptr);
    for (const anyhal_parameter& value : values_) {
      if (value.bytes == 0 || value.bytes > sizeof(anyhal_ref) || value.offset > kBytesMax)
        bytes_ = SIZE_MAX;
      bytes_ = std::max<size_t>(bytes_, value.offset + value.bytes);
    }
    if (bytes_ > kBytesMax)
      throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                  "a value has 1 to 16 bytes, and all parameters 4096; correct the signature");
  }

  void run(const Site& site) override {
    unsigned char buffer[kBytesMax];
    size_t bytes = bytes_;
    for (uint32_t i = 0; i < addresses_; ++i) {
      const CUdeviceptr address = address_of(site.operands[i]);
      std::memcpy(buffer + i * sizeof address, &address, sizeof address);
    }
    for (size_t i = 0; i < values_.size(); ++i)
      std::memcpy(buffer + values_[i].offset, &site.operands[addresses_ + i], values_[i].bytes);
    void* extra[] = {reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT), buffer,
                     reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT), &bytes,
                     reinterpret_cast<void*>(CU_LAUNCH_PARAM_END_AS_INT)};
    uint32_t grid[3];
    for (uint32_t d = 0; d < 3; ++d) {
      const bool given = signature_.grid_rule == ANYHAL_GRID_EXTENTS && d < site.extent_count;
      grid[d] = given ? static_cast<uint32_t>(site.extents[d]) : signature_.grid[d];
    }
    HAL_CUDA(device_, cuLaunchKernel, function_, grid[0], grid[1], grid[2], signature_.block[0],
             signature_.block[1], signature_.block[2], signature_.shared_bytes, site.stream,
             nullptr, extra);
  }

 private:
  CUfunction function_;
  anyhal_signature signature_;
  std::vector<anyhal_parameter> values_;
  uint32_t addresses_ = 0;
  size_t bytes_ = 0;
};

// "sm_90" or "compute_80", as the toolkit writes architectures.
int architecture_in(const char* text) {
  const char* digits = text != nullptr ? std::strrchr(text, '_') : nullptr;
  return digits != nullptr ? std::atoi(digits + 1) : 0;
}

void check_architecture(const Device& device, const anyhal_payload& payload) {
  const int built = architecture_in(payload.architecture);
  const int here = device.architecture;
  const bool ptx = payload.format == ANYHAL_PAYLOAD_PTX;
  const bool fits = ptx ? built <= here : built / 10 == here / 10 && built <= here;
  if (built != 0 && fits) return;
  throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ARCHITECTURE, 0,
              std::string("the code is built for '") +
                  (payload.architecture != nullptr ? payload.architecture : "") +
                  "' and this device is sm_" + std::to_string(here) + "; build it for this one");
}

}  // namespace

namespace slots {

anyhal_status module_load(anyhal_device* handle, const anyhal_payload* payload,
                          anyhal_module** out_module, anyhal_error* error) {
  auto& device = *reinterpret_cast<Device*>(handle);
  return guarded(error, [&] {
    if (payload->format != ANYHAL_PAYLOAD_PTX && payload->format != ANYHAL_PAYLOAD_CUBIN)
      throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ARCHITECTURE, 0,
                  "CUDA devices load PTX and cubins; pass one of these");
    check_architecture(device, *payload);
    Current current(device);
    // PTX is text that the driver reads up to a NUL, which a payload need not have.
    const std::string image(static_cast<const char*>(payload->bytes), payload->byte_count);
    auto module = std::make_unique<Module>(Module{&device, nullptr});
    module->module = load_module(device, image);
    *out_module = reinterpret_cast<anyhal_module*>(module.release());
  });
}

anyhal_status kernel_prepare(anyhal_module* handle, const char* entry,
                             const anyhal_signature* signature, anyhal_plan** out_plan,
                             const anyhal_prepared** out_prepared, anyhal_error* error) {
  auto& module = *reinterpret_cast<Module*>(handle);
  Device& device = *module.device;
  return guarded(error, [&] {
    Current current(device);
    if (signature->parameter_count > signature->operand_count)
      throw Fault(ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE, 0,
                  "every value is an operand, so there are at most as many; correct the signature");
    CUfunction function = nullptr;
    HAL_CUDA(device, cuModuleGetFunction, &function, module.module, entry);
    if (signature->shared_bytes > 48 * 1024)
      HAL_CUDA(device, cuFuncSetAttribute, function,
               CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
               static_cast<int>(signature->shared_bytes));
    auto plan = std::make_unique<ModulePlan>(device, function, *signature);
    *out_prepared = &plan->prepared;
    *out_plan = reinterpret_cast<anyhal_plan*>(static_cast<Plan*>(plan.release()));
  });
}

}  // namespace slots
}  // namespace hal::cuda
