// Names of tensors end in their shape: N = B S tokens, H hidden, E q, k and v side by side, A heads
// x head_dim (attention's output), F ffn, C tokens of a chunk.
#include <c10/core/GradMode.h>

#include <algorithm>

#include "kernels/base/error.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/explicit_attention.hpp"
#include "runtime/model/explicit_branch.hpp"
#include "runtime/model/explicit_linear.hpp"
#include "runtime/model/explicit_units.hpp"
#include "runtime/model/kv_cache.hpp"
#include "runtime/model/llama_units.hpp"
#include "runtime/model/stacked_linear.hpp"

namespace sluice {
namespace {

using at::Tensor;

Tensor like(const Tensor& x) { return empty_tensor(x.sizes(), x.scalar_type(), x.device()); }

Tensor rows_of_columns(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  return empty_tensor({rows, columns}, x.scalar_type(), x.device());
}

struct Kept final : Saved {
  Tensor qkv_NE;       // q and k turned
  Tensor attention;    // its output [B, heads, S, D], in memory rows of tokens; undefined with
                       // recompute_attention
  Tensor r_NH;         // the residual stream between the two halves
  Tensor gate_up_N2F;  // before SwiGLU; undefined in a forward that no backward follows

  [[nodiscard]] std::vector<Tensor> tensors() const override {
    return {qkv_NE, attention, r_NH, gate_up_N2F};
  }
};

class LlamaExplicitBlock final : public Unit {
 public:
  LlamaExplicitBlock(const ModelOptions& options, std::int64_t layer,
                     std::shared_ptr<const LlamaConstants> shared)
      : options_(options),
        at_(llama_block_params(options)),
        layer_(layer),
        shared_(std::move(shared)),
        twin_(make_llama_block(options, layer, shared_)) {}

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
      kept->qkv_NE.reset();
      kept->attention.reset();
    } else {
      kept->gate_up_N2F = rows_of_columns(x_NH, x_NH.size(0), 2 * options_.ffn);
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

    [[nodiscard]] Tensor operator[](int index) const {
      return index < 0 ? Tensor() : params[static_cast<std::size_t>(index)];
    }
    // Neighbours: q, k, v or gate, up; none where there are none.
    [[nodiscard]] std::span<const Tensor> stack(int first, std::size_t count) const {
      if (first < 0) return {};
      return params.subspan(static_cast<std::size_t>(first), count);
    }
  };

  static std::vector<GradTarget> targets(GradSink& sink, int first, int count) {
    std::vector<GradTarget> result;
    for (int i = first; i < first + count; ++i) result.push_back(sink.target(i));
    return result;
  }

  Tensor rows(const Tensor& x_BSH) const { return x_BSH.contiguous().view({-1, options_.hidden}); }

  // Three places of a block drop out, numbered as in llama_block.cpp; `row` is the first token.
  DropoutPlace dropout_at(const Run& run, int place, std::int64_t row) const {
    return {.p = options_.dropout,
            .call = run.call,
            .site = static_cast<std::uint64_t>(1 + layer_ * 3 + place),
            .per_sample = run.seq * options_.hidden,
            .first = row * options_.hidden};
  }

  RmsInput norm(const Run& run, int weight, const Tensor& x_NH, const Tensor& rstd) const {
    return {x_NH, run[weight], rstd, options_.norm_eps};
  }

  static Tensor statistics_for(const Tensor& x_NH) {
    return empty_tensor({x_NH.size(0)}, c10::ScalarType::Float, x_NH.device());
  }

  // q, k, v as [B, heads, S, D] of a fused [N, E].
  AttentionHeads by_head(const Run& run, const Tensor& qkv_NE) const {
    const std::int64_t heads = options_.heads, kv = options_.kv_heads;
    const Tensor all =
        qkv_NE.view({run.batch, run.seq, heads + 2 * kv, options_.head_dim}).transpose(1, 2);
    return {all.narrow(1, 0, heads), all.narrow(1, heads, kv), all.narrow(1, heads + kv, kv)};
  }

  AttentionInput attention_input(const Run& run, const Tensor& qkv_NE) const {
    const AttentionHeads heads = by_head(run, qkv_NE);
    const bool windowed = options_.sliding_window > 0 && options_.sliding_window < run.seq;
    return {heads.q, heads.k, heads.v, dropout_at(run, 0, 0),
            windowed ? options_.sliding_window : 0};
  }

