// What this backend uses of OpenCL 1.2: types, numbers, and a table of the loader's functions.
// SPDX-License-Identifier: Apache-2.0
//
// Written from the OpenCL 1.2 API specification (section numbers beside each group) and the
// extension specifications named, so that no header need be installed. The ICD loader is opened by
// name at run time; nothing is linked.
#ifndef BACKENDS_OPENCL_OPENCL_API_H_
#define BACKENDS_OPENCL_OPENCL_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace hal::opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bool = cl_uint;
using cl_bitfield = cl_ulong;
using cl_platform_id = struct _cl_platform_id*;
using cl_device_id = struct _cl_device_id*;
using cl_context = struct _cl_context*;
using cl_command_queue = struct _cl_command_queue*;
using cl_mem = struct _cl_mem*;
using cl_program = struct _cl_program*;
using cl_kernel = struct _cl_kernel*;
using cl_event = struct _cl_event*;

// Errors (5.2.1 and others).
constexpr cl_int kSuccess = 0;
constexpr cl_int kDeviceNotFound = -1;
constexpr cl_int kDeviceNotAvailable = -2;
constexpr cl_int kMemObjectAllocationFailure = -4;
constexpr cl_int kOutOfResources = -5;
constexpr cl_int kOutOfHostMemory = -6;
constexpr cl_int kBuildProgramFailure = -11;
constexpr cl_int kExecStatusErrorForEventsInWaitList = -14;
constexpr cl_int kInvalidValue = -30;
constexpr cl_int kInvalidDevice = -33;
constexpr cl_int kInvalidContext = -34;
constexpr cl_int kInvalidCommandQueue = -36;
constexpr cl_int kInvalidKernelName = -46;
constexpr cl_int kInvalidArgIndex = -49;
constexpr cl_int kInvalidBufferSize = -61;
constexpr cl_int kPlatformNotFoundKhr = -1001;  // cl_khr_icd: the loader knows no platform

// Platforms and devices (4.1, 4.2).
constexpr cl_uint kPlatformVersion = 0x0901;
constexpr cl_uint kPlatformName = 0x0902;
constexpr cl_bitfield kDeviceTypeCpu = 1u << 1;
constexpr cl_bitfield kDeviceTypeAll = 0xffffffff;
constexpr cl_uint kDeviceType = 0x1000;
constexpr cl_uint kDeviceMaxComputeUnits = 0x1002;
constexpr cl_uint kDeviceMaxWorkGroupSize = 0x1004;
constexpr cl_uint kDeviceMaxMemAllocSize = 0x1010;
constexpr cl_uint kDeviceMemBaseAddrAlign = 0x1019;  // in bits
constexpr cl_uint kDeviceSingleFpConfig = 0x101b;
constexpr cl_uint kDeviceGlobalMemSize = 0x101f;
constexpr cl_uint kDeviceLocalMemSize = 0x1023;
constexpr cl_uint kDeviceEndianLittle = 0x1026;
constexpr cl_uint kDeviceAvailable = 0x1027;
constexpr cl_uint kDeviceCompilerAvailable = 0x1028;
constexpr cl_uint kDeviceName = 0x102b;
constexpr cl_uint kDeviceVendor = 0x102c;
constexpr cl_uint kDriverVersion = 0x102d;
constexpr cl_uint kDeviceVersion = 0x102f;
constexpr cl_uint kDeviceExtensions = 0x1030;
constexpr cl_uint kDeviceDoubleFpConfig = 0x1032;
constexpr cl_uint kDeviceHostUnifiedMemory = 0x1035;
constexpr cl_uint kDeviceUuidKhr = 0x106a;        // cl_khr_device_uuid
constexpr cl_uint kDevicePciBusInfoKhr = 0x410f;  // cl_khr_pci_bus_info: four cl_uint
constexpr cl_bitfield kFpDenorm = 1u << 0;
constexpr cl_bitfield kFpInfNan = 1u << 1;
constexpr cl_bitfield kFpCorrectlyRoundedDivideSqrt = 1u << 7;

// Queues, memory, events (5.1, 5.2, 5.9).
constexpr cl_bitfield kQueueOutOfOrder = 1u << 0;
constexpr cl_bitfield kMemReadWrite = 1u << 0;
constexpr cl_bitfield kMemAllocHostPtr = 1u << 4;
constexpr cl_bitfield kMapRead = 1u << 0;
constexpr cl_bitfield kMapWrite = 1u << 1;
constexpr cl_uint kEventCommandExecutionStatus = 0x11d3;
constexpr cl_int kComplete = 0;

