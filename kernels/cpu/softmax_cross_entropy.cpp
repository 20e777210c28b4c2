#include "kernels/cpu/softmax_cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/check_ids.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/narrow_row.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

void check_args(const CrossEntropyArgs& a) {
  check(a.rows >= 0 && a.vocab >= 1 && a.width >= a.vocab && a.row_stride >= a.width,
        "softmax_cross_entropy: needs 1 <= vocab <= width <= row_stride");
  check(a.rows == 0 || (a.logits != nullptr && a.targets != nullptr),
        "softmax_cross_entropy: a null buffer");
  check_targets(a.targets, a.rows, a.vocab);
}

// -ln softmax at the target, in double.
double row_loss(double sum, float max, float target_logit) {
  return std::log(sum) + (static_cast<double>(max) - static_cast<double>(target_logit));
}

double loss_of_row(const KernelTable& table, const CrossEntropyArgs& a, std::int64_t row) {
  const std::int64_t target = a.targets[row];
  if (target == kIgnoreTarget) return 0.0;
  const float* x = a.logits + row * a.row_stride;
  const float max = table.row_max(x, a.vocab);
  return row_loss(table.row_exp_sum(nullptr, x, a.vocab, max), max, x[target]);
}

double gradient_of_row(const KernelTable& table, const CrossEntropyArgs& a, std::int64_t row) {
  float* x = a.logits + row * a.row_stride;
  const std::int64_t target = a.targets[row];
  if (target == kIgnoreTarget) {
    std::fill(x, x + a.width, 0.0F);
    return 0.0;
  }
  const float target_logit = x[target];
  const float max = table.row_max(x, a.vocab);
  const double sum = table.row_exp_sum(x, x, a.vocab, max);
  // p - 1 is computed in double: near p = 1 the fp32 difference has no correct digits.
  const double at_target = (static_cast<double>(x[target]) / sum - 1.0) * double{a.scale};
  table.scale(x, a.vocab, static_cast<float>(double{a.scale} / sum));
  x[target] = static_cast<float>(at_target);
  std::fill(x + a.vocab, x + a.width, 0.0F);
  if (a.gradient_dtype != DType::kFloat32) narrow_row(table, a.gradient_dtype, x, a.width);
  return row_loss(sum, max, target_logit);
}

template <class Row>
double sum_rows(const CrossEntropyArgs& a, Row row_function) {
  check_args(a);
  const KernelTable& table = kernels();
  std::vector<double> losses(static_cast<std::size_t>(a.rows));
  const std::int64_t grain = std::max<std::int64_t>(1, grain_elements(4) / a.width);
  parallel_for(a.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      nth(losses, row) = row_function(table, a, row);
    }
  });
  double total = 0.0;
  for (const double loss : losses) total += loss;
  return total;
}

}  // namespace

double softmax_cross_entropy(const CrossEntropyArgs& args) {
  return sum_rows(args, gradient_of_row);
}

double softmax_cross_entropy_loss(const CrossEntropyArgs& args) {
  return sum_rows(args, loss_of_row);
}

}  // namespace sluice
