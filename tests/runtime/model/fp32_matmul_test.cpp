// 16-bit products in fp32: against double, in sizes on both sides of a tile, in every layout that a
// layer has; never less exact than the native product.
#include "runtime/model/math/fp32_matmul.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "tests/runtime/model/block_run.hpp"
#include "tests/runtime/model/layer_products.hpp"

namespace sluice::testing {
namespace {

using at::Tensor;
constexpr auto kDouble = c10::ScalarType::Double;
constexpr auto kFloat = c10::ScalarType::Float;
constexpr auto kBf16 = c10::ScalarType::BFloat16;

// Below a tile of 1024, on it, and above it in each of the three places.
const LayerSizes kMatrixSizes[] = {
    {5, 7, 3}, {64, 1024, 96}, {1030, 40, 33}, {50, 2100, 17}, {19, 33, 1500}};

Products exact(const Layer& layer) {
  return exact_products(layer,
                        {layer.x.to(kDouble), layer.dy.to(kDouble), layer.weight.to(kDouble)});
}

TEST(Fp32Matmul, IsNeverLessExactThanTheNativeProduct) {
  const double rounding = std::ldexp(1.0, -9);  // of one bf16, relative
  for (const LayerSizes& sizes : kMatrixSizes) {
    const Layer layer(sizes, kBf16);
    const Products want = exact(layer);
    const Products native = products(layer, MatmulType::kNative);
    const Products ours = products(layer, MatmulType::kFp32);
    const std::string what = std::to_string(sizes.rows) + " x " + std::to_string(sizes.in) + " x " +
                             std::to_string(sizes.out);
    for (Tensor Products::*part : {&Products::y, &Products::dx, &Products::dx_twice}) {
      const double error = relative_error(ours.*part, want.*part);
      EXPECT_LE(error, 1.001 * relative_error(native.*part, want.*part)) << what;
      EXPECT_LT(error, rounding) << what;
    }
    for (Tensor Products::*part : {&Products::grad, &Products::grad_twice}) {
      // Not rounded to bf16. Where the native ones are not either, both are sums in fp32, each in
      // an order of its own.
      const double error = relative_error(ours.*part, want.*part);
      EXPECT_LE(error, std::max(relative_error(native.*part, want.*part), 1e-7)) << what;
      EXPECT_LT(error, 1e-6) << what;
    }
  }
}

// In fp16, whose native weight gradients are rounded on the way.
TEST(Fp32Matmul, ModesNest) {
  const Layer layer(kMatrixSizes[0], c10::ScalarType::Half);
  const Products native = products(layer, MatmulType::kNative);
  const auto gradient = [&] {
    GradTarget target{at::empty(layer.weight.sizes(), layer.x.options().dtype(kFloat)), false};
    linear_weight_gradient(target, layer.dy, layer.x);
    return target.grad;
  };
  const MatmulMode outer(MatmulType::kFp32);
  {
    const MatmulMode inner(MatmulType::kNative);
    EXPECT_TRUE(gradient().equal(native.grad));
  }
  EXPECT_FALSE(gradient().equal(native.grad));
}

// In fp32 there is nothing to convert: the same GEMM, and nothing allocated.
TEST(Fp32Matmul, LeavesFp32WhereItLies) {
  install_counting_allocators();
  const Layer layer(kMatrixSizes[2], kFloat);
  const Products want = products(layer, MatmulType::kNative);
  const Products ours = products(layer, MatmulType::kFp32);
  EXPECT_TRUE(ours.y.equal(want.y));
  EXPECT_TRUE(ours.dx_twice.equal(want.dx_twice));
  EXPECT_TRUE(ours.grad_twice.equal(want.grad_twice));
  const std::int64_t before = allocation_count(CountedDevice::kHost).live;
  reset_allocation_peak(CountedDevice::kHost);
  const MatmulMode mode(MatmulType::kFp32);
  linear_input_gradient(ours.dx, layer.dy, layer.weight);
  EXPECT_LE(allocation_count(CountedDevice::kHost).peak - before, 64);
}

TEST(Fp32Matmul, BitsDoNotDependOnThreads) {
  expect_equal_bits_on_threads(Layer(kMatrixSizes[2], kBf16), MatmulType::kFp32);
}

// Three tiles at most, on the meta device as on the host.
TEST(Fp32Matmul, ScratchIsBoundedAndCounted) {
  install_counting_allocators();
  const auto peak = [](CountedDevice counted, at::Device device) {
    const auto narrow = at::TensorOptions().dtype(kBf16).device(device);
    const Tensor x = at::empty({1500, 1100}, narrow).zero_();
    const Tensor weight = at::empty({1200, 1100}, narrow).zero_();
    const Tensor bias = at::empty({1200}, narrow).zero_();
    const Tensor y = at::empty({1500, 1200}, narrow);
    const std::int64_t before = allocation_count(counted).live;
    reset_allocation_peak(counted);
    const MatmulMode mode(MatmulType::kFp32);
    linear(y, x, weight, bias);
    return allocation_count(counted).peak - before;
  };
  const std::int64_t host = peak(CountedDevice::kHost, c10::DeviceType::CPU);
  EXPECT_LE(host, 3 * 1024 * 1024 * 4 + 1200 * 4);
  EXPECT_EQ(peak(CountedDevice::kMeta, c10::DeviceType::Meta), host);
}

}  // namespace
}  // namespace sluice::testing
