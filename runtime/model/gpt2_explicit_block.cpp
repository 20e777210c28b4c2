// Names of tensors end in their shape: N = B S tokens, H hidden, F ffn, C tokens of a chunk.
#include <c10/core/GradMode.h>

#include <algorithm>

#include "kernels/base/error.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/explicit_attention.hpp"
#include "runtime/model/explicit_branch.hpp"
#include "runtime/model/explicit_linear.hpp"
#include "runtime/model/explicit_units.hpp"
#include "runtime/model/gpt2_units.hpp"
#include "runtime/model/kv_cache.hpp"

namespace sluice {
namespace {

using at::Tensor;

// The parameters, in the order of model_spec.cpp.
enum Param : std::size_t {
  kNorm1,
  kNorm1Bias,
  kQkv,
  kQkvBias,
  kOut,
  kOutBias,
  kNorm2,
  kNorm2Bias,
  kUp,
  kUpBias,
  kDown,
  kDownBias
};

Tensor like(const Tensor& x) { return empty_tensor(x.sizes(), x.scalar_type(), x.device()); }

Tensor columns_like(const Tensor& x, std::int64_t columns) {
  return empty_tensor({x.size(0), columns}, x.scalar_type(), x.device());
}

struct Kept final : Saved {
  Tensor qkv_N3H;
  Tensor attention;  // its output [B, heads, S, head_dim], in memory rows of tokens; undefined with
                     // recompute_attention
  Tensor r_NH;       // the residual stream between the two halves
  Tensor up_NF;      // before GELU; undefined in a forward that no backward follows

  [[nodiscard]] std::vector<Tensor> tensors() const override {
    return {qkv_N3H, attention, r_NH, up_NF};
  }
};

class Gpt2ExplicitBlock final : public Unit {
 public:
  Gpt2ExplicitBlock(const ModelOptions& options, std::int64_t layer)
      : options_(options), layer_(layer), twin_(make_gpt2_block(options, layer)) {}

  Tensor forward(const UnitCall& call, std::span<const Tensor> params, const Tensor& input,
                 std::unique_ptr<Saved>* saved) override {
    if (input.is_cuda()) return twin_->forward(call, params, input, saved);
    const c10::AutoGradMode no_graph(false);
    const MatmulMode products(options_.matmul);
    const Run run{call, params, input.size(0), input.size(1)};
    const Tensor x_NH = rows(input);
    auto kept = std::make_unique<Kept>();
    attention_half(run, x_NH, *kept);
    if (saved == nullptr) {
      kept->qkv_N3H.reset();
      kept->attention.reset();
    } else {
      kept->up_NF = columns_like(x_NH, options_.ffn);
    }
    const Tensor y_NH = mlp(run, *kept);
    if (saved != nullptr) *saved = std::move(kept);
    return y_NH.view(input.sizes());
  }

  Tensor backward(const UnitCall& call, std::span<const Tensor> params, const Tensor& input,
                  std::unique_ptr<Saved> saved, const Tensor& grad_output,
                  GradSink& sink) override {
    if (input.is_cuda()) {
      return twin_->backward(call, params, input, std::move(saved), grad_output, sink);
    }
    const c10::AutoGradMode no_graph(false);
    const MatmulMode products(options_.matmul);
    const Run run{call, params, input.size(0), input.size(1)};
    const Tensor x_NH = rows(input);
    if (!saved) saved = forward_again(run, x_NH);
    auto* kept = dynamic_cast<Kept*>(saved.get());
    check(kept != nullptr, "backward is given what this unit saved");
    const Tensor dr_NH = mlp_backward(run, *kept, rows(grad_output), sink);
    attention_half_backward(run, *kept, x_NH, dr_NH, sink);
    return dr_NH.view(input.sizes());
  }

  [[nodiscard]] bool saved_moves() const override { return true; }

  [[nodiscard]] std::optional<std::int64_t> cache_elems(std::int64_t positions) const override {
    return twin_->cache_elems(positions);
  }

 private:
  struct Run {
    const UnitCall& call;
    std::span<const Tensor> params;
    std::int64_t batch;
    std::int64_t seq;
    [[nodiscard]] const Tensor& operator[](Param p) const { return params[p]; }
  };

  Tensor rows(const Tensor& x_BSH) const { return x_BSH.contiguous().view({-1, options_.hidden}); }

  // Three places of a block drop out, numbered as in gpt2_block.cpp; `row` is the first token.
  DropoutPlace dropout_at(const Run& run, int place, std::int64_t row) const {
    return {.p = options_.dropout,
            .call = run.call,
            .site = static_cast<std::uint64_t>(1 + layer_ * 3 + place),
            .per_sample = run.seq * options_.hidden,
            .first = row * options_.hidden};
  }

