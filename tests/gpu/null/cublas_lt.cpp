// The null cuBLASLt: products with an epilogue, such as a bias, and those of 8-bit operands are
// checked, counted by shape, and computed where the null GPU does.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/products.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

struct Layout {
  std::int64_t rows = 0, columns = 0, stride = 0;
  int type = 0;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;
};
struct Preference {
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};
struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  std::int32_t turns_a = CUBLAS_OP_N, turns_b = CUBLAS_OP_N;
  std::int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t pointers = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t bias_type = -1;  // of D, but bf16 where operands have 8 bits
  const void *scale_a = nullptr, *scale_b = nullptr, *bias = nullptr;
};

Layout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
Operation& of(cublasLtMatmulDesc_t operation) { return *reinterpret_cast<Operation*>(operation); }
Preference& of(cublasLtMatmulPreference_t preference) {
  return *reinterpret_cast<Preference*>(preference);
}

struct Call {
  const Operation& operation;
  const Layout &a, &b, &c, &d;
};

// The rules of cuBLASLt for 8-bit operands on compute capability 8.9 and 9.0, in its words; null
// where a call obeys them all.
const char* broken_rule(const Call& call) {
  const auto& [operation, a, b, c, d] = call;
  const auto whole = [](std::int64_t bytes) { return bytes % 16 == 0; };
  const std::int64_t elem = d.type == CUDA_R_32F ? 4 : 2;
  if (operation.turns_a != CUBLAS_OP_T || operation.turns_b != CUBLAS_OP_N) return "is TN alone";
  if (operation.compute != CUBLAS_COMPUTE_32F || operation.scale != CUDA_R_32F) {
    return "adds in fp32";
  }
  if (!is_fp8(a.type) || !is_fp8(b.type)) return "takes two 8-bit operands";
  if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) return "takes E4M3 at least once";
  if (d.type != CUDA_R_32F && d.type != CUDA_R_16BF) return "gives fp32 or bf16 here";
  if (c.type != d.type || c.stride != d.stride) return "takes C in D's layout";
  if (a.rows != b.rows || a.columns != d.rows || b.columns != d.columns) return "has other sizes";
  if (!whole(a.rows) || !whole(a.columns) || !whole(a.stride) || !whole(b.stride) ||
      !whole(d.stride * elem)) {
    return "takes K, M and leading dimensions of whole 16 bytes";
  }
  if (a.stride < a.rows || b.stride < b.rows || d.stride < d.rows) return "has too short a stride";
  return nullptr;
}

std::size_t bytes_of(const Layout& x) {
  return static_cast<std::size_t>(((x.columns - 1) * x.stride + x.rows) * bytes_of_type(x.type));
}

bool on_device(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0 && is_device_range(address, bytes);
}

// A product of 8-bit operands is right, or a fault that says why not.
bool checked_fp8(const Call& call, const void* a, const void* b, const void* d) {
  const Operation& operation = call.operation;
  const char* what = broken_rule(call);
  if (what == nullptr && (!on_device(a, bytes_of(call.a)) || !on_device(b, bytes_of(call.b)) ||
                          !on_device(d, bytes_of(call.d)))) {
    what = "takes matrices of its layouts on the device, on multiples of 16 bytes";
  }
  if (what == nullptr && (!is_device_range(operation.scale_a, sizeof(float)) ||
                          !is_device_range(operation.scale_b, sizeof(float)))) {
    what = "takes both scales from device memory";
  }
  const bool biased = operation.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (what == nullptr && biased &&
      !on_device(operation.bias, 2 * static_cast<std::size_t>(call.d.rows))) {
    what = "takes a bf16 bias from device memory, on a multiple of 16 bytes";
  }
  if (what == nullptr) return true;
  fault("cublasLtMatmul: an 8-bit product of " + std::to_string(call.d.rows) + " x " +
        std::to_string(call.d.columns) + " x " + std::to_string(call.a.rows) + " " + what);
  return false;
}