  Tensor attention(const Run& run, const Tensor& qkv_NE) const {
    const AttentionInput in = attention_input(run, qkv_NE);
    return cached_attention({in.q, in.k, in.v}, run.call, [&] { return attention_forward(in); });
  }

  // [B, heads, S, D] that lies as [B, S, heads, D] -> [N, A].
  Tensor tokens(const Tensor& heads) const {
    return heads.transpose(1, 2).view({-1, options_.heads * options_.head_dim});
  }

  void turn(const Run& run, const Tensor& qkv_NE, bool back) const {
    shared_->rope.turn(qkv_NE, {run.call.first_position, run.seq},
                       options_.heads + options_.kv_heads, back);
  }

  void attention_half(const Run& run, const Tensor& x_NH, Kept& kept) const {
    const Tensor h_NH = like(x_NH);
    rms_forward(h_NH, norm(run, at_.input_norm, x_NH, {}));
    kept.qkv_NE = rows_of_columns(x_NH, x_NH.size(0),
                                  (options_.heads + 2 * options_.kv_heads) * options_.head_dim);
    stacked_linear(kept.qkv_NE, h_NH, run.stack(at_.q, 3), run.stack(at_.q_bias, 3));
    turn(run, kept.qkv_NE, false);
    kept.attention = attention(run, kept.qkv_NE);
    kept.r_NH = h_NH;  // the norm's output is done with
    residual_linear(kept.r_NH, {x_NH, tokens(kept.attention), run[at_.o], run[at_.o_bias],
                                dropout_at(run, 1, 0)});
    if (options_.recompute_attention) kept.attention.reset();
  }

  Tensor mlp(const Run& run, const Kept& kept) const {
    const std::int64_t N = kept.r_NH.size(0);
    const std::int64_t step = chunk_rows(N);
    const Tensor y_NH = like(kept.r_NH);  // each chunk: the norm's output, then y
    rms_forward(y_NH, norm(run, at_.post_norm, kept.r_NH, {}));
    const Tensor act = rows_of_columns(y_NH, step, options_.ffn);
    const bool keeps = kept.gate_up_N2F.defined();
    const Tensor gate_up = keeps ? kept.gate_up_N2F : rows_of_columns(y_NH, step, 2 * options_.ffn);
    for (std::int64_t row = 0; row < N; row += step) {
      const std::int64_t n = std::min(step, N - row);
      const Tensor y_CH = y_NH.narrow(0, row, n);
      const Tensor act_CF = act.narrow(0, 0, n);
      const Tensor gate_up_C2F = gate_up.narrow(0, keeps ? row : 0, n);
      stacked_linear(gate_up_C2F, y_CH, run.stack(at_.gate, 2));
      swiglu(act_CF, gate_up_C2F);
      residual_linear(
          y_CH, {kept.r_NH.narrow(0, row, n), act_CF, run[at_.down], {}, dropout_at(run, 2, row)});
    }
    return y_NH;
  }

  // What forward keeps, without the block's output: no down projection.
  std::unique_ptr<Kept> forward_again(const Run& run, const Tensor& x_NH) const {
    auto kept = std::make_unique<Kept>();
    attention_half(run, x_NH, *kept);
    const Tensor h_NH = like(x_NH);
    rms_forward(h_NH, norm(run, at_.post_norm, kept->r_NH, {}));
    kept->gate_up_N2F = rows_of_columns(x_NH, x_NH.size(0), 2 * options_.ffn);
    stacked_linear(kept->gate_up_N2F, h_NH, run.stack(at_.gate, 2));
    return kept;
  }

  // kept.gate_up becomes the gradient by itself.
  void back_through_swiglu(const Run& run, const Kept& kept, const Tensor& dy_NH,
                           GradSink& sink) const {
    const std::int64_t N = dy_NH.size(0);
    const std::int64_t step = chunk_rows(N);
    const Tensor dbranch_NH = branch_gradient(dy_NH, dropout_at(run, 2, 0));
    GradTarget down = sink.target(at_.down);
    const Tensor scratch_CF = rows_of_columns(dy_NH, step, options_.ffn);
    for (std::int64_t row = 0; row < N; row += step) {
      const std::int64_t n = std::min(step, N - row);
      const Tensor d_CH = dbranch_NH.narrow(0, row, n);
      const Tensor gate_up_C2F = kept.gate_up_N2F.narrow(0, row, n);
      const Tensor act_CF = scratch_CF.narrow(0, 0, n);
      swiglu(act_CF, gate_up_C2F);
      linear_weight_gradient(down, d_CH, act_CF);
      linear_input_gradient(act_CF, d_CH, run[at_.down]);
      swiglu_gradient(gate_up_C2F, act_CF);
    }
  }

