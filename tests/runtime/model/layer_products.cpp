#include "tests/runtime/model/layer_products.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include "kernels/cpu/parallel.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {

Layer::Layer(const LayerSizes& s, c10::ScalarType type, const LayerScales& scales)
    : x(rule_tensor(1, {s.rows, s.in + 3}, scales.x).to(type).narrow(1, 2, s.in)),
      dy(rule_tensor(2, {s.rows, 2 * s.out}, scales.dy).to(type).narrow(1, s.out, s.out)),
      weight(rule_tensor(3, {s.out + 1, s.in}, scales.weight).to(type).narrow(0, 1, s.out)),
      bias(rule_tensor(4, {s.out}, 1.0).to(type)),
      dx_before(x) {}

Products products(const Layer& layer, MatmulType type) {
  const MatmulMode mode(type);
  const auto narrow = layer.x.options();
  Products p{.y = at::empty(layer.dy.sizes(), narrow),
             .plain = at::empty(layer.dy.sizes(), narrow),
             .dx = at::empty(layer.x.sizes(), narrow),
             .dx_twice = layer.dx_before.clone(),
             .grad = at::empty(layer.weight.sizes(), narrow.dtype(c10::ScalarType::Float)),
             .grad_twice = {}};
  linear(p.y, layer.x, layer.weight, layer.bias);
  linear(p.plain, layer.x, layer.weight, {});
  linear_input_gradient(p.dx, layer.dy, layer.weight, false);
  linear_input_gradient(p.dx_twice, layer.dy, layer.weight, true);
  GradTarget target{p.grad, false};
  linear_weight_gradient(target, layer.dy, layer.x);
  EXPECT_TRUE(target.accumulate);
  p.grad_twice = p.grad.clone();
  target.grad = p.grad_twice;
  linear_weight_gradient(target, layer.dy, layer.x);
  return p;
}

Products exact_products(const Layer& layer, const Operands& operands) {
  constexpr auto kDouble = c10::ScalarType::Double;
  Products p;
  p.plain = at::mm(operands.x, operands.weight.t());
  p.y = p.plain.add(layer.bias.to(kDouble));
  p.dx = at::mm(operands.dy, operands.weight);
  p.dx_twice = p.dx.add(layer.dx_before.to(kDouble));
  p.grad = at::mm(operands.dy.t(), operands.x);
  p.grad_twice = p.grad.mul(2);
  return p;
}

void expect_equal_bits_on_threads(const Layer& layer, MatmulType type) {
  const int threads = compute_threads();
  set_compute_threads(1);
  const Products one = products(layer, type);
  set_compute_threads(3);
  const Products three = products(layer, type);
  set_compute_threads(threads);
  EXPECT_TRUE(one.y.equal(three.y));
  EXPECT_TRUE(one.dx.equal(three.dx));
  EXPECT_TRUE(one.grad.equal(three.grad));
}

}  // namespace sluice::testing
