// Matrix products of the null cuBLAS and cuBLASLt: their rules, and their numbers where the null
// GPU computes. Thread-safe.
#pragma once

#include <cstdint>

#include "tests/gpu/null/record.hpp"

namespace null_gpu {

// Column-major. `rows` and `columns` are those of memory; a turned matrix takes part transposed.
struct Matrix {
  const void* data = nullptr;
  int type = 0;  // cudaDataType_t
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool turned = false;
  std::int64_t batch_stride = 0;  // elements
};

// A number of the host, read at the call, or one of the device, read by the task.
struct Factor {
  double value = 0;
  const void* on_device = nullptr;
};

// D = alpha scale_a scale_b A B + beta C + bias: sums in fp32 (fp64 for fp64), rounded once.
// If beta is 0, C is not read.
struct MatrixProduct {
  Matrix a, b, c, d;
  std::int64_t batch = 1;
  Factor alpha{.value = 1}, beta{};
  const void *scale_a = nullptr, *scale_b = nullptr;  // fp32 of the device; null: 1
  const void* bias = nullptr;                         // of the device: one element for each row
  int bias_type = 0;
};

// The factor behind cuBLAS' pointer, of the type that the product adds in.
[[nodiscard]] Factor factor_of(const void* pointer, bool on_device, bool fp64);

// How the report counts a product.
[[nodiscard]] Product counted(const MatrixProduct& product);

// Checks and counts the product. If the null GPU computes, the stream gets its task. False: a
// fault.
bool enqueue_product(const MatrixProduct& product, const Product& counted, const void* stream);

}  // namespace null_gpu
