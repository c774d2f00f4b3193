/* The DLPack interchange records, version 1.1, as its public specification lays them out.
 * SPDX-License-Identifier: Apache-2.0
 * Layout facts: https://dmlc.github.io/dlpack/latest/c_api.html and include/dlpack/dlpack.h of
 * github.com/dmlc/dlpack at 007cef0eb0b2b60a62bc10df6166a7684736d31e. Names are DLPack's own. */
#ifndef ANYHAL_DLPACK_H_
#define ANYHAL_DLPACK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is exported: the type codes up to 17 came with 1.1, and nothing later is used. */
#define DLPACK_MAJOR_VERSION 1u
#define DLPACK_MINOR_VERSION 1u
#define DLPACK_FLAG_BITMASK_READ_ONLY 1u
#define DLPACK_FLAG_BITMASK_IS_COPIED 2u
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED 4u

typedef enum DLDeviceType {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17
} DLDeviceType;

typedef enum DLDataTypeCode {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e3m4 = 7,
  kDLFloat8_e4m3 = 8,
  kDLFloat8_e4m3b11fnuz = 9,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e4m3fnuz = 11,
  kDLFloat8_e5m2 = 12,
  kDLFloat8_e5m2fnuz = 13,
  kDLFloat8_e8m0fnu = 14,
  kDLFloat6_e2m3fn = 15,
  kDLFloat6_e3m2fn = 16,
  kDLFloat4_e2m1fn = 17
} DLDataTypeCode;
typedef struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
}
#endif

#endif /* ANYHAL_DLPACK_H_ */
