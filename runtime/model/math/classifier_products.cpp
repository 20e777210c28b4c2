#include "runtime/model/math/classifier_products.hpp"

#include <ATen/ops/mm.h>

#include <algorithm>

#include "base/bytes.hpp"
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

// On a GPU, where the classifier's gradient is read and written once a chunk too: as many as keep
// logits below 1 GiB, at most 2048.
constexpr std::int64_t kGpuRows = 2048, kGpuLeastRows = 256, kGpuLogits = std::int64_t{1} << 30;
constexpr std::int64_t kGpuAlignment = 128;

}  // namespace

std::int64_t ClassifierProducts::row_stride() const {
  return on_gpu_ ? round_up(words_, kGpuAlignment) : words_;
}

std::int64_t ClassifierProducts::chunk_rows(DType dtype) const {
  if (on_gpu_) {
    const std::int64_t fit = kGpuLogits / (row_stride() * 4) / kGpuAlignment * kGpuAlignment;
    return std::clamp(fit, kGpuLeastRows, kGpuRows);
  }
  return dtype == DType::kFloat32 || converts() ? kFp32Rows : kNativeRows;
}

std::int64_t ClassifierProducts::scratch_bytes(std::int64_t rows, DType dtype) const {
  return std::min(rows, chunk_rows(dtype)) * row_stride() * 4;
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
  const at::Tensor logits = scratch.narrow(0, 0, h.size(0) * row_stride() * 4)
                                .view(c10::ScalarType::Float)
                                .view({h.size(0), row_stride()})
                                .narrow(1, 0, words_);
  in_fp32(logits, h, weight.t(), false);
  return logits;
}

at::Tensor ClassifierProducts::gradient_in(const at::Tensor& logits, DType model) const {
  return logits.view(scalar_type(gradient_dtype(model))).narrow(1, 0, logits.size(1));
}

}  // namespace sluice
