// The one way from the driver's answers to statuses, and what is kept of a lost device.
// SPDX-License-Identifier: Apache-2.0
#include "objects.h"

namespace hal::opencl {

// Handles here are live, so a driver that knows one no more has given up the device behind it.
anyhal_status status_of(cl_int code) {
  switch (code) {
    case kSuccess:
      return ANYHAL_STATUS_OK;
    case kMemObjectAllocationFailure:
    case kOutOfResources:
    case kOutOfHostMemory:
      return ANYHAL_STATUS_OUT_OF_MEMORY;
    case kDeviceNotFound:
    case kDeviceNotAvailable:
    case kInvalidDevice:
    case kInvalidContext:
    case kInvalidCommandQueue:
      return ANYHAL_STATUS_DEVICE_LOST;
    default:
      return ANYHAL_STATUS_INTERNAL;
  }
}

std::string answer_of(const char* what, cl_int code) {
  return std::string(what) + " answered " + error_name(code) + " (" + std::to_string(code) + ")";
}

void check(Device& device, cl_int code, const char* what) {
  if (code == kSuccess) return;
  const anyhal_status status = status_of(code);
  if (status == ANYHAL_STATUS_DEVICE_LOST) lose(device, code, answer_of(what, code));
  require_present(device);
  throw Failure(status, 0, "%s; %s", answer_of(what, code).c_str(),
                status == ANYHAL_STATUS_OUT_OF_MEMORY ? "free arrays or use smaller batches"
                                                      : "please report this with the driver");
}

void say(const anyhal_self& self, int32_t level, const std::string& text) {
  if (self.services->log != nullptr)
    self.services->log(self.services->context, level, text.c_str());
}

void gave_back(const anyhal_self& self, cl_int code, const char* what) {
  if (code != kSuccess) say(self, 2, answer_of(what, code) + ", so the driver keeps it");
}

void lose(Device& device, cl_int code, const std::string& why) {
  std::lock_guard guard(device.loss_lock);
  if (device.lost) return;
  device.lost_text = why + "; start a new process";
  device.lost_code = code;
  device.lost = true;
}

std::string loss_of(Device& device) {
  std::lock_guard guard(device.loss_lock);
  return device.lost_text;
}

void require_present(Device& device) {
  if (device.lost.load(std::memory_order_relaxed))
    throw Failure(ANYHAL_STATUS_DEVICE_LOST, 0, "%s", loss_of(device).c_str());
}

}  // namespace hal::opencl
