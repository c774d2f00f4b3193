// A stand-in for libcublasLt in tests: plain products on the double's streams.
// SPDX-License-Identifier: Apache-2.0
//
// CUBLASLT_DOUBLE is its script: fail=FUNCTION@N:STATUS, parts separated by ';'.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cublaslt_api.h"

using namespace hal::cuda;

#define DOUBLE_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" int cuda_double_put(CUstream stream, const char* kind, void (*run)(void*),
                               void* argument, void (*drop)(void*));
extern "C" void* cuda_double_bytes(const void* address, uint64_t bytes);

namespace hal::cuda {
struct cublasLtContext {
  int unused;
};
struct cublasLtMatmulDescOpaque {
  cublasComputeType compute;
  cublasOperation a, b;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading, batch_stride;
  int32_t batch;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace;
  uint32_t schemes;  // 1: sums may meet in the output, in the order in which they come
};
}  // namespace hal::cuda

namespace {

std::mutex mutex;
std::map<std::string, uint64_t> calls;

// The scripted answer of this call of a function, or success.
cublasStatus enter(const char* name) {
  std::unique_lock lock(mutex);
  const uint64_t call = ++calls[name];
  const char* script = std::getenv("CUBLASLT_DOUBLE");
  const std::string key = std::string(name) + "@" + std::to_string(call) + ":";
  const char* found = script != nullptr ? std::strstr(script, key.c_str()) : nullptr;
  return found != nullptr ? static_cast<cublasStatus>(std::atoi(found + key.size()))
                          : CUBLAS_STATUS_SUCCESS;
}
#define ENTER(name) \
  if (cublasStatus early = enter(#name); early != CUBLAS_STATUS_SUCCESS) return early

struct Side {
  cublasLtMatrixLayoutOpaque layout;
  const void* data;
};
struct Product {
  Side a, b, d;
  cublasOperation a_op, b_op;
  cublasComputeType compute;
  bool unordered;
  void* workspace;
  uint64_t workspace_bytes;
};

uint64_t size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

float half_value(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent     ? std::ldexp(float(1024 + fraction), exponent - 25)
                               : std::ldexp(float(fraction), -24);
  return h & 0x8000 ? -value : value;
}
float bfloat_value(uint16_t b) {
  const uint32_t bits = uint32_t(b) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
uint16_t bfloat_bits(float value) {
  uint32_t x;
  std::memcpy(&x, &value, 4);
  if ((x & 0x7fffffff) > 0x7f800000) return uint16_t(x >> 16 | 0x40);
  return uint16_t((x + 0x7fff + (x >> 16 & 1)) >> 16);
}
uint16_t half_bits(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return uint16_t(sign | 0x7e00);
  if (size >= 65520.0f) return uint16_t(sign | 0x7c00);
  if (size < 6.103515625e-05f) return uint16_t(sign | uint16_t(std::nearbyint(size * 16777216.0f)));
  const int exponent = std::ilogb(size);
  const int fraction = int(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return uint16_t(sign | (((exponent + 14) << 10) + fraction));  // a carry goes into the exponent
}

// Factors as the compute type rounds them.
float rounded(float value, cublasComputeType compute) {
  if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) return bfloat_value(bfloat_bits(value));
  if (compute != CUBLAS_COMPUTE_32F_FAST_TF32) return value;
  uint32_t x;
  std::memcpy(&x, &value, 4);
  if ((x & 0x7f800000) != 0x7f800000) x = (x + 0xfff + (x >> 13 & 1)) & ~0x1fffu;
  std::memcpy(&value, &x, 4);
  return value;
}

template <class T>
std::vector<T> read(const Side& side, uint64_t batch, cublasOperation op, cublasComputeType compute,
                    uint64_t* rows, uint64_t* columns) {
  const auto& l = side.layout;
  const char* base = static_cast<const char*>(side.data) +
                     int64_t(batch) * l.batch_stride * int64_t(size_of(l.type));
  const uint64_t span = l.columns == 0 ? 0 : (l.columns - 1) * uint64_t(l.leading) + l.rows;
  const void* bytes = cuda_double_bytes(base, span * size_of(l.type));
  *rows = op == CUBLAS_OP_N ? l.rows : l.columns;
  *columns = op == CUBLAS_OP_N ? l.columns : l.rows;
  std::vector<T> out(l.rows * l.columns);  // rows after each other
  for (uint64_t c = 0; c < l.columns; ++c) {
    for (uint64_t r = 0; r < l.rows; ++r) {
      const uint64_t from = c * uint64_t(l.leading) + r;
      const uint64_t to = op == CUBLAS_OP_N ? r * l.columns + c : c * l.rows + r;
      switch (l.type) {
        case CUDA_R_64F:
          out[to] = T(static_cast<const double*>(bytes)[from]);
          break;
        case CUDA_R_16F:
          out[to] = half_value(static_cast<const uint16_t*>(bytes)[from]);
          break;
        case CUDA_R_16BF:
          out[to] = bfloat_value(static_cast<const uint16_t*>(bytes)[from]);
          break;
        default:
          out[to] = T(rounded(static_cast<const float*>(bytes)[from], compute));
      }
    }
  }
  return out;
}

void store(const Side& side, uint64_t at, double value) {
  char* to = static_cast<char*>(const_cast<void*>(side.data));
  switch (side.layout.type) {
    case CUDA_R_64F:
      reinterpret_cast<double*>(to)[at] = value;
      break;
    case CUDA_R_16F:
      reinterpret_cast<uint16_t*>(to)[at] = half_bits(float(value));
      break;
    case CUDA_R_16BF:
      reinterpret_cast<uint16_t*>(to)[at] = bfloat_bits(float(value));
      break;
    default:
      reinterpret_cast<float*>(to)[at] = float(value);
  }
}

// Sixteen sums that do not depend on each other, so that the compiler may use vectors.
template <class T>
T dot(const T* a, const T* b, uint64_t count) {
  T sums[16] = {};
  uint64_t k = 0;
  for (; k + 16 <= count; k += 16)
    for (int i = 0; i < 16; ++i) sums[i] += a[k + i] * b[k + i];
  for (int i = 0; k < count; ++k, ++i) sums[i] += a[k] * b[k];
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  return sums[0];
}

template <class T>
void multiply(const Product& p) {
  for (uint64_t batch = 0; batch < uint64_t(p.d.layout.batch); ++batch) {
    uint64_t m, k, k2, n;
    const auto a = read<T>(p.a, batch, p.a_op, p.compute, &m, &k);
    // b by columns: its transpose, rows after each other.
    const auto other = p.b_op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
    const auto b = read<T>(p.b, batch, other, p.compute, &n, &k2);
    const auto& l = p.d.layout;
    const char* base = static_cast<const char*>(p.d.data) +
                       int64_t(batch) * l.batch_stride * int64_t(size_of(l.type));
    const Side out = {l, cuda_double_bytes(base, ((n - 1) * l.leading + m) * size_of(l.type))};
    for (uint64_t c = 0; c < n; ++c)
      for (uint64_t r = 0; r < m; ++r)
        store(out, c * uint64_t(l.leading) + r, dot(&a[r * k], &b[c * k], k));
  }
}

// A sum whose order nobody fixed differs in its last bit from run to run.
void run_product(void* argument) {
  const auto& p = *static_cast<Product*>(argument);
  static std::atomic<uint32_t> runs{0};
  struct Shaken {
    const Product& p;
    ~Shaken() {
      if (p.unordered && ++runs % 2 == 0)
        *static_cast<uint8_t*>(cuda_double_bytes(p.d.data, 1)) ^= 1;
    }
  } shaken{p};
  // Whoever else keeps something there will notice.
  if (p.workspace_bytes != 0)
    std::memset(cuda_double_bytes(p.workspace, p.workspace_bytes), 0xff, p.workspace_bytes);
  p.compute == CUBLAS_COMPUTE_64F ? multiply<double>(p) : multiply<float>(p);
}

}  // namespace

DOUBLE_EXPORT cublasStatus cublasLtCreate(cublasLtHandle* handle) {
  ENTER(cublasLtCreate);
  *handle = new cublasLtContext{0};
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT cublasStatus cublasLtDestroy(cublasLtHandle handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT size_t cublasLtGetVersion() { return 120400; }

DOUBLE_EXPORT cublasStatus cublasLtMatmulDescCreate(cublasLtMatmulDesc* desc,
                                                    cublasComputeType compute, cudaDataType) {
  ENTER(cublasLtMatmulDescCreate);
  *desc = new cublasLtMatmulDescOpaque{compute, CUBLAS_OP_N, CUBLAS_OP_N};
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT cublasStatus cublasLtMatmulDescDestroy(cublasLtMatmulDesc desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT cublasStatus cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc desc,
                                                          int32_t attribute, const void* value,
                                                          size_t bytes) {
  ENTER(cublasLtMatmulDescSetAttribute);
  if (bytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) std::memcpy(&desc->a, value, 4);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) std::memcpy(&desc->b, value, 4);
  return CUBLAS_STATUS_SUCCESS;
}

DOUBLE_EXPORT cublasStatus cublasLtMatrixLayoutCreate(cublasLtMatrixLayout* layout,
                                                      cudaDataType type, uint64_t rows,
                                                      uint64_t columns, int64_t leading) {
  ENTER(cublasLtMatrixLayoutCreate);
  *layout = new cublasLtMatrixLayoutOpaque{type, rows, columns, leading, 0, 1};
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT cublasStatus cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT cublasStatus cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout layout,
                                                            int32_t attribute, const void* value,
                                                            size_t bytes) {
  ENTER(cublasLtMatrixLayoutSetAttribute);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == 4)
    return std::memcpy(&layout->batch, value, 4), CUBLAS_STATUS_SUCCESS;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == 8)
    return std::memcpy(&layout->batch_stride, value, 8), CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_INVALID_VALUE;
}

DOUBLE_EXPORT cublasStatus cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference* preference) {
  ENTER(cublasLtMatmulPreferenceCreate);
  *preference = new cublasLtMatmulPreferenceOpaque{0, 7};
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT cublasStatus cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
DOUBLE_EXPORT cublasStatus cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference preference,
                                                                int32_t attribute,
                                                                const void* value, size_t bytes) {
  ENTER(cublasLtMatmulPreferenceSetAttribute);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != 8) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&preference->workspace, value, 8);
  }
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == 4)
    std::memcpy(&preference->schemes, value, 4);
  return CUBLAS_STATUS_SUCCESS;
}