// A product is computed with a bias or without, in fp32; others are counted alone.
bool ends_plainly(const Call& call) {
  const Operation& operation = call.operation;
  const bool plain = operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                     operation.epilogue == CUBLASLT_EPILOGUE_BIAS;
  const bool wide = operation.scale == (call.d.type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F);
  if (!computes() || (plain && wide)) return true;
  fault("cublasLtMatmul: epilogue " + std::to_string(operation.epilogue) + " with sums of type " +
        std::to_string(operation.scale) + " is not computed");
  return false;
}

Matrix matrix(const Layout& layout, const void* data, std::int32_t turns = CUBLAS_OP_N) {
  return {.data = data,
          .type = layout.type,
          .rows = layout.rows,
          .columns = layout.columns,
          .stride = layout.stride,
          .turned = turns != CUBLAS_OP_N,
          .batch_stride = layout.batch_stride};
}

struct Addresses {
  const void *a, *b, *c, *d;
};

MatrixProduct product_of(const Call& call, const Addresses& at) {
  const Operation& operation = call.operation;
  const int bias_type = operation.bias_type >= 0 ? operation.bias_type
                        : is_fp8(call.a.type)    ? CUDA_R_16BF
                                                 : call.d.type;
  const bool biased = operation.epilogue == CUBLASLT_EPILOGUE_BIAS;
  return {.a = matrix(call.a, at.a, operation.turns_a),
          .b = matrix(call.b, at.b, operation.turns_b),
          .c = matrix(call.c, at.c),
          .d = matrix(call.d, at.d),
          .batch = call.d.batch,
          .scale_a = operation.scale_a,
          .scale_b = operation.scale_b,
          .bias = biased ? operation.bias : nullptr,
          .bias_type = bias_type};
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

std::size_t cublasLtGetVersion() { return 130100; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete &of(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  Operation& to = of(operation);
  void* member = nullptr;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) member = &to.turns_a;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) member = &to.turns_b;
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) member = &to.epilogue;
  if (attribute == CUBLASLT_MATMUL_DESC_POINTER_MODE) member = &to.pointers;
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) member = &to.bias_type;
  if (bytes == sizeof(std::int32_t) && member != nullptr) std::memcpy(member, value, bytes);
  const void** pointer = nullptr;
  if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) pointer = &to.scale_a;
  if (attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) pointer = &to.scale_b;
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) pointer = &to.bias;
  if (bytes == sizeof(void*) && pointer != nullptr) {
    *pointer = *static_cast<const void* const*>(value);
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
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(std::int64_t)) {
    std::memcpy(&of(layout).batch_stride, value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &of(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == sizeof(std::uint32_t)) {
    std::memcpy(&of(preference).reductions, value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* result, int* found) {
  constexpr std::uint32_t kInFp32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (is_fp8(of(a).type) && of(d).type != CUDA_R_32F &&
      (of(preference).reductions & ~kInFp32) != 0) {
    fault("cublasLtMatmulAlgoGetHeuristic: the parts of an 8-bit product may be added in 16 bits");
  }
  *result = {};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t*,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const Call call{of(operation), of(layout_a), of(layout_b), of(layout_c), of(layout_d)};
  if (workspace_bytes > 0 && !is_device_range(workspace, workspace_bytes)) {
    fault("cublasLtMatmul takes a workspace that is not on the device");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if ((is_fp8(call.a.type) || is_fp8(call.b.type)) && !checked_fp8(call, a, b, d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  MatrixProduct product = product_of(call, {a, b, c, d});
  const bool fp64 = product.d.type == CUDA_R_64F;
  const bool on_device = call.operation.pointers == CUBLASLT_POINTER_MODE_DEVICE;
  product.alpha = factor_of(alpha, on_device, fp64);
  product.beta = factor_of(beta, on_device, fp64);
  if (!ends_plainly(call) || !enqueue_product(product, counted(product), stream)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
