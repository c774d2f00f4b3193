// Every declaration of NVIDIA's driver library that this backend uses, in our own words.
// SPDX-License-Identifier: Apache-2.0
//
// Source: "CUDA Driver API Reference Manual", release 12.1, chapters 6.1 (data types) to 6.23
// (graphs). tests/test_cuda_header.py compares each number, size and prototype with the toolkit's
// cuda.h where that is installed. A name ending in _v2 is the symbol that this form of the call has
// had in the library since it changed; the library keeps it for good.
#ifndef BACKENDS_CUDA_CUDA_API_H_
#define BACKENDS_CUDA_CUDA_API_H_

#include <stddef.h>
#include <stdint.h>

namespace hal::cuda {

// 12.1: the first driver that reads the PTX of the kernel bundle and has every function below.
constexpr int kDriverFloor = 12010;

// ------------------------------------------------------------------------------------ handles

using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmemGenericAllocationHandle = uint64_t;
struct CUuuid {
  char bytes[16];
};

// -------------------------------------------------------------------------------------- codes

enum CUresult : int32_t {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
  CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
};

enum CUdevice_attribute : int32_t {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
  CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
  CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
  CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
};

enum CUfunction_attribute : int32_t { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
enum CUjit_option : int32_t {
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};
enum CUstreamCaptureMode : int32_t {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum : uint32_t {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTREGISTER_PORTABLE = 1,
};
// The two keys and the end of cuLaunchKernel's `extra`: parameters as one packed buffer.
constexpr uintptr_t CU_LAUNCH_PARAM_END_AS_INT = 0;
constexpr uintptr_t CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT = 1;
constexpr uintptr_t CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT = 2;

// -------------------------------------------------------------------- virtual memory, graphs

enum CUmemAllocationType : int32_t { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemLocationType : int32_t { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAccess_flags : int32_t { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum CUmemAllocationGranularity_flags : int32_t { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };

struct CUmemLocation {
  CUmemLocationType type;
  int id;
};
struct CUmemAllocationProp {
  CUmemAllocationType type;
  int32_t requestedHandleTypes;  // 0: none
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};
struct CUgraphExecUpdateResultInfo {
  int32_t result;  // 0: the update was made
  CUgraphNode errorNode;
  CUgraphNode errorFromNode;
};

// ----------------------------------------------------------------------------------- functions

// X(symbol, parameters): all answer CUresult, and all are required of a driver.
#define HAL_CUDA_FUNCTIONS(X)                                                                      \
  X(cuInit, (unsigned flags))                                                                      \
  X(cuDriverGetVersion, (int* version))                                                            \
  X(cuGetErrorName, (CUresult error, const char** text))                                           \
  X(cuDeviceGetCount, (int* count))                                                                \
  X(cuDeviceGet, (CUdevice * device, int ordinal))                                                 \
  X(cuDeviceGetName, (char* name, int length, CUdevice device))                                    \
  X(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                          \
  X(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device))                                         \
  X(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))             \
  X(cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                             \
  X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                              \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                               \
  X(cuCtxSetCurrent, (CUcontext context))                                                          \
  X(cuCtxGetCurrent, (CUcontext * context))                                                        \
  X(cuCtxGetStreamPriorityRange, (int* least, int* greatest))                                      \
  X(cuMemGetInfo_v2, (size_t* free, size_t* total))                                                \
  X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                          \
  X(cuMemFree_v2, (CUdeviceptr pointer))                                                           \
  X(cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags))                                \
  X(cuMemFreeHost, (void* pointer))                                                                \
  X(cuMemHostRegister_v2, (void* pointer, size_t bytes, unsigned flags))                           \
  X(cuMemHostUnregister, (void* pointer))                                                          \
  X(cuMemGetAllocationGranularity,                                                                 \
    (size_t* bytes, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags flags))      \
  X(cuMemAddressReserve, (CUdeviceptr * pointer, size_t bytes, size_t alignment, CUdeviceptr at,   \
                          unsigned long long flags))                                               \
  X(cuMemAddressFree, (CUdeviceptr pointer, size_t bytes))                                         \
  X(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t bytes,                             \
                  const CUmemAllocationProp* prop, unsigned long long flags))                      \
  X(cuMemRelease, (CUmemGenericAllocationHandle handle))                                           \
  X(cuMemMap, (CUdeviceptr pointer, size_t bytes, size_t offset,                                   \
               CUmemGenericAllocationHandle handle, unsigned long long flags))                     \
  X(cuMemUnmap, (CUdeviceptr pointer, size_t bytes))                                               \
  X(cuMemSetAccess,                                                                                \
    (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count))              \
  X(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))              \
  X(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,                    \
                        CUcontext from_context, size_t bytes, CUstream stream))                    \
  X(cuMemsetD8Async, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream))    \
  X(cuMemsetD16Async, (CUdeviceptr pointer, unsigned short value, size_t count, CUstream stream))  \
  X(cuMemsetD32Async, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream))        \
  X(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))                 \
  X(cuStreamDestroy_v2, (CUstream stream))                                                         \
  X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                           \
  X(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                          \
  X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                        \
  X(cuEventCreate, (CUevent * event, unsigned flags))                                              \
  X(cuEventDestroy_v2, (CUevent event))                                                            \
  X(cuEventRecord, (CUevent event, CUstream stream))                                               \
  X(cuEventQuery, (CUevent event))                                                                 \
  X(cuModuleLoadDataEx,                                                                            \
    (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values))  \
  X(cuModuleUnload, (CUmodule module))                                                             \
  X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))               \
  X(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))          \
  X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,       \
                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,  \
                     CUstream stream, void** parameters, void** extra))                            \
  X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))    \
  X(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo * result)) \
  X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                            \
  X(cuGraphExecDestroy, (CUgraphExec exec))                                                        \
  X(cuGraphDestroy, (CUgraph graph))

// The functions of one loaded library, under their symbols' names.
struct Driver {
#define HAL_CUDA_MEMBER(name, parameters) CUresult(*name) parameters;
  HAL_CUDA_FUNCTIONS(HAL_CUDA_MEMBER)
#undef HAL_CUDA_MEMBER
};

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_CUDA_API_H_
