// Devices and contexts of the double.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "double.h"

using namespace cuda_double;

namespace {

Device* device_of(CUdevice number) {
  auto& devices = world().devices;
  return number >= 0 && number < int(devices.size()) ? devices[number].get() : nullptr;
}

struct Name {
  CUresult code;
  const char* text;
};
const Name kNames[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
};

}  // namespace

DOUBLE_EXPORT CUresult cuInit(unsigned) {
  DOUBLE_ENTER(cuInit, false);
  world().started = true;
  return world().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDriverGetVersion(int* version) {
  DOUBLE_ENTER(cuDriverGetVersion, false);
  *version = world().version;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  DOUBLE_ENTER(cuGetErrorName, false);
  for (const Name& name : kNames)
    if (name.code == error) return *text = name.text, CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}

DOUBLE_EXPORT CUresult cuDeviceGetCount(int* count) {
  DOUBLE_ENTER(cuDeviceGetCount, false);
  *count = static_cast<int>(world().devices.size());
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  DOUBLE_ENTER(cuDeviceGet, false);
  *device = ordinal;
  return device_of(ordinal) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DOUBLE_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  DOUBLE_ENTER(cuDeviceGetName, false);
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(length), "simulated CUDA device (test double)");
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  DOUBLE_ENTER(cuDeviceGetUuid_v2, false);
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "simulated-device", 16);
  uuid->bytes[15] = static_cast<char>('0' + device);
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  DOUBLE_ENTER(cuDeviceTotalMem_v2, false);
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device_of(device)->bytes;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                            CUdevice number) {
  DOUBLE_ENTER(cuDeviceGetAttribute, false);
  const Device* device = device_of(number);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = device->major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = device->minor;
      break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *value = world().growth;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = number + 1;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  DOUBLE_ENTER(cuDeviceCanAccessPeer, false);
  if (device_of(device) == nullptr || device_of(peer) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *can = world().peers && device != peer;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice number) {
  DOUBLE_ENTER(cuDevicePrimaryCtxRetain, false);
  Device* device = device_of(number);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->context.sticky != CUDA_SUCCESS) return device->context.sticky;
  ++device->context.retained;
  *context = &device->context;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number) {
  DOUBLE_ENTER(cuDevicePrimaryCtxRelease_v2, false);
  Device* device = device_of(number);
  if (device == nullptr || device->context.retained == 0)
    return violation("cuDevicePrimaryCtxRelease_v2 more often than retained",
                     CUDA_ERROR_INVALID_CONTEXT);
  --device->context.retained;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  DOUBLE_ENTER(cuCtxSetCurrent, false);
  current = context;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  DOUBLE_ENTER(cuCtxGetCurrent, false);
  *context = current;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  DOUBLE_ENTER(cuCtxGetStreamPriorityRange, true);
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
