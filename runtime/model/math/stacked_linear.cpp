#include "runtime/model/math/stacked_linear.hpp"

#include <algorithm>
#include <vector>

#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/explicit_kernels.hpp"
#include "runtime/model/math/explicit_linear.hpp"

namespace sluice {
namespace {

// f(index, columns of `side_by_side` that belong to part `index`), parts of rows(index) columns.
template <class Rows, class Fn>
void for_columns(const at::Tensor& side_by_side, std::size_t count, Rows rows, Fn f) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < count; ++i) {
    f(i, side_by_side.narrow(1, column, rows(i)));
    column += rows(i);
  }
}

// The targets as one, where they are neighbours and alike.
GradTarget joined_target(std::span<const GradTarget> targets) {
  std::vector<at::Tensor> grads;
  for (const GradTarget& target : targets) grads.push_back(target.grad);
  const bool alike = std::all_of(targets.begin(), targets.end(), [&](const GradTarget& target) {
    return target.wanted() && target.accumulate == targets[0].accumulate;
  });
  return {alike ? joined(grads) : at::Tensor(), targets[0].accumulate};
}

}  // namespace

at::Tensor joined(std::span<const at::Tensor> parts) {
  std::vector<std::int64_t> sizes = parts[0].sizes().vec();
  std::int64_t next = parts[0].storage_offset();
  sizes[0] = 0;
  for (const at::Tensor& part : parts) {
    const bool here =
        part.storage().unsafeGetStorageImpl() == parts[0].storage().unsafeGetStorageImpl() &&
        part.storage_offset() == next && part.is_contiguous();
    if (!here) return {};
    next += part.numel();
    sizes[0] += part.size(0);
  }
  return parts[0].as_strided(sizes, parts[0].strides());
}

void stacked_linear(const at::Tensor& y, const Measured& x, std::span<const at::Tensor> weights,
                    std::span<const at::Tensor> biases) {
  const at::Tensor weight = joined(weights);
  const at::Tensor bias = biases.empty() ? at::Tensor() : joined(biases);
  if (weight.defined() && bias.defined() == !biases.empty()) {
    return linear(y, x, weight, bias);
  }
  const auto rows = [&](std::size_t i) { return weights[i].size(0); };
  for_columns(y, weights.size(), rows, [&](std::size_t i, const at::Tensor& columns) {
    linear(columns, x, weights[i], biases.empty() ? at::Tensor() : biases[i]);
  });
}

void stacked_input_gradient(const at::Tensor& dx, const Measured& dy,
                            std::span<const at::Tensor> weights) {
  if (const at::Tensor weight = joined(weights); weight.defined()) {
    return linear_input_gradient(dx, dy, weight);
  }
  const auto rows = [&](std::size_t i) { return weights[i].size(0); };
  for_columns(dy.tensor, weights.size(), rows, [&](std::size_t i, const at::Tensor& columns) {
    linear_input_gradient(dx, columns, weights[i], i > 0);
  });
}

void stacked_weight_gradient(std::span<const GradTarget> targets,
                             std::span<const std::int64_t> rows, const Measured& dy,
                             const Measured& x) {
  if (GradTarget all = joined_target(targets); all.wanted()) {
    return linear_weight_gradient(all, dy, x);
  }
  const auto columns_of = [&](std::size_t i) { return rows[i]; };
  for_columns(dy.tensor, targets.size(), columns_of, [&](std::size_t i, const at::Tensor& columns) {
    GradTarget target = targets[i];
    linear_weight_gradient(target, columns, x);
  });
}

void stacked_gradients(const at::Tensor& dx, std::span<const GradTarget> targets,
                       std::span<const std::int64_t> rows, const StackedBackward& of) {
  const at::Tensor weight = joined(of.weights);
  GradTarget all = joined_target(targets);
  if (weight.defined() && all.wanted()) {
    return linear_gradients(dx, all, {of.dy, of.x, weight});
  }
  stacked_weight_gradient(targets, rows, of.dy, of.x);
  stacked_input_gradient(dx, of.dy, of.weights);
}

void stacked_bias_gradient(std::span<const GradTarget> targets, std::span<const std::int64_t> rows,
                           const at::Tensor& dy, RowSums* sums) {
  const bool wanted = std::any_of(targets.begin(), targets.end(),
                                  [](const GradTarget& target) { return target.wanted(); });
  if (!wanted) return;
  if (takes_gpu_path(dy)) {  // the host adds the total to the target: other bits
    if (const GradTarget all = joined_target(targets); all.wanted()) {
      return bias_gradient(all, dy, sums);
    }
  }
  const at::Tensor totals = empty_tensor({dy.size(1)}, c10::ScalarType::Float, dy.device());
  bias_gradient({totals, false}, dy);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    store_gradient(targets[i], totals.narrow(0, first, rows[i]));
    first += rows[i];
  }
}

}  // namespace sluice