// Asks for some workspace wherever it may, so that its way through the plan is exercised.
DOUBLE_EXPORT cublasStatus cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle, cublasLtMatmulDesc desc, cublasLtMatrixLayout a, cublasLtMatrixLayout b,
    cublasLtMatrixLayout, cublasLtMatrixLayout d, cublasLtMatmulPreference preference, int wanted,
    cublasLtMatmulHeuristicResult* results, int* found) {
  ENTER(cublasLtMatmulAlgoGetHeuristic);
  *found = 0;
  if (wanted < 1 || a->type != b->type) return CUBLAS_STATUS_INVALID_VALUE;
  const uint64_t a_inner = desc->a == CUBLAS_OP_N ? a->columns : a->rows;
  const uint64_t b_inner = desc->b == CUBLAS_OP_N ? b->rows : b->columns;
  if (a_inner != b_inner || d->leading < int64_t(d->rows) || a->leading < int64_t(a->rows) ||
      b->leading < int64_t(b->rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  *results = {};
  results->algo.data[0] = 42;
  results->algo.data[1] = preference->schemes & 1;
  results->workspaceSize = preference->workspace >= 4096 ? 4096 : 0;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

DOUBLE_EXPORT cublasStatus cublasLtMatmul(cublasLtHandle, cublasLtMatmulDesc desc, const void*,
                                          const void* a, cublasLtMatrixLayout a_layout,
                                          const void* b, cublasLtMatrixLayout b_layout, const void*,
                                          const void*, cublasLtMatrixLayout, void* d,
                                          cublasLtMatrixLayout d_layout,
                                          const cublasLtMatmulAlgo* algo, void* workspace,
                                          size_t workspace_bytes, CUstream stream) {
  ENTER(cublasLtMatmul);
  if (algo == nullptr || algo->data[0] != 42 || (workspace_bytes != 0 && workspace == nullptr) ||
      reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  auto* p = new Product{{*a_layout, a}, {*b_layout, b},     {*d_layout, d}, desc->a,        desc->b,
                        desc->compute,  algo->data[1] != 0, workspace,      workspace_bytes};
  const int code = cuda_double_put(stream, "cublasLtMatmul", run_product, p,
                                   [](void* q) { delete static_cast<Product*>(q); });
  return code == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