  // The gradient by r.
  Tensor mlp_backward(const Run& run, Kept& kept, const Tensor& dy_NH, GradSink& sink) const {
    back_through_swiglu(run, kept, dy_NH, sink);
    const Tensor h_NH = like(dy_NH);
    const RmsInput in = norm(run, at_.post_norm, kept.r_NH, statistics_for(dy_NH));
    rms_forward(h_NH, in);
    stacked_weight_gradient(targets(sink, at_.gate, 2), kept.gate_up_N2F, h_NH);
    const Tensor& dh_NH = h_NH;  // in the place of what is done with; then dr likewise
    stacked_input_gradient(dh_NH, kept.gate_up_N2F, run.stack(at_.gate, 2));
    kept.gate_up_N2F.reset();
    rms_weight_gradient(sink.target(at_.post_norm), dh_NH, in);
    rms_input_gradient(dh_NH, dh_NH, dy_NH, in);
    kept.r_NH.reset();
    return dh_NH;
  }

  // dr becomes dx.
  void attention_half_backward(const Run& run, Kept& kept, const Tensor& x_NH, const Tensor& dr_NH,
                               GradSink& sink) const {
    Tensor dqkv_NE = back_to_heads(run, kept, dr_NH, sink);
    turn(run, dqkv_NE, true);
    const Tensor work_NH = like(x_NH);
    const RmsInput in = norm(run, at_.input_norm, x_NH, statistics_for(x_NH));
    rms_forward(work_NH, in);
    stacked_weight_gradient(targets(sink, at_.q, 3), dqkv_NE, work_NH);
    if (at_.q_bias >= 0) stacked_bias_gradient(targets(sink, at_.q_bias, 3), dqkv_NE);
    stacked_input_gradient(work_NH, dqkv_NE, run.stack(at_.q, 3));
    dqkv_NE.reset();
    rms_weight_gradient(sink.target(at_.input_norm), work_NH, in);
    rms_input_gradient(dr_NH, work_NH, dr_NH, in);
  }

  // Through the output projection and attention.
  Tensor back_to_heads(const Run& run, Kept& kept, const Tensor& dr_NH, GradSink& sink) const {
    const AttentionInput in = attention_input(run, kept.qkv_NE);
    if (!kept.attention.defined()) kept.attention = attention_forward(in);
    const Tensor dout = back_through_output(run, kept, dr_NH, sink);
    const Tensor dqkv_NE = like(kept.qkv_NE);
    attention_backward(in, dout, by_head(run, dqkv_NE));
    kept.qkv_NE.reset();
    return dqkv_NE;
  }

  // The gradient by attention's output, in its place: [B, heads, S, D].
  Tensor back_through_output(const Run& run, Kept& kept, const Tensor& dr_NH,
                             GradSink& sink) const {
    const Tensor dbranch_NH = branch_gradient(dr_NH, dropout_at(run, 1, 0));
    if (at_.o_bias >= 0) bias_gradient(sink.target(at_.o_bias), dbranch_NH);
    GradTarget out = sink.target(at_.o);
    const Tensor attention = std::move(kept.attention);
    const Tensor attention_NA = tokens(attention);
    linear_weight_gradient(out, dbranch_NH, attention_NA);
    linear_input_gradient(attention_NA, dbranch_NH, run[at_.o]);
    return attention;
  }

  const ModelOptions options_;
  const LlamaBlockParams at_;
  const std::int64_t layer_;
  const std::shared_ptr<const LlamaConstants> shared_;
  const std::unique_ptr<Unit> twin_;
};

}  // namespace

std::unique_ptr<Unit> make_llama_explicit_block(const ModelOptions& options, std::int64_t layer,
                                                std::shared_ptr<const LlamaConstants> shared) {
  return std::make_unique<LlamaExplicitBlock>(options, layer, std::move(shared));
}

}  // namespace sluice
