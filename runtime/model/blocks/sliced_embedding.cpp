#include <ATen/ops/arange.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/embedding/embedding.hpp"
#include "kernels/cpu/embedding/embedding_slice.hpp"
#include "runtime/model/blocks/explicit_branch.hpp"
#include "runtime/model/blocks/explicit_units.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/model_slices.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

using at::Tensor;

// Names of tensors end in their shape: N = B S tokens, M of them between units (tensor_group.hpp).
class SlicedEmbedding final : public Unit {
 public:
  SlicedEmbedding(const ModelOptions& options, std::shared_ptr<TensorGroup> group)
      : options_(options),
        vocab_(model_slices(options, group->part()).vocab),
        group_(std::move(group)) {}

  Tensor forward(const UnitCall& call, std::span<const Tensor> params, const Tensor& tokens_BS,
                 std::unique_ptr<Saved>* saved) override {
    if (saved != nullptr) saved->reset();
    refuse_unfit(call, tokens_BS);
    const std::int64_t B = tokens_BS.size(0), S = tokens_BS.size(1), H = options_.hidden;
    const Tensor rows_NH = empty_tensor({B * S, H}, params[0].scalar_type(), params[0].device());
    if (takes_gpu_path(rows_NH)) {
      device::look_up_tokens(rows_NH, params[0], tokens_BS.flatten(), words());
    } else if (!rows_NH.is_meta()) {
      embedding_slice_forward(host_bytes(rows_NH), host_bytes(params[0]), dtype_of(rows_NH),
                              slice(tokens_BS));
    }
    const Tensor x_MH = group_->sum(rows_NH, B).finish();
    const Own own = own_tokens(S);
    const Tensor x_BSH = x_MH.view({B, own.count, H});
    if (params.size() > 1) add_learned(call, params[1], own, x_BSH);
    const DropoutPlace place = dropout_at(call, own);
    if (place.active()) drop_out(x_BSH, x_BSH, {}, place);
    return x_BSH;
  }

  // Every rank needs the gradients of all tokens: its words are anywhere among them.
  Tensor backward(const UnitCall& call, std::span<const Tensor> params, const Tensor& tokens_BS,
                  std::unique_ptr<Saved> /*saved*/, const Tensor& grad_output,
                  GradSink& sink) override {
    const std::int64_t B = tokens_BS.size(0), S = tokens_BS.size(1);
    const Own own = own_tokens(S);
    const Tensor grad_MH = branch_gradient(grad_output.contiguous().view({-1, options_.hidden}),
                                           dropout_at(call, own));
    const Beside beside = params.size() > 1 ? Beside::kPositions : Beside::kNothing;
    TensorGroup::Started gathering = group_->whole(grad_MH, B, beside);
    if (params.size() > 1) {
      add_positions(sink.target(1), call, own, grad_MH.view({B, own.count, options_.hidden}));
    }
    const Tensor grad_NH = gathering.finish();
    const GradTarget target = sink.target(0);
    if (!target.wanted()) return {};
    if (!target.accumulate) target.grad.zero_();
    if (takes_gpu_path(grad_NH)) {
      device::embedding_gradient(
          {.grad = target.grad, .dy = grad_NH, .rows = tokens_BS.flatten(), .first = vocab_.first});
    } else if (!grad_NH.is_meta()) {
      embedding_slice_backward(host_data<float>(target.grad), host_bytes(grad_NH),
                               dtype_of(grad_NH), slice(tokens_BS));
    }
    return {};
  }

  [[nodiscard]] bool backward_reads_params() const override { return false; }

  [[nodiscard]] std::optional<std::int64_t> cache_elems(std::int64_t /*positions*/) const override {
    if (group_->sequence()) return std::nullopt;
    return 0;
  }

 private:
  // The tokens of each sample that the rank has between units.
  struct Own {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  void refuse_unfit(const UnitCall& call, const Tensor& tokens_BS) const {
    const std::int64_t S = tokens_BS.size(1);
    check(call.first_position + S <= options_.seq, "a sample is no longer than model.seq");
    check_documents(call, tokens_BS.size(0), S);
    if (!group_->sequence() || S % group_->size() == 0) return;
    throw Error("parallel.sequence: samples of " + std::to_string(S) +
                " tokens cannot be shared by " + std::to_string(group_->size()) +
                " tensor-parallel ranks: " + std::to_string(S) + " % " +
                std::to_string(group_->size()) + " = " + std::to_string(S % group_->size()));
  }

  [[nodiscard]] Own own_tokens(std::int64_t seq) const {
    const std::int64_t count = group_->part().own_tokens(seq);
    return {group_->sequence() ? group_->rank() * count : 0, count};
  }

