// The null cuBLASLt's rules for products of 8-bit operands: each has a bad sample.
#include <cublasLt.h>

#include <functional>
#include <utility>

#include "tests/gpu/null/fixture.hpp"

namespace null_gpu {
namespace {

// A right call: d [n, m] in bf16 = b [n, k] a [m, k]^T.
struct Call {
  std::int64_t m = 32, n = 7, k = 48;
  std::int64_t stride_a = 48, stride_d = 32;
  cudaDataType_t type_a = CUDA_R_8F_E4M3, type_b = CUDA_R_8F_E5M2, type_d = CUDA_R_16BF;
  cublasOperation_t turns_a = CUBLAS_OP_T;
  const void *a = nullptr, *d = nullptr;
  const void *scale_a = nullptr, *scale_b = nullptr, *bias = nullptr, *workspace = nullptr;
};

cublasLtMatmulDesc_t operation_of(const Call& call) {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    cublasLtMatmulDescSetAttribute(operation, attribute, static_cast<const void*>(&value),
                                   sizeof value);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{call.turns_a});
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.scale_a);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.scale_b);
  if (call.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  }
  return operation;
}

cublasStatus_t multiply(const Call& call, const DeviceMemory& memory) {
  const auto layout = [](cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                               static_cast<std::uint64_t>(columns), stride);
    return made;
  };
  const cublasLtMatmulDesc_t operation = operation_of(call);
  const cublasLtMatrixLayout_t a = layout(call.type_a, call.k, call.m, call.stride_a);
  const cublasLtMatrixLayout_t b = layout(call.type_b, call.k, call.n, call.k);
  const cublasLtMatrixLayout_t d = layout(call.type_d, call.m, call.n, call.stride_d);
  const float one = 1;
  void* const out = const_cast<void*>(call.d);
  const cublasStatus_t status =
      cublasLtMatmul(nullptr, operation, &one, call.a, a, memory.get() + 4096, b, &one, out, d, out,
                     d, nullptr, const_cast<void*>(call.workspace), 1024, nullptr);
  for (const cublasLtMatrixLayout_t made : {a, b, d}) cublasLtMatrixLayoutDestroy(made);
  cublasLtMatmulDescDestroy(operation);
  return status;
}

Call right_call(const DeviceMemory& memory) {
  Call call;
  call.a = memory.get();
  call.d = memory.get() + 8192;
  call.scale_a = memory.get() + 16384;
  call.scale_b = memory.get() + 16388;
  call.workspace = memory.get() + 32768;
  return call;
}

TEST_F(NullGpu, ProductsOf8BitsAreCounted) {
  const DeviceMemory memory;
  Call call = right_call(memory);
  EXPECT_EQ(multiply(call, memory), CUBLAS_STATUS_SUCCESS);
  call.bias = memory.get() + 24576;
  EXPECT_EQ(multiply(call, memory), CUBLAS_STATUS_SUCCESS);
  call.type_d = CUDA_R_32F;
  EXPECT_EQ(multiply(call, memory), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(grown("/work/products"), 3);
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_F(NullGpu, ProductsOf8BitsHaveRules) {
  const DeviceMemory memory;
  static const float on_host = 1;
  const std::vector<std::pair<std::string, std::function<void(Call&)>>> bad{
      {"is TN alone", [](Call& c) { c.turns_a = CUBLAS_OP_N; }},
      {"two 8-bit operands", [](Call& c) { c.type_a = CUDA_R_16BF; }},
      {"E4M3 at least once", [](Call& c) { c.type_a = CUDA_R_8F_E5M2; }},
      {"fp32 or bf16", [](Call& c) { c.type_d = CUDA_R_16F; }},
      {"whole 16 bytes", [](Call& c) { c.k = c.stride_a = 40; }},
      {"whole 16 bytes", [](Call& c) { c.m = c.stride_d = 24; }},
      {"whole 16 bytes", [](Call& c) { c.stride_d = 36; }},
      {"too short a stride", [](Call& c) { c.stride_a = 32; }},
      {"on multiples of 16 bytes", [](Call& c) { c.a = static_cast<const char*>(c.a) + 8; }},
      {"both scales", [](Call& c) { c.scale_b = &on_host; }},
      {"both scales", [](Call& c) { c.scale_a = nullptr; }},
      {"bf16 bias", [](Call& c) { c.bias = &on_host; }},
      {"workspace", [](Call& c) { c.workspace = &on_host; }},
  };
  std::int64_t faults = 0;
  for (const auto& [words, spoil] : bad) {
    Call call = right_call(memory);
    spoil(call);
    EXPECT_EQ(multiply(call, memory), CUBLAS_STATUS_INVALID_VALUE) << words;
    EXPECT_EQ(grown("/fault_count"), ++faults) << words;
    EXPECT_THAT(last_fault(), HasSubstr(words));
  }
  EXPECT_EQ(grown("/work/products"), 0);
}

// Asks for a kernel for products that give `type_d`. `reductions` 0: those of the default.
void choose(cudaDataType_t type_d, std::uint32_t reductions) {
  cublasLtMatrixLayout_t a = nullptr, d = nullptr;
  cublasLtMatrixLayoutCreate(&a, CUDA_R_8F_E4M3, 48, 32, 48);
  cublasLtMatrixLayoutCreate(&d, type_d, 32, 7, 32);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  if (reductions != 0) {
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                         &reductions, sizeof reductions);
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(nullptr, nullptr, a, a, d, d, preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  for (const cublasLtMatrixLayout_t made : {a, d}) cublasLtMatrixLayoutDestroy(made);
}

TEST_F(NullGpu, PartsOfProductsOf8BitsAreAddedInFp32) {
  choose(CUDA_R_16BF, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  choose(CUDA_R_32F, 0);
  EXPECT_EQ(grown("/fault_count"), 0);
  choose(CUDA_R_16BF, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
  EXPECT_EQ(grown("/fault_count"), 1);
  choose(CUDA_R_16BF, 0);
  EXPECT_EQ(grown("/fault_count"), 2);
  EXPECT_THAT(last_fault(), HasSubstr("may be added in 16 bits"));
}

}  // namespace
}  // namespace null_gpu
