// cuBLASLt counts columns first: row-major d [n, m] is its m x n matrix, and rows of codes along K
// are its k x m and k x n matrices, of which it turns the first ("TN", the layout of Ada's and
// Hopper's FP8 products).
#include <ATen/cuda/CUDAContextLight.h>
#include <cublasLt.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "runtime/model/device/fp8_product.hpp"

namespace sluice::cuda {
namespace {

std::string words_of(const Fp8Product& p) {
  return "cuBLASLt's FP8 product of " + std::to_string(p.n) + " x " + std::to_string(p.k) + " by " +
         std::to_string(p.k) + " x " + std::to_string(p.m);
}

class Lt {
 public:
  explicit Lt(const Fp8Product& product) : product_(product) {}
  void operator()(cublasStatus_t status, const char* what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    // As libtorch's own products say that the device is full.
    TORCH_CHECK(status != CUBLAS_STATUS_ALLOC_FAILED, words_of(product_), ": ", what,
                " failed with CUBLAS_STATUS_ALLOC_FAILED");
    throw Error(words_of(product_) + ": " + what + " failed with cuBLAS status " +
                std::to_string(static_cast<int>(status)) +
                "; train.matmul: native multiplies 16-bit operands");
  }

 private:
  const Fp8Product& product_;
};

template <class T, cublasStatus_t (*kDestroy)(T*)>
struct Destroy {
  void operator()(T* object) const { kDestroy(object); }
};
template <class T, cublasStatus_t (*kDestroy)(T*)>
using Owned = std::unique_ptr<T, Destroy<T, kDestroy>>;
using Layout = Owned<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using Operation = Owned<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(const Fp8Matrix& x) {
  return x.format == Fp8Format::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

Layout layout(const Lt& lt, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
              std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  lt(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                static_cast<std::uint64_t>(columns), stride),
     "a matrix");
  return Layout(made);
}

// Without CUBLASLT_MATMUL_DESC_FAST_ACCUM: that keeps fewer bits of the sums than fp32.
Operation operation_of(const Lt& lt, const Fp8Product& p) {
  cublasLtMatmulDesc_t made = nullptr;
  lt(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "the operation");
  Operation operation(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    lt(cublasLtMatmulDescSetAttribute(made, attribute, static_cast<const void*>(&value),
                                      sizeof value),
       "an attribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_T});
  set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{CUBLAS_OP_N});
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.a.inverse);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.b.inverse);
  if (p.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  return operation;
}

// The call's matrices as cuBLASLt takes them.
struct Call {
  Call(const Lt& lt, const Fp8Product& p)
      : operation(operation_of(lt, p)),
        a(layout(lt, type_of(p.a), p.k, p.m, p.k)),
        b(layout(lt, type_of(p.b), p.k, p.n, p.k)),
        d(layout(lt, p.wide ? CUDA_R_32F : CUDA_R_16BF, p.m, p.n, p.d_stride)) {}
  Operation operation;
  Layout a, b, d;
};

cublasLtMatmulAlgo_t choose(const Lt& lt, const Fp8Product& p, const Call& call) {
  cublasLtMatmulPreference_t made = nullptr;
  lt(cublasLtMatmulPreferenceCreate(&made), "a preference");
  const Preference preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    lt(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value), "an attribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(p.workspace_bytes));
  // By default cuBLASLt may cut K in parts and add the parts' sums in D's type.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  // d is a view of other tensors; by default cuBLASLt supposes multiples of 256 bytes.
  constexpr std::uint32_t kAlignment = 16;
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      at::cuda::getCurrentCUDABlasLtHandle(), call.operation.get(), call.a.get(), call.b.get(),
      call.d.get(), call.d.get(), made, 1, &result, &found);
  lt(found == 0 && status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status,
     "the choice of a kernel");
  return result.algo;
}

// The choice is made once for each shape, so that it costs a step nothing and stays the same.
cublasLtMatmulAlgo_t algorithm(const Lt& lt, const Fp8Product& p, const Call& call) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, Fp8Format,
                         Fp8Format, bool, bool, bool>;
  static std::mutex mutex;
  static std::map<Key, cublasLtMatmulAlgo_t> chosen;
  const Key key{p.m,        p.n,    p.k,          p.d_stride,       p.a.format,
                p.b.format, p.wide, p.accumulate, p.bias != nullptr};
  const std::lock_guard lock(mutex);
  const auto known = chosen.find(key);
  if (known != chosen.end()) return known->second;
  return chosen.emplace(key, choose(lt, p, call)).first->second;
}

}  // namespace

void launch_fp8_product(const Fp8Product& p, StreamRef stream) {
  const Lt lt(p);
  const Call call(lt, p);
  const cublasLtMatmulAlgo_t algo = algorithm(lt, p, call);
  const float one = 1, before = p.accumulate ? 1 : 0;
  lt(cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), call.operation.get(), &one, p.a.codes,
                    call.a.get(), p.b.codes, call.b.get(), &before, p.d, call.d.get(), p.d,
                    call.d.get(), &algo, p.workspace, static_cast<std::size_t>(p.workspace_bytes),
                    static_cast<cudaStream_t>(stream.stream)),
     "the launch");
}

}  // namespace sluice::cuda
