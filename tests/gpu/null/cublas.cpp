// The null cuBLAS: products are checked, counted by shape, and computed where the null GPU does.
#include <cublas_v2.h>

#include <cstdint>

#include "tests/gpu/null/products.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

Handle& of(cublasHandle_t handle) { return *reinterpret_cast<Handle*>(handle); }

// What the calls have in common.
struct Call {
  cublasOperation_t turns_a, turns_b;
  int m, n, k;
  Matrix a, b, c;  // address, type, leading dimension and step between the products of a batch
  const void *alpha, *beta;
  int batch = 1;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

Matrix sized(Matrix x, bool turned, std::int64_t rows, std::int64_t columns) {
  x.turned = turned;
  x.rows = turned ? columns : rows;
  x.columns = turned ? rows : columns;
  return x;
}

MatrixProduct product_of(const Handle& handle, const Call& call) {
  const bool on_device = handle.pointers == CUBLAS_POINTER_MODE_DEVICE;
  const bool fp64 = call.c.type == CUDA_R_64F;
  const Matrix c = sized(call.c, false, call.m, call.n);
  return {.a = sized(call.a, call.turns_a != CUBLAS_OP_N, call.m, call.k),
          .b = sized(call.b, call.turns_b != CUBLAS_OP_N, call.k, call.n),
          .c = c,
          .d = c,
          .batch = call.batch,
          .alpha = factor_of(call.alpha, on_device, fp64),
          .beta = factor_of(call.beta, on_device, fp64)};
}

bool adds_wide(const Call& call) {
  const bool fp64 = call.c.type == CUDA_R_64F;
  const cublasComputeType_t wide = fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  return call.compute == wide || (!fp64 && call.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

// Parts of a sum may be rounded to 16 bits before they are added up. libtorch has no choice for
// products of a batch.
bool may_round_sums(const Handle& handle, const Call& call) {
  const bool wide = (handle.math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) != 0;
  return !wide && call.batch == 1 && (call.c.type == CUDA_R_16F || call.c.type == CUDA_R_16BF);
}

cublasStatus_t multiplied(cublasHandle_t handle, const Call& call) {
  if (!adds_wide(call)) {
    fault("a product adds in another type than fp32, or fp64 for fp64");
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (may_round_sums(of(handle), call)) count_rounded_sums();
  const MatrixProduct product = product_of(of(handle), call);
  return enqueue_product(product, counted(product), of(handle).stream)
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

Matrix matrix(const void* data, int type, int stride, long long batch_stride = 0) {
  return {.data = data, .type = type, .stride = stride, .batch_stride = batch_stride};
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete &of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  of(handle).stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = of(handle).math;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  of(handle).math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = of(handle).pointers;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  of(handle).pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t turns_a,
                            cublasOperation_t turns_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c,
                            cudaDataType type_c, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t) {
  return multiplied(handle,
                    {turns_a, turns_b, m, n, k, matrix(a, type_a, lda), matrix(b, type_b, ldb),
                     matrix(c, type_c, ldc), alpha, beta, 1, compute});
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t turns_a,
                              cublasOperation_t turns_b, int m, int n, int k, const float* alpha,
                              const float* a, int lda, const float* b, int ldb, const float* beta,
                              float* c, int ldc) {
  constexpr int kType = CUDA_R_32F;
  return multiplied(handle, {turns_a, turns_b, m, n, k, matrix(a, kType, lda),
                             matrix(b, kType, ldb), matrix(c, kType, ldc), alpha, beta});
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t turns_a,
                              cublasOperation_t turns_b, int m, int n, int k, const double* alpha,
                              const double* a, int lda, const double* b, int ldb,
                              const double* beta, double* c, int ldc) {
  constexpr int kType = CUDA_R_64F;
  return multiplied(handle,
                    {turns_a, turns_b, m, n, k, matrix(a, kType, lda), matrix(b, kType, ldb),
                     matrix(c, kType, ldc), alpha, beta, 1, CUBLAS_COMPUTE_64F});
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t turns_a,
                                         cublasOperation_t turns_b, int m, int n, int k,
                                         const float* alpha, const float* a, int lda,
                                         long long step_a, const float* b, int ldb,
                                         long long step_b, const float* beta, float* c, int ldc,
                                         long long step_c, int batch) {
  constexpr int kType = CUDA_R_32F;
  return multiplied(
      handle, {turns_a, turns_b, m, n, k, matrix(a, kType, lda, step_a),
               matrix(b, kType, ldb, step_b), matrix(c, kType, ldc, step_c), alpha, beta, batch});
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t turns_a,
                                          cublasOperation_t turns_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType type_a,
                                          int lda, long long step_a, const void* b,
                                          cudaDataType type_b, int ldb, long long step_b,
                                          const void* beta, void* c, cudaDataType type_c, int ldc,
                                          long long step_c, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
  return multiplied(handle, {turns_a, turns_b, m, n, k, matrix(a, type_a, lda, step_a),
                             matrix(b, type_b, ldb, step_b), matrix(c, type_c, ldc, step_c), alpha,
                             beta, batch, compute});
}
// A matrix by a vector: the row y = x A^T. No tensor core takes part, so no leading dimension needs
// alignment.
cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t turns, int m, int n,
                              const float* alpha, const float* a, int lda, const float* x,
                              int step_x, const float* beta, float* y, int step_y) {
  constexpr int kType = CUDA_R_32F;
  const bool turned = turns != CUBLAS_OP_N;
  const Call call{CUBLAS_OP_N,
                  turned ? CUBLAS_OP_N : CUBLAS_OP_T,
                  1,
                  turned ? n : m,
                  turned ? m : n,
                  matrix(x, kType, step_x),
                  matrix(a, kType, lda),
                  matrix(y, kType, step_y),
                  alpha,
                  beta};
  const Product counted{.m = m, .n = 1, .k = n, .type_in = kType, .type_out = kType};
  return enqueue_product(product_of(of(handle), call), counted, of(handle).stream)
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

}  // extern "C"
