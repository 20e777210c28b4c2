#include "runtime/model/math/classifier_products.hpp"

#include <ATen/ops/mm.h>

#include "kernels/cpu/cast.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/fp32_matmul.hpp"
#include "runtime/model/math/wide_product.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Fewer rows lose GEMM rate (64: a quarter; 16-bit products, of which each is done in half the
// time, need more), and the classifier's gradient is read and written once a chunk; more no longer
// fit the last-level cache at 50k words.
constexpr std::int64_t kFp32Rows = 256;
constexpr std::int64_t kNativeRows = 384;

}  // namespace

std::int64_t ClassifierProducts::chunk_rows(DType dtype) const {
  return dtype == DType::kFloat32 || converts() ? kFp32Rows : kNativeRows;
}

DType ClassifierProducts::gradient_dtype(DType model) const {
  return converts() ? DType::kFloat32 : model;
}

void ClassifierProducts::in_fp32(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                                 bool accumulate) const {
  if (converts() || b.scalar_type() == c10::ScalarType::Float) {
    fp32_matmul({.c = c, .a = a, .b = b, .accumulate = accumulate});
  } else {
    wide_product(c, a, b, accumulate);
  }
}

void ClassifierProducts::input_gradient(at::Tensor dh, const at::Tensor& dlogits,
                                        const at::Tensor& weight) const {
  if (converts() || dh.scalar_type() == c10::ScalarType::Float) {
    fp32_matmul({.c = dh, .a = dlogits, .b = weight});
  } else if (takes_gpu_path(dh) || wide_product_rounds(dh.scalar_type())) {
    at::mm_out(dh, dlogits, weight);
  } else {  // over a sum as long as the vocabulary the BLAS is the faster one
    const at::Tensor wide = empty_tensor(dh.sizes(), c10::ScalarType::Float, dh.device());
    wide_product(wide, dlogits, weight, false);
    if (dh.is_meta()) return;
    convert(host_bytes(dh), dtype_of(dh), host_bytes(wide), DType::kFloat32, dh.numel());
  }
}

at::Tensor ClassifierProducts::logits_in(const at::Tensor& scratch, const at::Tensor& h,
                                         const at::Tensor& weight) const {
  const std::int64_t words = weight.size(0);
  const at::Tensor logits = scratch.narrow(0, 0, h.size(0) * words * 4)
                                .view(c10::ScalarType::Float)
                                .view({h.size(0), words});
  in_fp32(logits, h, weight.t(), false);
  return logits;
}

at::Tensor ClassifierProducts::gradient_in(const at::Tensor& logits, DType model) const {
  const c10::ScalarType wanted = scalar_type(gradient_dtype(model));
  if (wanted == c10::ScalarType::Float) return logits;
  return takes_gpu_path(logits) ? logits.to(wanted)
                                : logits.view(wanted).narrow(1, 0, logits.size(1));
}

}  // namespace sluice
