// A matrix product in fp32 whose matrices may be 16 bits wide, for CPUs that multiply fp32 faster.
// 16-bit operands are converted a tile at a time, fp32 operands are used in place, and a 16-bit
// result is rounded once, from the fp32 sum over all of K.
//
// Scratch is at most three fp32 tiles of 4 MiB for any size, and none if all matrices are fp32.
// Host tensors are computed; meta tensors allocate the same and compute nothing. On a GPU only fp32
// is accepted.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice {

// c = a b + bias, or c += a b. Every matrix has rows or columns that are contiguous.
struct Fp32Matmul {
  at::Tensor c;             // [M, N]
  at::Tensor a;             // [M, K]
  at::Tensor b;             // [K, N]
  at::Tensor bias{};        // [N] or undefined
  bool accumulate = false;  // REQUIRES: no bias
};

void fp32_matmul(const Fp32Matmul& product);

}  // namespace sluice
