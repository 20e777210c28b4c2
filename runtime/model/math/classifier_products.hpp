// The products of a classifier on a chunk of rows: fp32 logits, and the gradients by the rows and
// by the classifier from the logits' gradient. explicit_linear.hpp describes 16-bit products.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/dtype.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

class ClassifierProducts {
 public:
  explicit ClassifierProducts(MatmulType matmul) : matmul_(matmul) {}

  // Rows of logits held at a time.
  [[nodiscard]] std::int64_t chunk_rows(DType dtype) const;
  // Type in which products take d(loss)/d(logits): 16 bits for native 16-bit products.
  [[nodiscard]] DType gradient_dtype(DType model) const;

  // c (fp32) = a b, or += a b.
  void in_fp32(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
               bool accumulate) const;
  // dh (the model's dtype) = dlogits weight.
  void input_gradient(at::Tensor dh, const at::Tensor& dlogits, const at::Tensor& weight) const;

  // Logits [rows of h, V] = h weight^T, at the beginning of `scratch` (uint8).
  [[nodiscard]] at::Tensor logits_in(const at::Tensor& scratch, const at::Tensor& h,
                                     const at::Tensor& weight) const;
  // Logits that the loss has turned into their own gradient, in the products' type.
  [[nodiscard]] at::Tensor gradient_in(const at::Tensor& logits, DType model) const;

 private:
  [[nodiscard]] bool converts() const { return matmul_ == MatmulType::kFp32; }

  MatmulType matmul_;
};

}  // namespace sluice
