#include "runtime/model/blocks/block_call.hpp"

#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "runtime/model/math/stacked_linear.hpp"

namespace sluice {
namespace {

using at::Tensor;

std::vector<GradTarget> targets(GradSink& sink, int first, int count) {
  std::vector<GradTarget> result;
  for (int i = first; i < first + count; ++i) result.push_back(sink.target(i));
  return result;
}

std::vector<std::int64_t> rows_of(std::span<const Tensor> matrices) {
  std::vector<std::int64_t> rows;
  for (const Tensor& matrix : matrices) rows.push_back(matrix.size(0));
  return rows;
}

void bias_gradients(const std::vector<GradTarget>& biases, std::span<const std::int64_t> rows,
                    const Tensor& dy_NO, RowSums& sums) {
  if (biases.size() == 1) return bias_gradient(biases[0], dy_NO, &sums);
  stacked_bias_gradient(biases, rows, dy_NO, &sums);
}

}  // namespace

BlockCall::BlockCall(const BlockOf& block, const UnitCall& call, std::span<const Tensor> params,
                     const Tensor& input)
    : block_(block),
      call_(call),
      params_(params),
      batch_(input.size(0)),
      seq_(input.size(1)),
      own_seq_(seq_) {
  if (sequence()) {
    check(call.cache == nullptr, "with sequence parallelism sequences are not run in parts");
    seq_ *= group()->size();
    own_first_ = own_seq_ * group()->rank();
  }
  check_documents(call, batch_, seq_);
}

Tensor BlockCall::operator[](int index) const { return index < 0 ? Tensor() : nth(params_, index); }

BlockNorm BlockCall::norm(const BlockParams::Norm& at, const Tensor& x_MH) const {
  return {x_MH, (*this)[at.weight], (*this)[at.bias], block_.options.norm_eps};
}

DropoutPlace BlockCall::dropout(int place, std::int64_t row) const {
  const ModelOptions& options = block_.options;
  return {.p = options.dropout,
          .call = call_,
          .site = static_cast<std::uint64_t>(1 + block_.layer * 3 + place),
          .per_sample = own_seq_ * options.hidden,
          .first = row * options.hidden,
          .offset = own_first_ * options.hidden};
}

std::span<const Tensor> BlockCall::neighbours(int first, int count) const {
  if (first < 0) return {};
  return params_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

Measured BlockCall::whole_rows(const Measured& x_MH) const {
  return sequence() ? group()->whole(x_MH.tensor, batch_).finish() : x_MH;
}

Tensor BlockCall::end_branch(const Tensor& partial_NH, const BranchSum& end) const {
  Tensor sum_MH = group()->sum(partial_NH, batch_).finish();
  residual_sum(sum_MH, end);
  return sum_MH;
}

void BlockCall::stack_product(const Tensor& y_NO, const Measured& h_NH,
                              const BlockParams::Stack& at) const {
  stacked_linear(y_NO, h_NH, neighbours(at.weight, at.count), neighbours(at.bias, at.count));
}

Tensor BlockCall::back_through_stack(const BlockParams::Stack& at, const BlockNorm& norm,
                                     const Measured& dy_NO, WeightProducts& weights) const {
  const Tensor& x_MH = norm.x;
  const Measured h_MH = to_measure(empty_tensor(x_MH.sizes(), x_MH.scalar_type(), x_MH.device()));
  norm.forward(h_MH);
  const auto matrices = neighbours(at.weight, at.count);
  const bool apart =
      group() != nullptr || weights.defers();  // else dh takes the place of h in the end
  const Tensor dh_NH =
      apart ? empty_tensor({dy_NO.tensor.size(0), x_MH.size(1)}, x_MH.scalar_type(), x_MH.device())
            : h_MH.tensor;
  TensorGroup::Started gathering, summing;
  if (sequence()) gathering = group()->whole(h_MH.tensor, batch_, Beside::kInputProduct);
  if (apart) stacked_input_gradient(dh_NH, dy_NO, matrices);
  const Measured h_NH = sequence() ? gathering.finish() : h_MH;
  const Beside beside = weights.defers() ? Beside::kNothing : Beside::kWeightProduct;
  if (group() != nullptr) summing = group()->sum(dh_NH, batch_, beside);
  const std::vector<std::int64_t> each = rows_of(matrices);
  if (apart) {
    weights.add([at, each, dy_NO, h_NH](GradSink& sink) {
      stacked_weight_gradient(targets(sink, at.weight, at.count), each, dy_NO, h_NH);
    });
  } else {
    stacked_gradients(dh_NH, targets(weights.sink(), at.weight, at.count), each,
                      {dy_NO, h_NH, matrices});
  }
  if (at.bias >= 0) {
    bias_gradients(targets(weights.sink(), at.bias, at.count), each, dy_NO.tensor, weights.sums());
  }
  return group() != nullptr ? summing.finish() : dh_NH;
}

}  // namespace sluice
