// The products of one linear layer, in a way of MatmulMode and in double.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/model/model_options.hpp"

namespace sluice::testing {

struct LayerSizes {
  std::int64_t rows, in, out;
};
struct LayerScales {
  double x = 1.0, dy = 1.0, weight = 0.1;
};

// A layer whose rows are pieces of wider ones, as the parts of a fused projection are.
struct Layer {
  Layer(const LayerSizes& s, c10::ScalarType type, const LayerScales& scales = {});
  at::Tensor x, dy, weight, bias;
  at::Tensor dx_before;  // x; the gradient of the input is added to it
};

struct Products {
  at::Tensor y, plain;  // with the bias and without
  at::Tensor dx, dx_twice;
  at::Tensor grad, grad_twice;
};

[[nodiscard]] Products products(const Layer& layer, MatmulType type);

// Of operands that are double already; bias and dx_before are the layer's.
struct Operands {
  at::Tensor x, dy, weight;
};
[[nodiscard]] Products exact_products(const Layer& layer, const Operands& operands);

void expect_equal_bits_on_threads(const Layer& layer, MatmulType type);

}  // namespace sluice::testing
