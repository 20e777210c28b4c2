// A matrix and the largest magnitude of each of its rows, which a GPU's 8-bit products need. The
// kernel that writes the matrix leaves the magnitudes, so the product does not scan the matrix.
// The magnitudes are valid until the matrix is written again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace sluice {

struct Measured {
  Measured() = default;
  // Not measured: a product scans it. Implicit, so that a product takes any matrix.
  Measured(at::Tensor matrix) : tensor(std::move(matrix)) {}
  Measured(at::Tensor matrix, at::Tensor maxima)
      : tensor(std::move(matrix)), row_maxima(std::move(maxima)) {}

  // Rows [row, row + rows).
  [[nodiscard]] Measured narrow(std::int64_t row, std::int64_t rows) const {
    return {tensor.narrow(0, row, rows),
            row_maxima.defined() ? row_maxima.narrow(0, row, rows) : at::Tensor()};
  }

  at::Tensor tensor;      // [N, H]
  at::Tensor row_maxima;  // int32 [N]: bits of magnitudes (kernels/cpu/fp8_core.hpp), or undefined
};

}  // namespace sluice
