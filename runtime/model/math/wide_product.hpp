// A product of 16-bit matrices with an fp32 result, as a weight's gradient and the logits.
//
// bf16 on a host whose BLAS multiplies into fp32 (MKL, in libtorch): one GEMM that adds to the
// result, unrounded, without allocation. Otherwise the product is rounded to 16 bits before it is
// added in fp32, a tile of at most kWideTile x kWideTile elements at a time; on a GPU all of it at
// once. Meta tensors allocate what host tensors do. Threads: the BLAS's own.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice {

inline constexpr std::int64_t kWideTile = 1024;

// c (fp32 [M, N], contiguous rows) = a [M, K] b [K, N], or c += a b. a and b are of one 16-bit
// dtype, each with rows or columns that are contiguous.
void wide_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

// Whether wide_product rounds intermediate results on the host.
[[nodiscard]] bool wide_product_rounds(c10::ScalarType dtype);

}  // namespace sluice
