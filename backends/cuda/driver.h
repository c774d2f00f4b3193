// The driver library: found, loaded, its failures as statuses, and its context rule.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_DRIVER_H_
#define BACKENDS_CUDA_DRIVER_H_

#include <atomic>
#include <mutex>
#include <string>

#include "anyhal/backend.h"
#include "anyhal/sdk/guard.hpp"
#include "cublaslt_api.h"
#include "cuda_api.h"

namespace hal::cuda {

// A failure on its way to the edge, with the library's own number.
class Fault : public sdk::Failure {
 public:
  Fault(anyhal_status status, int32_t reason, int64_t code, const std::string& text)
      : Failure(status, reason, "%s", text.c_str()), code_(code) {}
  int64_t code() const { return code_; }

 private:
  int64_t code_;
};

// As sdk::guard, and keeps the library's number.
template <class Fn>
anyhal_status guarded(anyhal_error* error, Fn&& fn) noexcept {
  return sdk::guard(error, [&] {
    try {
      fn();
      return ANYHAL_STATUS_OK;
    } catch (const Fault& fault) {
      sdk::fail(error, fault.status(), fault.reason(), "%s", fault.what());
      if (error != nullptr && ANYHAL_HAS(error, anyhal_error, text))
        error->vendor_code = fault.code();
      return fault.status();
    }
  });
}

// Opens a library of a setting (a file, or a folder that holds `file`), or of the system. Answers
// null and says why in `why`.
void* open_library(const char* setting, const char* file, std::string* why);

bool is_folder(const char* path);

// Fills the table; the text names what is missing, and is empty when nothing is.
std::string load_driver(void* library, Driver* driver);
std::string load_cublaslt(void* library, CublasLt* blas);

// Whether the context is beyond use after this code: "the process must be terminated".
bool is_sticky(CUresult code);

struct Device;

// The answer of a call, as an exception when it is none: `what` is the function called.
void check(Device& device, CUresult code, const char* what);
// The same where no device is concerned yet.
void check(const Driver& driver, CUresult code, const char* what);
#define HAL_CUDA(device, call, ...) \
  ::hal::cuda::check(device, (device).driver().call(__VA_ARGS__), #call)

// Makes the device's context current for a while, and puts back what was there.
class Current {
 public:
  explicit Current(Device& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_DRIVER_H_
