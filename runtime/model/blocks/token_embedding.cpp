#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "kernels/cpu/embedding.hpp"
#include "runtime/model/blocks/explicit_units.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/dropout.hpp"
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
    const bool positions = params.size() > 1;
    const auto of_call = [&] { return params[1].narrow(0, call.first_position, S); };
    at::Tensor x_BSH = at::empty({tokens_BS.size(0), S, options_.hidden}, params[0].options());
    if (x_BSH.is_cpu()) {
      embedding_forward({.out = host_bytes(x_BSH),
                         .table = host_bytes(params[0]),
                         .positions = positions ? host_bytes(of_call()) : nullptr,
                         .dtype = dtype_of(x_BSH),
                         .tokens = ids(tokens_BS),
                         .rows = params[0].size(0),
                         .position_rows = S,
                         .hidden = options_.hidden});
    } else if (takes_gpu_path(x_BSH)) {
      x_BSH.copy_(selected(params[0], tokens_BS).view_as(x_BSH));
      if (positions) x_BSH.add_(of_call());
    }
    return dropout(x_BSH, options_.dropout, call, 0);
  }

  at::Tensor backward(const UnitCall& call, std::span<const at::Tensor> params,
                      const at::Tensor& tokens_BS, std::unique_ptr<Saved> /*saved*/,
                      const at::Tensor& grad_output, GradSink& sink) override {
    const at::Tensor grad_BSH = dropout(grad_output, options_.dropout, call, 0).contiguous();
    add_rows(sink.target(0), tokens_BS.flatten(), grad_BSH, params[0].size(0));
    if (params.size() == 1) return {};
    const at::Tensor positions =
        at::arange(tokens_BS.size(1), tokens_BS.options()).repeat({tokens_BS.size(0)});
    add_rows(sink.target(1), positions, grad_BSH, params[1].size(0));
    return {};
  }

  [[nodiscard]] bool backward_reads_params() const override { return false; }

  [[nodiscard]] std::optional<std::int64_t> cache_elems(std::int64_t /*positions*/) const override {
    return 0;
  }

 private:
  // The meta device has no kernel of libtorch's operator.
  static at::Tensor selected(const at::Tensor& table, const at::Tensor& tokens) {
    if (table.is_meta()) return at::empty({tokens.numel(), table.size(1)}, table.options());
    return table.index_select(0, tokens.flatten());
  }
  static std::span<const std::int64_t> ids(const at::Tensor& tokens) {
    return {host_data<std::int64_t>(tokens), static_cast<std::size_t>(tokens.numel())};
  }

  void add_rows(const GradTarget& target, const at::Tensor& rows, const at::Tensor& grad_BSH,
                std::int64_t table_rows) const {
    if (!target.wanted()) return;
    if (!target.accumulate) target.grad.zero_();
    if (grad_BSH.is_cpu()) {
      embedding_backward(host_data<float>(target.grad), ids(rows), host_bytes(grad_BSH),
                         dtype_of(grad_BSH), table_rows, options_.hidden);
    } else if (takes_gpu_path(grad_BSH)) {
      const at::Tensor wide = grad_BSH.view({-1, options_.hidden}).to(c10::ScalarType::Float);
      if (wide.is_meta()) return;
      // In the order of sorted rows, so that bits repeat; no V x H temporary.
      target.grad.index_put_({std::optional<at::Tensor>(rows)}, wide, /*accumulate=*/true);
    }
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