  [[nodiscard]] EmbeddingSlice slice(const Tensor& tokens) const {
    return {.tokens = {host_data<std::int64_t>(tokens), static_cast<std::size_t>(tokens.numel())},
            .first = vocab_.first,
            .rows = vocab_.count,
            .table_rows = options_.vocab,
            .hidden = options_.hidden};
  }

  [[nodiscard]] device::TokenTable words() const { return {vocab_, options_.vocab}; }

  [[nodiscard]] DropoutPlace dropout_at(const UnitCall& call, const Own& own) const {
    return {.p = options_.dropout,
            .call = call,
            .site = 0,
            .per_sample = own.count * options_.hidden,
            .offset = own.first * options_.hidden};
  }

  // f(first, count, position): `count` of the row's own tokens from the rank's token `first` on,
  // the first at `position` of its document.
  template <class Fn>
  static void for_runs(const Documents& documents, std::int64_t row, const Own& own, Fn f) {
    for (const Documents::Span& span : documents.of_row(row)) {
      const std::int64_t begin = std::max(span.first, own.first);
      const std::int64_t end = std::min(span.first + span.count, own.first + own.count);
      if (begin < end) f(begin - own.first, end - begin, begin - span.first);
    }
  }

  void add_learned(const UnitCall& call, const Tensor& table, const Own& own,
                   const Tensor& x_BSH) const {
    const bool packed = options_.packed_rows && call.cache == nullptr;
    if (takes_gpu_path(x_BSH) && packed) {  // a dry run too, whose rows make the same tensors
      const Tensor positions = gpu_positions(call, x_BSH.size(0), own, x_BSH.device());
      const Tensor learned_BSH = empty_tensor(x_BSH.sizes(), x_BSH.scalar_type(), x_BSH.device());
      device::look_up_tokens(learned_BSH.view({-1, options_.hidden}), table, positions,
                             device::TokenTable::whole(table));
      x_BSH.add_(learned_BSH);
    } else if (call.documents == nullptr) {
      x_BSH.add_(table.narrow(0, call.first_position + own.first, own.count));
    } else {
      for (std::int64_t b = 0; b < x_BSH.size(0); ++b) {
        for_runs(
            *call.documents, b, own,
            [&](std::int64_t first, std::int64_t count, std::int64_t position) {
              x_BSH.select(0, b).narrow(0, first, count).add_(table.narrow(0, position, count));
            });
      }
    }
  }

  // Of the rank's tokens, int64 [B own.count] on the device.
  static Tensor gpu_positions(const UnitCall& call, std::int64_t batch, const Own& own,
                              const at::Device& device) {
    if (call.documents == nullptr) {
      return at::arange(own.first, own.first + own.count,
                        at::TensorOptions().dtype(c10::ScalarType::Long).device(device))
          .repeat({batch});
    }
    return call.documents->positions(device)
        .view({batch, -1})
        .narrow(1, own.first, own.count)
        .flatten();
  }

  static std::vector<std::int64_t> positions_of(const UnitCall& call, std::int64_t batch,
                                                const Own& own) {
    std::vector<std::int64_t> positions(static_cast<std::size_t>(batch * own.count));
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto sample = positions.begin() + b * own.count;
      std::iota(sample, sample + own.count, own.first);
      if (call.documents == nullptr) continue;
      for_runs(*call.documents, b, own,
               [&](std::int64_t first, std::int64_t count, std::int64_t position) {
                 std::iota(sample + first, sample + first + count, position);
               });
    }
    return positions;
  }

  void add_positions(const GradTarget& target, const UnitCall& call, const Own& own,
                     const Tensor& grad_BSH) const {
    if (!target.wanted()) return;
    if (!target.accumulate) target.grad.zero_();
    const std::int64_t B = grad_BSH.size(0);
    if (takes_gpu_path(grad_BSH)) {
      const bool packed = call.documents != nullptr;
      device::embedding_gradient(
          {.grad = packed ? target.grad : target.grad.narrow(0, own.first, own.count),
           .dy = grad_BSH.view({-1, options_.hidden}),
           .rows = packed ? gpu_positions(call, B, own, grad_BSH.device()) : Tensor(),
           .period = own.count});
    } else if (!grad_BSH.is_meta()) {
      embedding_backward(host_data<float>(target.grad), positions_of(call, B, own),
                         host_bytes(grad_BSH), dtype_of(grad_BSH), target.grad.size(0),
                         options_.hidden);
    }
  }

  const ModelOptions options_;
  const Slice vocab_;
  const std::shared_ptr<TensorGroup> group_;
};

}  // namespace

std::unique_ptr<Unit> make_sliced_embedding(const ModelOptions& options,
                                            std::shared_ptr<TensorGroup> group) {
  return std::make_unique<SlicedEmbedding>(options, std::move(group));
}

}  // namespace sluice
