#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstddef>

#include "kernels/cpu/embedding/embedding.hpp"
#include "runtime/model/blocks/explicit_branch.hpp"
#include "runtime/model/blocks/explicit_units.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/units.hpp"

namespace sluice {
namespace {

// An explicit unit: its backward adds rows to the gradient in place, without a V x H tensor.
class TokenEmbedding final : public Unit {
 public:
  explicit TokenEmbedding(const ModelOptions& options) : options_(options) {}

  at::Tensor forward(const UnitCall& call, std::span<const at::Tensor> params,
                     const at::Tensor& tokens_BS, std::unique_ptr<Saved>* saved) override {
    if (saved != nullptr) saved->reset();
    const std::int64_t S = tokens_BS.size(1);
    check(call.first_position + S <= options_.seq, "a sample is no longer than model.seq");
    check_documents(call, tokens_BS.size(0), S);
    at::Tensor x_BSH = at::empty({tokens_BS.size(0), S, options_.hidden}, params[0].options());
    if (x_BSH.is_cpu()) {
      look_up(call, params, tokens_BS, x_BSH);
    } else if (takes_gpu_path(x_BSH)) {
      select_rows(x_BSH, params[0], tokens_BS.flatten());
      if (params.size() > 1) add_positions(call, params[1], x_BSH);
    }
    const DropoutPlace place = dropout_at(call, S);
    if (place.active()) drop_out(x_BSH, x_BSH, {}, place);
    return x_BSH;
  }

  at::Tensor backward(const UnitCall& call, std::span<const at::Tensor> params,
                      const at::Tensor& tokens_BS, std::unique_ptr<Saved> /*saved*/,
                      const at::Tensor& grad_output, GradSink& sink) override {
    const at::Tensor grad_BSH =
        branch_gradient(grad_output.contiguous(), dropout_at(call, tokens_BS.size(1)));
    const bool gpu = takes_gpu_path(grad_BSH);
    const auto add = [&](int index, const at::Tensor& rows) {
      const GradTarget target = sink.target(index);
      if (!target.wanted()) return;
      if (!target.accumulate) target.grad.zero_();
      if (gpu) return add_on_gpu(target.grad, rows, grad_BSH);
      add_on_host(target.grad, rows, grad_BSH);
    };
    add(0, tokens_BS.flatten());
    if (params.size() > 1) {
      add(1, gpu ? gpu_positions_of(call, tokens_BS) : positions_of(call, tokens_BS));
    }
    return {};
  }

  [[nodiscard]] bool backward_reads_params() const override { return false; }

  [[nodiscard]] std::optional<std::int64_t> cache_elems(std::int64_t /*positions*/) const override {
    return 0;
  }

 private:
  [[nodiscard]] DropoutPlace dropout_at(const UnitCall& call, std::int64_t seq) const {
    return {.p = options_.dropout, .call = call, .site = 0, .per_sample = seq * options_.hidden};
  }

  // On the host. Learned positions begin anew in each document.
  void look_up(const UnitCall& call, std::span<const at::Tensor> params,
               const at::Tensor& tokens_BS, const at::Tensor& x_BSH) const {
    const std::int64_t S = tokens_BS.size(1);
    EmbeddingArgs args{.out = host_bytes(x_BSH),
                       .table = host_bytes(params[0]),
                       .dtype = dtype_of(x_BSH),
                       .tokens = ids(tokens_BS),
                       .rows = params[0].size(0),
                       .position_rows = S,
                       .hidden = options_.hidden};
    if (params.size() > 1) {
      args.positions = host_bytes(params[1].narrow(0, call.first_position, S));
    }
    if (args.positions == nullptr || call.documents == nullptr) return embedding_forward(args);
    auto* out = static_cast<std::byte*>(args.out);
    for (std::int64_t row = 0; row < call.documents->rows(); ++row) {
      for (const Documents::Span& span : call.documents->of_row(row)) {
        args.out = out + (row * S + span.first) * options_.hidden * size_of(args.dtype);
        args.tokens = ids(tokens_BS).subspan(static_cast<std::size_t>(row * S + span.first),
                                             static_cast<std::size_t>(span.count));
        embedding_forward(args);
      }
    }
  }

  // On a GPU.
  void add_positions(const UnitCall& call, const at::Tensor& table, const at::Tensor& x_BSH) const {
    if (!options_.packed_rows || call.cache != nullptr) {
      x_BSH.add_(table.narrow(0, call.first_position, x_BSH.size(1)));
    } else if (call.documents == nullptr) {  // also a dry run, whose rows make the same tensor
      x_BSH.add_(table.narrow(0, 0, x_BSH.size(1)).repeat({x_BSH.size(0), 1}).view_as(x_BSH));
    } else {
      const at::Tensor learned_BSH = at::empty_like(x_BSH);
      select_rows(learned_BSH, table, call.documents->positions(x_BSH.device()));
      x_BSH.add_(learned_BSH);
    }
  }

  // int64 [B S]
  static at::Tensor positions_of(const UnitCall& call, const at::Tensor& tokens_BS) {
    at::Tensor positions =
        at::arange(tokens_BS.size(1), tokens_BS.options()).repeat({tokens_BS.size(0)});
    if (call.documents == nullptr || positions.is_meta()) return positions;
    call.documents->write_positions(host_data<std::int64_t>(positions));
    return positions;
  }

  // Undefined: a token's place in its row.
  static at::Tensor gpu_positions_of(const UnitCall& call, const at::Tensor& tokens_BS) {
    if (call.documents == nullptr || tokens_BS.is_meta()) return {};
    return call.documents->positions(tokens_BS.device());
  }

  void select_rows(const at::Tensor& out_BSH, const at::Tensor& table,
                   const at::Tensor& rows) const {
    device::look_up_tokens(out_BSH.view({-1, options_.hidden}), table, rows,
                           device::TokenTable::whole(table));
  }
  static std::span<const std::int64_t> ids(const at::Tensor& tokens) {
    return {host_data<std::int64_t>(tokens), static_cast<std::size_t>(tokens.numel())};
  }

  void add_on_host(const at::Tensor& grad_VH, const at::Tensor& rows,
                   const at::Tensor& grad_BSH) const {
    if (!grad_BSH.is_cpu()) return;
    embedding_backward(host_data<float>(grad_VH), ids(rows), host_bytes(grad_BSH),
                       dtype_of(grad_BSH), grad_VH.size(0), options_.hidden);
  }

  // `rows` undefined: positions.
  void add_on_gpu(const at::Tensor& grad_VH, const at::Tensor& rows,
                  const at::Tensor& grad_BSH) const {
    device::embedding_gradient({.grad = grad_VH,
                                .dy = grad_BSH.view({-1, options_.hidden}),
                                .rows = rows,
                                .period = grad_BSH.size(1)});
  }

  const ModelOptions options_;
};

}  // namespace

std::unique_ptr<Unit> make_token_embedding(const ModelOptions& options,
                                           std::shared_ptr<TensorGroup> group) {
  if (group) return make_sliced_embedding(options, std::move(group));
  return std::make_unique<TokenEmbedding>(options);
}

}  // namespace sluice
