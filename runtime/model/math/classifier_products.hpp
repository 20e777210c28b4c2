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
  // words: V, of the rank.
  ClassifierProducts(MatmulType matmul, bool on_gpu, std::int64_t words)
      : matmul_(matmul), on_gpu_(on_gpu), words_(words) {}

  // Rows of logits held at a time.
  [[nodiscard]] std::int64_t chunk_rows(DType dtype) const;
  // Scratch of `rows` rows of logits.
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows, DType dtype) const;
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
  // The gradient of the logits in the products' type, at the beginning of each of their rows: the
  // loss turns logits into their gradient.
  [[nodiscard]] at::Tensor gradient_in(const at::Tensor& logits, DType model) const;

 private:
  [[nodiscard]] bool converts() const { return matmul_ == MatmulType::kFp32; }
  // Elements from a row of logits to the next. A GPU multiplies unaligned rows at a fraction of its
  // rate, so rows begin on multiples of 128; the elements between them have no value.
  [[nodiscard]] std::int64_t row_stride() const;

  MatmulType matmul_;
  bool on_gpu_;
  std::int64_t words_;
};

}  // namespace sluice
