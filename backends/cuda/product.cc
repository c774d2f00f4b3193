// Products through cuBLASLt: descriptors and algorithm at prepare, one call at run.
// SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "layout.h"

namespace hal::cuda {
namespace {

// A matrix as the library sees it: columns after each other, perhaps transposed.
struct Matrix {
  bool fits = false;
  bool transposed = false;
  int64_t leading = 0;
};

// Rows after each other are the library's columns: what is dense along `fast` is read as it is.
Matrix matrix_of(int64_t slow_dim, int64_t fast_dim, int64_t slow, int64_t fast) {
  if ((fast == 1 || fast_dim == 1) && (slow >= fast_dim || slow_dim == 1))
    return {true, false, std::max(slow_dim == 1 ? fast_dim : slow, fast_dim)};
  if ((slow == 1 || slow_dim == 1) && (fast >= slow_dim || fast_dim == 1))
    return {true, true, std::max(fast_dim == 1 ? slow_dim : fast, slow_dim)};
  return {};
}

struct Batch {
  int64_t count = 1;
  int64_t strides[3] = {};
  bool fits = true;
};

// The library steps through a batch by one distance an operand.
Batch batch_of(const Desc& desc) {
  Walk walk;
  Side sides[3] = {};
  WalkMaker maker(&walk, sides, 3);
  const Tensor &a = sdk::operand(desc, 0), &b = sdk::operand(desc, 1), &out = sdk::output(desc);
  for (uint32_t d = 0; d + 2 < out.rank; ++d)
    maker.add(out.dims[d], {a.strides[d], b.strides[d], out.strides[d]});
  Batch batch;
  batch.count = walk.count;
  batch.fits = walk.rank <= 1 && walk.count <= 0x7fffffff;
  for (int k = 0; k < 3; ++k) batch.strides[k] = walk.rank == 1 ? sides[k].strides[0] : 0;
  return batch;
}

struct Shape {
  Matrix a, b, out;
  Batch batch;
  int64_t m, n, k;
};

Shape shape_of(const Desc& desc) {
  const Tensor &a = sdk::operand(desc, 0), &b = sdk::operand(desc, 1), &out = sdk::output(desc);
  const uint32_t r = out.rank - 2, c = out.rank - 1;
  Shape s;
  s.m = out.dims[r], s.n = out.dims[c], s.k = a.dims[c];
  s.a = matrix_of(s.m, s.k, a.strides[r], a.strides[c]);
  s.b = matrix_of(s.k, s.n, b.strides[r], b.strides[c]);
  s.out = matrix_of(s.m, s.n, out.strides[r], out.strides[c]);
  s.batch = batch_of(desc);
  return s;
}

cudaDataType type_of(uint32_t dtype) {
  return dtype == ANYHAL_DTYPE_F64    ? CUDA_R_64F
         : dtype == ANYHAL_DTYPE_F16  ? CUDA_R_16F
         : dtype == ANYHAL_DTYPE_BF16 ? CUDA_R_16BF
                                      : CUDA_R_32F;
}

// Strict f32 is pedantic: without that word the library may split factors into smaller types.
cublasComputeType compute_of(const Desc& desc) {
  const uint32_t dtype = sdk::operand(desc, 0).dtype;
  if (dtype == ANYHAL_DTYPE_F64) return CUBLAS_COMPUTE_64F;
  if (dtype != ANYHAL_DTYPE_F32) return CUBLAS_COMPUTE_32F;
  switch (desc.numerics[ANYHAL_NUMERICS_ACCUMULATE]) {
    case ANYHAL_ACCUMULATE_TF32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case ANYHAL_ACCUMULATE_BF16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    default:
      return CUBLAS_COMPUTE_32F_PEDANTIC;
  }
}

void check_library(cublasStatus status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
  const bool no = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH;
  throw Fault(memory ? ANYHAL_STATUS_OUT_OF_MEMORY
              : no   ? ANYHAL_STATUS_UNSUPPORTED
                     : ANYHAL_STATUS_INTERNAL,
              no ? ANYHAL_REASON_SHAPE_LIMIT : ANYHAL_REASON_NONE, status,
              std::string(what) + " answered " + std::to_string(status) +
                  (memory ? "; free arrays and try again" : "; use the device without cuBLASLt"));
}
#define HAL_CUBLASLT(call, ...) check_library(blas_.call(__VA_ARGS__), #call)

// The product of a row-major description is the library's product of the transposes, b first.
class ProductPlan final : public Plan {
 public:
  ProductPlan(Device& device, const Desc& desc, const Shape& shape)
      : Plan(device), blas_(device.self->blas), shape_(shape) {
    operand_count = 3;
    is_double_ = sdk::operand(desc, 0).dtype == ANYHAL_DTYPE_F64;
  }
  ~ProductPlan() override { end(); }