// Programs (5.6).
constexpr cl_uint kProgramBinarySizes = 0x1165;
constexpr cl_uint kProgramBinaries = 0x1166;
constexpr cl_uint kProgramBuildLog = 0x1183;

using ContextNotify = void (*)(const char*, const void*, size_t, void*);
using ProgramNotify = void (*)(cl_program, void*);
using EventNotify = void (*)(cl_event, cl_int, void*);

// Each pointer is the function `cl` + its name.
struct Api {
  cl_int (*GetPlatformIDs)(cl_uint, cl_platform_id*, cl_uint*);
  cl_int (*GetPlatformInfo)(cl_platform_id, cl_uint, size_t, void*, size_t*);
  cl_int (*GetDeviceIDs)(cl_platform_id, cl_bitfield, cl_uint, cl_device_id*, cl_uint*);
  cl_int (*GetDeviceInfo)(cl_device_id, cl_uint, size_t, void*, size_t*);
  cl_context (*CreateContext)(const intptr_t*, cl_uint, const cl_device_id*, ContextNotify, void*,
                              cl_int*);
  cl_int (*ReleaseContext)(cl_context);
  cl_command_queue (*CreateCommandQueue)(cl_context, cl_device_id, cl_bitfield, cl_int*);
  cl_int (*ReleaseCommandQueue)(cl_command_queue);
  cl_mem (*CreateBuffer)(cl_context, cl_bitfield, size_t, void*, cl_int*);
  cl_int (*ReleaseMemObject)(cl_mem);
  cl_program (*CreateProgramWithSource)(cl_context, cl_uint, const char**, const size_t*, cl_int*);
  cl_program (*CreateProgramWithBinary)(cl_context, cl_uint, const cl_device_id*, const size_t*,
                                        const unsigned char**, cl_int*, cl_int*);
  cl_int (*BuildProgram)(cl_program, cl_uint, const cl_device_id*, const char*, ProgramNotify,
                         void*);
  cl_int (*GetProgramInfo)(cl_program, cl_uint, size_t, void*, size_t*);
  cl_int (*GetProgramBuildInfo)(cl_program, cl_device_id, cl_uint, size_t, void*, size_t*);
  cl_int (*ReleaseProgram)(cl_program);
  cl_kernel (*CreateKernel)(cl_program, const char*, cl_int*);
  cl_int (*ReleaseKernel)(cl_kernel);
  cl_int (*SetKernelArg)(cl_kernel, cl_uint, size_t, const void*);
  cl_int (*EnqueueNDRangeKernel)(cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*,
                                 const size_t*, cl_uint, const cl_event*, cl_event*);
  cl_int (*EnqueueReadBuffer)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint,
                              const cl_event*, cl_event*);
  cl_int (*EnqueueWriteBuffer)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*,
                               cl_uint, const cl_event*, cl_event*);
  cl_int (*EnqueueCopyBuffer)(cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint,
                              const cl_event*, cl_event*);
  cl_int (*EnqueueFillBuffer)(cl_command_queue, cl_mem, const void*, size_t, size_t, size_t,
                              cl_uint, const cl_event*, cl_event*);
  void* (*EnqueueMapBuffer)(cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint,
                            const cl_event*, cl_event*, cl_int*);
  cl_int (*EnqueueUnmapMemObject)(cl_command_queue, cl_mem, void*, cl_uint, const cl_event*,
                                  cl_event*);
  cl_int (*EnqueueMarkerWithWaitList)(cl_command_queue, cl_uint, const cl_event*, cl_event*);
  cl_int (*EnqueueBarrierWithWaitList)(cl_command_queue, cl_uint, const cl_event*, cl_event*);
  cl_int (*Flush)(cl_command_queue);
  cl_int (*Finish)(cl_command_queue);
  cl_int (*WaitForEvents)(cl_uint, const cl_event*);
  cl_int (*GetEventInfo)(cl_event, cl_uint, size_t, void*, size_t*);
  cl_int (*SetEventCallback)(cl_event, cl_int, EventNotify, void*);
  cl_int (*RetainEvent)(cl_event);
  cl_int (*ReleaseEvent)(cl_event);
};

// Opens the loader. An empty sentence, or what is missing and what to install; `broken` says that
// something is there and cannot be used.
std::string load_api(const char* library, Api& api, bool& broken);

// The name of an error as the specification writes it, without CL_.
const char* error_name(cl_int code);

}  // namespace hal::opencl

#endif  // BACKENDS_OPENCL_OPENCL_API_H_
