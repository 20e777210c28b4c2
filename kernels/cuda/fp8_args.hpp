// Arguments of the kernels of FP8 products (block_launch.hpp) and of the product itself. Pointers
// are device memory on multiples of 16 bytes. Plain structs, also for C++17.
#pragma once

#include <cstdint>

#include "kernels/cpu/fp8.hpp"

namespace sluice::cuda {

// Words that hold the largest magnitude of a tensor in parts: a thread block writes one word.
inline constexpr int kFp8Parts = 512;
inline constexpr std::int64_t kFp8PartBytes = std::int64_t{kFp8Parts} * 4;

// Memory for a product: what NVIDIA recommends for Hopper. cuBLASLt splits a long K with it.
inline constexpr std::int64_t kFp8WorkspaceBytes = std::int64_t{32} << 20;

// K of a product is a multiple of 16: rows of a turned operand are padded with zeros.
inline constexpr std::int64_t kFp8Multiple = 16;

// A bf16 matrix x, and its 8-bit copies for products: `codes` is a copy of x, `turned` of the
// transpose x^T. One of the two may be null. `columns` and `stride` are multiples of 16.
struct Fp8Operand {
  const void* x = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // elements between rows of x
  Fp8Format format = Fp8Format::kE4M3;
  std::uint32_t* parts = nullptr;  // [kFp8Parts] bits of magnitudes
  void* codes = nullptr;           // [rows, columns]
  void* turned = nullptr;          // [columns, rows rounded up to kFp8Multiple]
  float* inverse = nullptr;        // 1 / scale, for the product
  // [rows] bits of each row's largest magnitude, from the kernel that wrote x. Null: x is scanned.
  const std::uint32_t* row_maxima = nullptr;
};

// The operands of a product, or of both gradients of a linear layer.
struct Fp8Operands {
  static constexpr int kMost = 3;
  Fp8Operand of[kMost];
  int count = 0;
};

// A matrix of codes whose rows lie along K.
struct Fp8Matrix {
  const void* codes = nullptr;
  Fp8Format format = Fp8Format::kE4M3;
  const float* inverse = nullptr;
};

// d [n, m] = b [n, k] a [m, k]^T, or += with `accumulate`, times both reciprocal scales. d is bf16,
// or fp32 if `wide`. Sums are fp32 and rounded once.
struct Fp8Product {
  Fp8Matrix a, b;
  void* d = nullptr;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t d_stride = 0;
  bool wide = false;
  bool accumulate = false;
  const void* bias = nullptr;  // bf16 [m], may be null
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
};

}  // namespace sluice::cuda
