// Opens the ICD loader and fills the function table.
// SPDX-License-Identifier: Apache-2.0
#include "opencl_api.h"

#include <dlfcn.h>

#include "anyhal/sdk/library.hpp"

namespace hal::opencl {
namespace {

class Loader {
 public:
  explicit Loader(void* library) : library_(library) {}
  template <class Function>
  void operator()(Function*& to, const char* name) {
    to = reinterpret_cast<Function*>(dlsym(library_, name));
    if (to == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

std::string load_api(const char* library, Api& api, bool& broken) {
  const std::string fault = sdk::library_fault(library);
  broken = !fault.empty();
  if (broken) return "the OpenCL loader cannot be opened (" + fault + "); install it again";
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* said = dlerror();
    const std::string why = said != nullptr ? said : library;
    broken = why.find("No such file") == std::string::npos;
    return broken ? "the OpenCL loader cannot be opened (" + why + "); install it again"
                  : "the OpenCL loader is not there (" + why +
                        "); install it, as with apt install ocl-icd-libopencl1, and a driver";
  }
  Loader load(handle);
  load(api.GetPlatformIDs, "clGetPlatformIDs");
  load(api.GetPlatformInfo, "clGetPlatformInfo");
  load(api.GetDeviceIDs, "clGetDeviceIDs");
  load(api.GetDeviceInfo, "clGetDeviceInfo");
  load(api.CreateContext, "clCreateContext");
  load(api.ReleaseContext, "clReleaseContext");
  load(api.CreateCommandQueue, "clCreateCommandQueue");
  load(api.ReleaseCommandQueue, "clReleaseCommandQueue");
  load(api.CreateBuffer, "clCreateBuffer");
  load(api.ReleaseMemObject, "clReleaseMemObject");
  load(api.CreateProgramWithSource, "clCreateProgramWithSource");
  load(api.CreateProgramWithBinary, "clCreateProgramWithBinary");
  load(api.BuildProgram, "clBuildProgram");
  load(api.GetProgramInfo, "clGetProgramInfo");
  load(api.GetProgramBuildInfo, "clGetProgramBuildInfo");
  load(api.ReleaseProgram, "clReleaseProgram");
  load(api.CreateKernel, "clCreateKernel");
  load(api.ReleaseKernel, "clReleaseKernel");
  load(api.SetKernelArg, "clSetKernelArg");
  load(api.EnqueueNDRangeKernel, "clEnqueueNDRangeKernel");
  load(api.EnqueueReadBuffer, "clEnqueueReadBuffer");
  load(api.EnqueueWriteBuffer, "clEnqueueWriteBuffer");
  load(api.EnqueueCopyBuffer, "clEnqueueCopyBuffer");
  load(api.EnqueueFillBuffer, "clEnqueueFillBuffer");
  load(api.EnqueueMapBuffer, "clEnqueueMapBuffer");
  load(api.EnqueueUnmapMemObject, "clEnqueueUnmapMemObject");
  load(api.EnqueueMarkerWithWaitList, "clEnqueueMarkerWithWaitList");
  load(api.EnqueueBarrierWithWaitList, "clEnqueueBarrierWithWaitList");
  load(api.Flush, "clFlush");
  load(api.Finish, "clFinish");
  load(api.WaitForEvents, "clWaitForEvents");
  load(api.GetEventInfo, "clGetEventInfo");
  load(api.SetEventCallback, "clSetEventCallback");
  load(api.RetainEvent, "clRetainEvent");
  load(api.ReleaseEvent, "clReleaseEvent");
  if (load.missing().empty()) return "";
  broken = true;
  return std::string("the OpenCL loader ") + library + " has no " + load.missing() +
         ", which OpenCL 1.2 has; install a newer one";
}

const char* error_name(cl_int code) {
  switch (code) {
    case -1:
      return "DEVICE_NOT_FOUND";
    case -2:
      return "DEVICE_NOT_AVAILABLE";
    case -3:
      return "COMPILER_NOT_AVAILABLE";
    case -4:
      return "MEM_OBJECT_ALLOCATION_FAILURE";
    case -5:
      return "OUT_OF_RESOURCES";
    case -6:
      return "OUT_OF_HOST_MEMORY";
    case -11:
      return "BUILD_PROGRAM_FAILURE";
    case -14:
      return "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    case -30:
      return "INVALID_VALUE";
    case -33:
      return "INVALID_DEVICE";
    case -34:
      return "INVALID_CONTEXT";
    case -36:
      return "INVALID_COMMAND_QUEUE";
    case -38:
      return "INVALID_MEM_OBJECT";
    case -42:
      return "INVALID_BINARY";
    case -45:
      return "INVALID_PROGRAM_EXECUTABLE";
    case -46:
      return "INVALID_KERNEL_NAME";
    case -48:
      return "INVALID_KERNEL";
    case -49:
      return "INVALID_ARG_INDEX";
    case -50:
      return "INVALID_ARG_VALUE";
    case -51:
      return "INVALID_ARG_SIZE";
    case -52:
      return "INVALID_KERNEL_ARGS";
    case -54:
      return "INVALID_WORK_GROUP_SIZE";
    case -55:
      return "INVALID_WORK_ITEM_SIZE";
    case -57:
      return "INVALID_EVENT_WAIT_LIST";
    case -58:
      return "INVALID_EVENT";
    case -59:
      return "INVALID_OPERATION";
    case -61:
      return "INVALID_BUFFER_SIZE";
    case -63:
      return "INVALID_GLOBAL_WORK_SIZE";
    case -1001:
      return "PLATFORM_NOT_FOUND_KHR";
    default:
      return "an unnamed error";
  }
}

}  // namespace hal::opencl