  // False where the library has no algorithm for it.
  bool prepare(const Desc& desc) {
    const cudaDataType in = type_of(sdk::operand(desc, 0).dtype);
    HAL_CUBLASLT(cublasLtMatmulDescCreate, &desc_, compute_of(desc),
                 is_double_ ? CUDA_R_64F : CUDA_R_32F);
    // A transposed output is the product the other way round.
    const bool swapped = shape_.out.transposed;
    first_ = swapped ? 0 : 1;
    const Matrix &x = swapped ? shape_.a : shape_.b, &y = swapped ? shape_.b : shape_.a;
    const int32_t x_op = x.transposed != swapped ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t y_op = y.transposed != swapped ? CUBLAS_OP_T : CUBLAS_OP_N;
    HAL_CUBLASLT(cublasLtMatmulDescSetAttribute, desc_, CUBLASLT_MATMUL_DESC_TRANSA, &x_op, 4);
    HAL_CUBLASLT(cublasLtMatmulDescSetAttribute, desc_, CUBLASLT_MATMUL_DESC_TRANSB, &y_op, 4);
    const int64_t rows = swapped ? shape_.m : shape_.n, columns = swapped ? shape_.n : shape_.m;
    make(&layouts_[0], in, x_op, rows, shape_.k, x.leading, first_);
    make(&layouts_[1], in, y_op, shape_.k, columns, y.leading, 1 - first_);
    make(&layouts_[2], type_of(sdk::output(desc).dtype), CUBLAS_OP_N, rows, columns,
         shape_.out.leading, 2);
    return choose(desc);
  }

  void run(const Site& site) override {
    static const float one = 1, zero = 0;
    static const double one_double = 1, zero_double = 0;
    const void* alpha = is_double_ ? static_cast<const void*>(&one_double) : &one;
    const void* beta = is_double_ ? static_cast<const void*>(&zero_double) : &zero;
    const auto at = [&](uint32_t i) {
      return reinterpret_cast<void*>(address_of(site.operands[i]));
    };
    const cublasStatus status = blas_.cublasLtMatmul(
        device_.blas, desc_, alpha, at(first_), layouts_[0], at(1 - first_), layouts_[1], beta,
        at(2), layouts_[2], at(2), layouts_[2], &algorithm_,
        reinterpret_cast<void*>(site.workspace), prepared.workspace_bytes, site.stream);
    check_library(status, "cublasLtMatmul");
  }

  void end() override {
    for (cublasLtMatrixLayout& layout : layouts_)
      if (layout != nullptr) blas_.cublasLtMatrixLayoutDestroy(layout), layout = nullptr;
    if (desc_ != nullptr) blas_.cublasLtMatmulDescDestroy(desc_), desc_ = nullptr;
  }

 private:
  // Rows and columns of the matrix as stored.
  void make(cublasLtMatrixLayout* layout, cudaDataType type, int32_t op, int64_t rows,
            int64_t columns, int64_t leading, uint32_t operand) {
    if (op == CUBLAS_OP_T) std::swap(rows, columns);
    HAL_CUBLASLT(cublasLtMatrixLayoutCreate, layout, type, static_cast<uint64_t>(rows),
                 static_cast<uint64_t>(columns), leading);
    const auto count = static_cast<int32_t>(shape_.batch.count);
    if (count == 1) return;
    HAL_CUBLASLT(cublasLtMatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                 &count, 4);
    HAL_CUBLASLT(cublasLtMatrixLayoutSetAttribute, *layout,
                 CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &shape_.batch.strides[operand], 8);
  }