  NormInput norm(const Run& run, Param weight, const Tensor& x_NH, const Tensor& statistics) const {
    return {x_NH, run[weight], run.params[weight + 1], statistics, options_.norm_eps};
  }

  static Tensor statistics_for(const Tensor& x_NH) {
    return empty_tensor({2, x_NH.size(0)}, c10::ScalarType::Float, x_NH.device());
  }

  // [3, B, heads, S, head_dim].
  Tensor by_head(const Run& run, const Tensor& qkv_N3H) const {
    const std::int64_t head_dim = options_.hidden / options_.heads;
    return qkv_N3H.view({run.batch, run.seq, 3, options_.heads, head_dim}).permute({2, 0, 3, 1, 4});
  }

  AttentionInput attention_input(const Run& run, const Tensor& qkv_N3H) const {
    const Tensor heads = by_head(run, qkv_N3H);
    return {heads.select(0, 0), heads.select(0, 1), heads.select(0, 2), dropout_at(run, 0, 0)};
  }

  Tensor attention(const Run& run, const Tensor& qkv_N3H) const {
    const AttentionInput in = attention_input(run, qkv_N3H);
    return cached_attention({in.q, in.k, in.v}, run.call, [&] { return attention_forward(in); });
  }

  // [B, heads, S, head_dim] that lies as [B, S, heads, head_dim] -> [N, H].
  Tensor tokens(const Tensor& heads) const {
    return heads.transpose(1, 2).view({-1, options_.hidden});
  }

  void attention_half(const Run& run, const Tensor& x_NH, Kept& kept) const {
    Tensor h_NH = like(x_NH);
    norm_forward(h_NH, norm(run, kNorm1, x_NH, {}));
    kept.qkv_N3H = columns_like(x_NH, 3 * options_.hidden);
    linear(kept.qkv_N3H, h_NH, run[kQkv], run[kQkvBias]);
    kept.attention = attention(run, kept.qkv_N3H);
    kept.r_NH = h_NH;  // the norm's output is done with
    residual_linear(
        kept.r_NH, {x_NH, tokens(kept.attention), run[kOut], run[kOutBias], dropout_at(run, 1, 0)});
    if (options_.recompute_attention) kept.attention.reset();
  }

  Tensor mlp(const Run& run, const Kept& kept) const {
    const std::int64_t N = kept.r_NH.size(0);
    const std::int64_t step = chunk_rows(N);
    const Tensor y_NH = like(kept.r_NH);  // each chunk: the norm's output, then y
    norm_forward(y_NH, norm(run, kNorm2, kept.r_NH, {}));
    const Tensor scratch_CF = columns_like(y_NH.narrow(0, 0, step), options_.ffn);
    for (std::int64_t row = 0; row < N; row += step) {
      const std::int64_t n = std::min(step, N - row);
      const Tensor y_CH = y_NH.narrow(0, row, n);
      const Tensor act_CF = scratch_CF.narrow(0, 0, n);
      const Tensor up_CF = kept.up_NF.defined() ? kept.up_NF.narrow(0, row, n) : act_CF;
      linear(up_CF, y_CH, run[kUp], run[kUpBias]);
      gelu(act_CF, up_CF);
      residual_linear(y_CH, {kept.r_NH.narrow(0, row, n), act_CF, run[kDown], run[kDownBias],
                             dropout_at(run, 2, row)});
    }
    return y_NH;
  }

  // What forward keeps, without the block's output: no down projection.
  std::unique_ptr<Kept> forward_again(const Run& run, const Tensor& x_NH) const {
    auto kept = std::make_unique<Kept>();
    attention_half(run, x_NH, *kept);
    const Tensor h_NH = like(x_NH);
    norm_forward(h_NH, norm(run, kNorm2, kept->r_NH, {}));
    kept->up_NF = columns_like(x_NH, options_.ffn);
    linear(kept->up_NF, h_NH, run[kUp], run[kUpBias]);
    return kept;
  }

