// The null cuBLASLt: products with an epilogue, such as a bias, are checked and counted by shape.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>

#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

struct Layout {
  std::int64_t rows = 0, columns = 0, stride = 0;
  int type = 0;
  std::int32_t batch = 1;
};
struct Operation {
  std::int32_t turns_a = CUBLAS_OP_N;
};

Layout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
Operation& of(cublasLtMatmulDesc_t operation) { return *reinterpret_cast<Operation*>(operation); }

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

std::size_t cublasLtGetVersion() { return 130100; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t,
                                        cudaDataType_t) {
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete &of(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA && bytes == sizeof(std::int32_t)) {
    std::memcpy(&of(operation).turns_a, value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{
      static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride, type});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &of(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(std::int32_t)) {
    std::memcpy(&of(layout).batch, value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<char*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* result, int* found) {
  *result = {};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void*,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void*, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t*, void*, std::size_t,
                              cudaStream_t stream) {
  const Layout &left = of(layout_a), &right = of(layout_b), &out = of(layout_d);
  for (const void* matrix : {a, b, static_cast<const void*>(d)}) {
    if (place_of(matrix) == Place::kDevice) continue;
    fault("cublasLtMatmul takes a matrix that is not on the device");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool turns = of(operation).turns_a != CUBLAS_OP_N;
  count_product({out.rows, out.columns, turns ? left.rows : left.columns, left.stride, right.stride,
                 out.stride, out.batch, left.type, out.type, a, b, d},
                stream);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
