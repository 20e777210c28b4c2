// 16-bit products in fp32: against double, in sizes on both sides of a tile, in every layout that a
// layer has; never less exact than the native product.
#include "runtime/model/math/fp32_matmul.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/parallel.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

using at::Tensor;
constexpr auto kDouble = c10::ScalarType::Double;
constexpr auto kFloat = c10::ScalarType::Float;
constexpr auto kBf16 = c10::ScalarType::BFloat16;

double off_by(const Tensor& ours, const Tensor& want) {
  return norm_of(ours.to(kDouble).sub(want)) / norm_of(want);
}

struct MatrixSizes {
  std::int64_t rows, in, out;
};
// Below a tile of 1024, on it, and above it in each of the three places.
const MatrixSizes kMatrixSizes[] = {
    {5, 7, 3}, {64, 1024, 96}, {1030, 40, 33}, {50, 2100, 17}, {19, 33, 1500}};

// A layer whose rows are pieces of wider ones, as the parts of a fused projection are.
struct Layer {
  Layer(const MatrixSizes& s, c10::ScalarType type)
      : x(rule_tensor(1, {s.rows, s.in + 3}, 1.0).to(type).narrow(1, 2, s.in)),
        dy(rule_tensor(2, {s.rows, 2 * s.out}, 1.0).to(type).narrow(1, s.out, s.out)),
        weight(rule_tensor(3, {s.out + 1, s.in}, 0.1).to(type).narrow(0, 1, s.out)),
        bias(rule_tensor(4, {s.out}, 1.0).to(type)) {}
  Tensor x, dy, weight, bias;
};

struct Products {
  Tensor y, dx, dx_twice, grad, grad_twice;
};

Products products(const Layer& layer, MatmulType type) {
  const MatmulMode mode(type);
  Products p{at::empty(layer.dy.sizes(), layer.x.options()),
             at::empty(layer.x.sizes(), layer.x.options()),
             {},
             at::empty(layer.weight.sizes(), layer.x.options().dtype(kFloat)),
             {}};
  linear(p.y, layer.x, layer.weight, layer.bias);
  linear_input_gradient(p.dx, layer.dy, layer.weight, false);
  p.dx_twice = layer.x.clone();
  linear_input_gradient(p.dx_twice, layer.dy, layer.weight, true);
  GradTarget target{p.grad, false};
  linear_weight_gradient(target, layer.dy, layer.x);
  EXPECT_TRUE(target.accumulate);
  p.grad_twice = p.grad.clone();
  target.grad = p.grad_twice;
  linear_weight_gradient(target, layer.dy, layer.x);
  return p;
}

Products exact_products(const Layer& layer) {
  const Tensor x = layer.x.to(kDouble);
  const Tensor dy = layer.dy.to(kDouble);
  const Tensor weight = layer.weight.to(kDouble);
  Products p;
  p.y = at::mm(x, weight.t()).add(layer.bias.to(kDouble));
  p.dx = at::mm(dy, weight);
  p.dx_twice = p.dx.add(x);
  p.grad = at::mm(dy.t(), x);
  p.grad_twice = p.grad.mul(2);
  return p;
}

TEST(Fp32Matmul, IsNeverLessExactThanTheNativeProduct) {
  const double rounding = std::ldexp(1.0, -9);  // of one bf16, relative
  for (const MatrixSizes& sizes : kMatrixSizes) {
    const Layer layer(sizes, kBf16);
    const Products want = exact_products(layer);
    const Products native = products(layer, MatmulType::kNative);
    const Products ours = products(layer, MatmulType::kFp32);
    const std::string what = std::to_string(sizes.rows) + " x " + std::to_string(sizes.in) + " x " +
                             std::to_string(sizes.out);
    for (Tensor Products::*part : {&Products::y, &Products::dx, &Products::dx_twice}) {
      const double error = off_by(ours.*part, want.*part);
      EXPECT_LE(error, 1.001 * off_by(native.*part, want.*part)) << what;
      EXPECT_LT(error, rounding) << what;
    }
    for (Tensor Products::*part : {&Products::grad, &Products::grad_twice}) {
      const double error = off_by(ours.*part, want.*part);
      EXPECT_LE(error, off_by(native.*part, want.*part)) << what;
      EXPECT_LT(error, 1e-6) << what;  // not rounded to bf16
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
  const Layer layer(kMatrixSizes[2], kBf16);
  const int threads = compute_threads();
  set_compute_threads(1);
  const Products one = products(layer, MatmulType::kFp32);
  set_compute_threads(3);
  const Products three = products(layer, MatmulType::kFp32);
  set_compute_threads(threads);
  EXPECT_TRUE(one.y.equal(three.y));
  EXPECT_TRUE(one.dx.equal(three.dx));
  EXPECT_TRUE(one.grad.equal(three.grad));
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