  bool choose(const Desc& desc) {
    cublasLtMatmulPreference preference = nullptr;
    HAL_CUBLASLT(cublasLtMatmulPreferenceCreate, &preference);
    cublasLtMatmulHeuristicResult best = {};
    int found = 0;
    cublasStatus status = limit(desc, preference);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = blas_.cublasLtMatmulAlgoGetHeuristic(device_.blas, desc_, layouts_[0], layouts_[1],
                                                    layouts_[2], layouts_[2], preference, 1, &best,
                                                    &found);
    blas_.cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
    check_library(status, "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0 || best.state != CUBLAS_STATUS_SUCCESS) return false;
    algorithm_ = best.algo;
    prepared.workspace_bytes = best.workspaceSize;
    prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    prepared.kernel = "cublasLtMatmul";
    prepared.library = "cuBLASLt";
    return true;
  }

  // Workspace as the guide advises for each generation; the alignment that operands really have.
  cublasStatus limit(const Desc& desc, cublasLtMatmulPreference preference) const {
    uint64_t workspace = (device_.architecture >= 90 ? 32ull : 4ull) << 20;
    if (desc.workspace_limit != 0) workspace = std::min<uint64_t>(workspace, desc.workspace_limit);
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const auto set = [&](int32_t what, const void* value, size_t bytes) {
      return blas_.cublasLtMatmulPreferenceSetAttribute(preference, what, value, bytes);
    };
    cublasStatus status = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, 8);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, 4);
    const uint32_t operands[] = {first_, 1 - first_, 2, 2};
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; ++i) {
      const Tensor& t = sdk::operand(desc, operands[i]);
      const uint32_t alignment = std::max(t.alignment, sdk::dtype_facts(t.dtype).block_bytes);
      status = set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &alignment, 4);
    }
    return status;
  }

  const CublasLt& blas_;
  Shape shape_;
  bool is_double_ = false;
  uint32_t first_ = 1;  // the operand that comes first for the library
  cublasLtMatmulDesc desc_ = nullptr;
  cublasLtMatrixLayout layouts_[3] = {};
  cublasLtMatmulAlgo algorithm_ = {};
};

void open_library_handle(Device& device) {
  std::unique_lock lock(device.mutex);
  if (device.blas == nullptr)
    check_library(device.self->blas.cublasLtCreate(&device.blas), "cublasLtCreate");
}

}  // namespace

// Floats, something to multiply, matrices and batches that the library can step through. A product
// whose rows may not depend on each other stays with the kernel.
bool library_takes(const Desc& desc) {
  const Tensor &a = sdk::operand(desc, 0), &b = sdk::operand(desc, 1), &out = sdk::output(desc);
  if (!sdk::kFloats.has(a.dtype) || a.dtype != b.dtype || out.rank < 2) return false;
  if (desc.numerics[ANYHAL_NUMERICS_DETERMINISM] == ANYHAL_DETERMINISM_BATCH_INVARIANT)
    return false;
  for (uint32_t i = 0; i < 2; ++i)
    if ((sdk::operand(desc, i).flags & ANYHAL_TENSOR_INLINE) != 0) return false;
  const Shape s = shape_of(desc);
  return s.m > 0 && s.n > 0 && s.k > 0 && s.batch.count > 0 && s.batch.fits && s.a.fits &&
         s.b.fits && s.out.fits;
}

std::unique_ptr<Plan> prepare_product(Device& device, const Desc& desc) {
  open_library_handle(device);
  auto plan = std::make_unique<ProductPlan>(device, desc, shape_of(desc));
  if (!plan->prepare(desc)) return nullptr;
  return plan;
}

}  // namespace hal::cuda