  // kept.up becomes the gradient by itself.
  void back_through_gelu(const Run& run, const Kept& kept, const Tensor& dy_NH,
                         GradSink& sink) const {
    const std::int64_t N = dy_NH.size(0);
    const std::int64_t step = chunk_rows(N);
    const Tensor dbranch_NH = branch_gradient(dy_NH, dropout_at(run, 2, 0));
    bias_gradient(sink.target(kDownBias), dbranch_NH);
    GradTarget down = sink.target(kDown);
    const Tensor scratch_CF = columns_like(dy_NH.narrow(0, 0, step), options_.ffn);
    for (std::int64_t row = 0; row < N; row += step) {
      const std::int64_t n = std::min(step, N - row);
      const Tensor d_CH = dbranch_NH.narrow(0, row, n);
      const Tensor up_CF = kept.up_NF.narrow(0, row, n);
      const Tensor act_CF = scratch_CF.narrow(0, 0, n);
      gelu(act_CF, up_CF);
      linear_weight_gradient(down, d_CH, act_CF);
      linear_input_gradient(act_CF, d_CH, run[kDown]);
      gelu_gradient(up_CF, up_CF, act_CF);
    }
  }

  // The gradient by r.
  Tensor mlp_backward(const Run& run, Kept& kept, const Tensor& dy_NH, GradSink& sink) const {
    back_through_gelu(run, kept, dy_NH, sink);
    const Tensor h_NH = like(dy_NH);
    const NormInput in = norm(run, kNorm2, kept.r_NH, statistics_for(dy_NH));
    norm_forward(h_NH, in);
    GradTarget up = sink.target(kUp);
    linear_weight_gradient(up, kept.up_NF, h_NH);
    bias_gradient(sink.target(kUpBias), kept.up_NF);
    const Tensor& dh_NH = h_NH;  // in the place of what is done with; then dr likewise
    linear_input_gradient(dh_NH, kept.up_NF, run[kUp]);
    kept.up_NF.reset();
    norm_weight_gradient(sink.target(kNorm2), sink.target(kNorm2Bias), dh_NH, in);
    norm_input_gradient(dh_NH, dh_NH, dy_NH, in);
    kept.r_NH.reset();
    return dh_NH;
  }

  // dr becomes dx.
  void attention_half_backward(const Run& run, Kept& kept, const Tensor& x_NH, const Tensor& dr_NH,
                               GradSink& sink) const {
    Tensor dqkv_N3H = back_to_heads(run, kept, dr_NH, sink);
    const Tensor work_NH = like(x_NH);
    const NormInput in = norm(run, kNorm1, x_NH, statistics_for(x_NH));
    norm_forward(work_NH, in);
    GradTarget weight = sink.target(kQkv);
    linear_weight_gradient(weight, dqkv_N3H, work_NH);
    bias_gradient(sink.target(kQkvBias), dqkv_N3H);
    linear_input_gradient(work_NH, dqkv_N3H, run[kQkv]);
    dqkv_N3H.reset();
    norm_weight_gradient(sink.target(kNorm1), sink.target(kNorm1Bias), work_NH, in);
    norm_input_gradient(dr_NH, work_NH, dr_NH, in);
  }

  // Through the output projection and attention.
  Tensor back_to_heads(const Run& run, Kept& kept, const Tensor& dr_NH, GradSink& sink) const {
    const AttentionInput in = attention_input(run, kept.qkv_N3H);
    if (!kept.attention.defined()) kept.attention = attention_forward(in);
    const Tensor dout = back_through_output(run, kept, dr_NH, sink);
    const Tensor dqkv_N3H = like(kept.qkv_N3H);
    const Tensor d = by_head(run, dqkv_N3H);
    attention_backward(in, dout, {d.select(0, 0), d.select(0, 1), d.select(0, 2)});
    kept.qkv_N3H.reset();
    return dqkv_N3H;
  }

  // The gradient by attention's output, in its place: [B, heads, S, head_dim].
  Tensor back_through_output(const Run& run, Kept& kept, const Tensor& dr_NH,
                             GradSink& sink) const {
    const Tensor dbranch_NH = branch_gradient(dr_NH, dropout_at(run, 1, 0));
    bias_gradient(sink.target(kOutBias), dbranch_NH);
    GradTarget out = sink.target(kOut);
    const Tensor attention = std::move(kept.attention);
    const Tensor attention_NH = tokens(attention);
    linear_weight_gradient(out, dbranch_NH, attention_NH);
    linear_input_gradient(attention_NH, dbranch_NH, run[kOut]);
    return attention;
  }

  const ModelOptions options_;
  const std::int64_t layer_;
  const std::unique_ptr<Unit> twin_;
};

}  // namespace

std::unique_ptr<Unit> make_gpt2_explicit_block(const ModelOptions& options, std::int64_t layer) {
  return std::make_unique<Gpt2ExplicitBlock>(options, layer);
}

}  // namespace sluice
