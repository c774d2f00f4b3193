// Loading the driver and cuBLASLt by name, codes to statuses, contexts.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sys/stat.h>

#include "anyhal/sdk/library.hpp"
#include "device.h"

namespace hal::cuda {

bool is_folder(const char* path) {
  struct stat about;
  return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

void* open_library(const char* setting, const char* file, std::string* why) {
  std::string path = setting != nullptr ? setting : "";
  if (is_folder(path.c_str())) path += std::string("/") + file;
  if (std::string fault = sdk::library_fault(path); !fault.empty()) {
    *why = std::move(fault);
    return nullptr;
  }
  void* library = dlopen(path.empty() ? file : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text = dlerror();
    *why = text != nullptr ? text : "the loader does not say why";
  }
  return library;
}

namespace {

template <class F>
bool find(void* library, const char* name, F* to) {
  void* symbol = dlsym(library, name);
  std::memcpy(to, &symbol, sizeof symbol);
  return symbol != nullptr;
}

}  // namespace

std::string load_driver(void* library, Driver* driver) {
#define HAL_CUDA_FIND(name, parameters) \
  if (!find(library, #name, &driver->name)) return #name;
  HAL_CUDA_FUNCTIONS(HAL_CUDA_FIND)
#undef HAL_CUDA_FIND
  return "";
}

std::string load_cublaslt(void* library, CublasLt* blas) {
#define HAL_CUBLASLT_FIND(name, answer, parameters) \
  if (!find(library, #name, &blas->name)) return #name;
  HAL_CUBLASLT_FUNCTIONS(HAL_CUBLASLT_FIND)
#undef HAL_CUBLASLT_FIND
  return "";
}

bool is_sticky(CUresult code) {
  switch (code) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

namespace {

struct Meaning {
  anyhal_status status;
  int32_t reason;
  const char* advice;
};

Meaning meaning_of(CUresult code) {
  if (is_sticky(code))
    return {ANYHAL_STATUS_DEVICE_LOST, ANYHAL_REASON_NONE,
            "the driver allows nothing more on it in this process; start a new one"};
  switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return {ANYHAL_STATUS_OUT_OF_MEMORY, ANYHAL_REASON_NONE, "free arrays and try again"};
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return {ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_ARCHITECTURE,
              "build the code for this device's architecture"};
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
      return {ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
              "pass PTX or a cubin that a CUDA compiler wrote"};
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return {ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER, "install a newer NVIDIA driver"};
    case CUDA_ERROR_NOT_FOUND:
      return {ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_NONE, "check the name"};
    case CUDA_ERROR_NOT_SUPPORTED:
      return {ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER, "use another device"};
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return {ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_SHAPE_LIMIT,
              "ask for fewer threads or less shared memory"};
    default:
      return {ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE, "report this with the driver's version"};
  }
}

std::string sentence(const Driver& driver, CUresult code, const char* what) {
  const char* name = nullptr;
  if (driver.cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown code";
  return std::string(what) + " answered " + std::to_string(code) + " (" + name + "); " +
         meaning_of(code).advice;
}

}  // namespace

void check(const Driver& driver, CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  const Meaning meaning = meaning_of(code);
  throw Fault(meaning.status, meaning.reason, code, sentence(driver, code, what));
}

void check(Device& device, CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  if (is_sticky(code)) {
    device.lose(code, sentence(device.driver(), code, what));
    device.admit();
  }
  check(device.driver(), code, what);
}

// The first failure is the one that everybody hears of, whatever the driver says afterwards.
void Device::lose(CUresult code, const std::string& text) {
  std::unique_lock lock(mutex);
  if (!lost.load()) loss = text, loss_code = code;
  lost.store(true);
}

void Device::admit() {
  if (self->forked.load(std::memory_order_relaxed))
    throw Fault(ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE, 0,
                "this process was forked after the driver was opened; start a new one with exec");
  if (!lost.load(std::memory_order_acquire)) return;
  std::unique_lock lock(mutex);
  throw Fault(ANYHAL_STATUS_DEVICE_LOST, ANYHAL_REASON_NONE, loss_code, loss);
}

Current::Current(Device& device) : driver_(device.driver()) {
  device.admit();
  check(device, driver_.cuCtxGetCurrent(&before_), "cuCtxGetCurrent");
  if (before_ == device.context) return;
  check(device, driver_.cuCtxSetCurrent(device.context), "cuCtxSetCurrent");
  changed_ = true;
}

Current::~Current() {
  if (changed_) driver_.cuCtxSetCurrent(before_);
}

}  // namespace hal::cuda
