// Every declaration of cuBLASLt that this backend uses, in our own words.
// SPDX-License-Identifier: Apache-2.0
//
// Source: "cuBLAS Library User Guide", release 12.1, chapter 3 (using the cuBLASLt API). The
// numbers have been the same from 11 to 13.
#ifndef BACKENDS_CUDA_CUBLASLT_API_H_
#define BACKENDS_CUDA_CUBLASLT_API_H_

#include "cuda_api.h"

namespace hal::cuda {

using cublasLtHandle = struct cublasLtContext*;
using cublasLtMatmulDesc = struct cublasLtMatmulDescOpaque*;
using cublasLtMatrixLayout = struct cublasLtMatrixLayoutOpaque*;
using cublasLtMatmulPreference = struct cublasLtMatmulPreferenceOpaque*;

enum cublasStatus : int32_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cudaDataType : int32_t {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
};
enum cublasComputeType : int32_t {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
enum cublasOperation : int32_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum : int32_t {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // then B, C, D
};
// Split sums that meet in the compute type in the workspace: the only kind that loses no digits,
// and whose order does not depend on which block finishes first.
enum : uint32_t { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };

struct cublasLtMatmulAlgo {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult {
  cublasLtMatmulAlgo algo;
  size_t workspaceSize;
  cublasStatus state;
  float wavesCount;
  int reserved[4];
};

#define HAL_CUBLASLT_FUNCTIONS(X)                                                              \
  X(cublasLtCreate, cublasStatus, (cublasLtHandle * handle))                                   \
  X(cublasLtDestroy, cublasStatus, (cublasLtHandle handle))                                    \
  X(cublasLtGetVersion, size_t, ())                                                            \
  X(cublasLtMatmulDescCreate, cublasStatus,                                                    \
    (cublasLtMatmulDesc * desc, cublasComputeType compute, cudaDataType scale))                \
  X(cublasLtMatmulDescDestroy, cublasStatus, (cublasLtMatmulDesc desc))                        \
  X(cublasLtMatmulDescSetAttribute, cublasStatus,                                              \
    (cublasLtMatmulDesc desc, int32_t attribute, const void* value, size_t bytes))             \
  X(cublasLtMatrixLayoutCreate, cublasStatus,                                                  \
    (cublasLtMatrixLayout * layout, cudaDataType type, uint64_t rows, uint64_t columns,        \
     int64_t leading))                                                                         \
  X(cublasLtMatrixLayoutDestroy, cublasStatus, (cublasLtMatrixLayout layout))                  \
  X(cublasLtMatrixLayoutSetAttribute, cublasStatus,                                            \
    (cublasLtMatrixLayout layout, int32_t attribute, const void* value, size_t bytes))         \
  X(cublasLtMatmulPreferenceCreate, cublasStatus, (cublasLtMatmulPreference * preference))     \
  X(cublasLtMatmulPreferenceDestroy, cublasStatus, (cublasLtMatmulPreference preference))      \
  X(cublasLtMatmulPreferenceSetAttribute, cublasStatus,                                        \
    (cublasLtMatmulPreference preference, int32_t attribute, const void* value, size_t bytes)) \
  X(cublasLtMatmulAlgoGetHeuristic, cublasStatus,                                              \
    (cublasLtHandle handle, cublasLtMatmulDesc desc, cublasLtMatrixLayout a,                   \
     cublasLtMatrixLayout b, cublasLtMatrixLayout c, cublasLtMatrixLayout d,                   \
     cublasLtMatmulPreference preference, int wanted, cublasLtMatmulHeuristicResult* results,  \
     int* found))                                                                              \
  X(cublasLtMatmul, cublasStatus,                                                              \
    (cublasLtHandle handle, cublasLtMatmulDesc desc, const void* alpha, const void* a,         \
     cublasLtMatrixLayout a_layout, const void* b, cublasLtMatrixLayout b_layout,              \
     const void* beta, const void* c, cublasLtMatrixLayout c_layout, void* d,                  \
     cublasLtMatrixLayout d_layout, const cublasLtMatmulAlgo* algo, void* workspace,           \
     size_t workspace_bytes, CUstream stream))

struct CublasLt {
#define HAL_CUBLASLT_MEMBER(name, answer, parameters) answer(*name) parameters;
  HAL_CUBLASLT_FUNCTIONS(HAL_CUBLASLT_MEMBER)
#undef HAL_CUBLASLT_MEMBER
};

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_CUBLASLT_API_H_
