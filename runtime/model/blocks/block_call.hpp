// One call of an explicit block: its parameters, the sizes of its input, and the steps that differ
// between tensor-parallel ranks and a single rank. Tensor names as in explicit_block.cpp. Lives as
// long as the call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/model/blocks/block_parts.hpp"
#include "runtime/model/blocks/explicit_branch.hpp"
#include "runtime/model/math/weight_products.hpp"
#include "runtime/model/tensor_group.hpp"

namespace sluice {

// The block that is called.
struct BlockOf {
  const ModelOptions& options;
  std::int64_t layer = 0;
  TensorGroup* group = nullptr;  // null: one rank
};

class BlockCall {
 public:
  // input: [B, S, H], or with sequence parallelism the rank's tokens.
  BlockCall(const BlockOf& block, const UnitCall& call, std::span<const at::Tensor> params,
            const at::Tensor& input);

  [[nodiscard]] const UnitCall& call() const { return call_; }
  [[nodiscard]] std::int64_t batch() const { return batch_; }
  [[nodiscard]] std::int64_t seq() const { return seq_; }  // of whole samples

  // Undefined for -1.
  [[nodiscard]] at::Tensor operator[](int index) const;
  [[nodiscard]] BlockNorm norm(const BlockParams::Norm& at, const at::Tensor& x_MH) const;

  // Three places of a block drop out, numbered as in gpt2_block.cpp; `row` is the first token.
  [[nodiscard]] DropoutPlace dropout(int place, std::int64_t row) const;

  // [M, H] -> the rows of all tokens: x itself if the rank holds all tokens; gathered rows are
  // not measured.
  [[nodiscard]] Measured whole_rows(const Measured& x_MH) const;
  // residual + dropout(sum + bias) [M, H]; sum is the sum of the ranks' partial products [N, H].
  [[nodiscard]] at::Tensor end_branch(const at::Tensor& partial_NH, const BranchSum& end) const;

  // y [N, O] = h [N, H] times the stack's matrices; outputs side by side.
  void stack_product(const at::Tensor& y_NO, const Measured& h_NH,
                     const BlockParams::Stack& at) const;
  // Backward of stack_product on the norm's output: gradients of the stack, and the gradient
  // [M, H] by the norm's output, summed over ranks while the weights' gradients are computed.
  // Writes norm.statistics.
  [[nodiscard]] at::Tensor back_through_stack(const BlockParams::Stack& at, const BlockNorm& norm,
                                              const Measured& dy_NO, WeightProducts& weights) const;

 private:
  [[nodiscard]] TensorGroup* group() const { return block_.group; }
  [[nodiscard]] bool sequence() const { return group() != nullptr && group()->sequence(); }
  [[nodiscard]] std::span<const at::Tensor> neighbours(int first, int count) const;

  const BlockOf block_;
  const UnitCall& call_;
  const std::span<const at::Tensor> params_;
  std::int64_t batch_, seq_;
  std::int64_t own_seq_, own_first_ = 0;  // tokens of a sample between units, the first of them
};

}  // namespace sluice
