// A matrix product in fp32 whose matrices may be 16 bits wide: for CPUs that multiply fp32 faster.
// 16-bit operands are converted a tile at a time, fp32 ones are used where they lie, and a 16-bit
// result is rounded once, from the fp32 sum over all of K.
//
// Scratch is at most three fp32 tiles of 4 MiB, whatever the sizes; none where all is fp32. Host
// tensors run, meta tensors allocate the same and compute nothing; on a GPU only fp32 is taken.
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
