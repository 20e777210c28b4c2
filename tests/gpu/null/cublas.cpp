// The null cuBLAS: products are checked and counted by shape.
#include <cublas_v2.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

Handle& of(cublasHandle_t handle) { return *reinterpret_cast<Handle*>(handle); }

cublasStatus_t multiplied(cublasHandle_t handle, const Product& p) {
  for (const void* matrix : {p.a, p.b, p.c}) {
    if (place_of(matrix) == Place::kDevice) continue;
    fault("a product of " + std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
          std::to_string(p.k) + " takes a matrix that is not on the device");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  count_product(p, of(handle).stream);
  return CUBLAS_STATUS_SUCCESS;
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

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                            int n, int k, const void*, const void* a, cudaDataType type_a, int lda,
                            const void* b, cudaDataType, int ldb, const void*, void* c,
                            cudaDataType type_c, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiplied(handle, {m, n, k, lda, ldb, ldc, 1, type_a, type_c, a, b, c});
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                              int n, int k, const float*, const float* a, int lda, const float* b,
                              int ldb, const float*, float* c, int ldc) {
  return multiplied(handle, {m, n, k, lda, ldb, ldc, 1, CUDA_R_32F, CUDA_R_32F, a, b, c});
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                              int n, int k, const double*, const double* a, int lda,
                              const double* b, int ldb, const double*, double* c, int ldc) {
  return multiplied(handle, {m, n, k, lda, ldb, ldc, 1, CUDA_R_64F, CUDA_R_64F, a, b, c});
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t,
                                         cublasOperation_t, int m, int n, int k, const float*,
                                         const float* a, int lda, long long, const float* b,
                                         int ldb, long long, const float*, float* c, int ldc,
                                         long long, int batch) {
  return multiplied(handle, {m, n, k, lda, ldb, ldc, batch, CUDA_R_32F, CUDA_R_32F, a, b, c});
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t,
                                          cublasOperation_t, int m, int n, int k, const void*,
                                          const void* a, cudaDataType type_a, int lda, long long,
                                          const void* b, cudaDataType, int ldb, long long,
                                          const void*, void* c, cudaDataType type_c, int ldc,
                                          long long, int batch, cublasComputeType_t,
                                          cublasGemmAlgo_t) {
  return multiplied(handle, {m, n, k, lda, ldb, ldc, batch, type_a, type_c, a, b, c});
}
// A matrix by a vector. No tensor core takes part, so no leading dimension needs alignment.
cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t, int m, int n, const float*,
                              const float*, int, const float*, int, const float*, float*, int) {
  count_product({.m = m, .n = 1, .k = n, .type_in = CUDA_R_32F, .type_out = CUDA_R_32F},
                of(handle).stream);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
