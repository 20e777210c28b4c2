// Names of tensors end in their shape: N = B S tokens, M of them between units (N, or N / tensor
// with sequence parallelism), H hidden, E q, k and v side by side, A heads x head_dim (attention's
// output), F ffn, U what precedes the activation (F, or 2 F of gate and up), C tokens of a chunk.
// E, A, F and U are the rank's.
#include "runtime/model/blocks/explicit_block.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/blocks/block_call.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/math/explicit_attention.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "runtime/model/math/kv_cache.hpp"
#include "runtime/model/math/stacked_linear.hpp"
#include "runtime/model/model_slices.hpp"

namespace sluice {
namespace {

using at::Tensor;

Tensor like(const Tensor& x) { return empty_tensor(x.sizes(), x.scalar_type(), x.device()); }

Tensor matrix_like(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  return empty_tensor({rows, columns}, x.scalar_type(), x.device());
}

struct Kept final : Saved {
  Tensor qkv_NE;  // q and k turned, where positions are rotary
  // Its output [B, heads, S, D] is in memory rows of tokens; undefined with recompute_attention.
  AttentionResult attention;
  Tensor r_MH;   // the residual stream between the two halves
  Tensor up_NU;  // before the activation; undefined in a forward that no backward follows

  [[nodiscard]] std::vector<Tensor> tensors() const override {
    std::vector<Tensor> all{qkv_NE, attention.out, r_MH, up_NU};
    all.insert(all.end(), attention.rest.begin(), attention.rest.end());
    return all;
  }
};

Tensor rows(const Tensor& x_BSH) { return x_BSH.contiguous().view({-1, x_BSH.size(-1)}); }

// [B, heads, S, D] that lies as [B, S, heads, D] -> [N, A].
Tensor tokens(const Tensor& heads) {
  return heads.transpose(1, 2).view({-1, heads.size(1) * heads.size(3)});
}

// Of a branch's bias; -1: it has none.
void bias_gradient_of(int bias, const Tensor& dbranch_MH, WeightProducts& weights) {
  if (bias >= 0) bias_gradient(weights.sink().target(bias), dbranch_MH, &weights.sums());
}

// The parts of the sums over dy's rows that are the gradient of the stack's bias, for the kernel
// that writes dy. The stack then has no bias. Undefined where there is none, or it is frozen.
Tensor start_bias(BlockParams::Stack* stack, const Tensor& dy_NO, WeightProducts& weights) {
  if (stack->bias < 0) return {};
  return weights.sums().start(weights.sink().target(std::exchange(stack->bias, -1)), dy_NO);
}

struct HeadShape {
  std::int64_t dim = 0;
  std::int64_t window = 0;  // keys that a query sees; 0: all before it
};

class ExplicitBlock final : public Unit {
 public:
  explicit ExplicitBlock(ExplicitBlockParts parts)
      : options_(parts.options),
        layer_(parts.layer),
        at_(block_params(parts.options)),
        slices_(model_slices(parts.options, parts.group ? parts.group->part() : ModelPart{})),
        activation_(parts.llama != nullptr),
        head_{.dim =
                  parts.llama ? parts.options.head_dim : parts.options.hidden / parts.options.heads,
              .window = parts.llama ? parts.options.sliding_window : 0},
        llama_(std::move(parts.llama)),
        group_(std::move(parts.group)) {}

  Tensor forward(const UnitCall& call, std::span<const Tensor> params, const Tensor& input,
                 std::unique_ptr<Saved>* saved) override {
    const c10::AutoGradMode no_graph(false);
    const MatmulMode products(options_.matmul);
    const BlockCall run(block(), call, params, input);
    const Tensor x_MH = rows(input);
    auto kept = std::make_unique<Kept>();
    Measured h_MH = attention_half(run, x_MH, *kept, saved != nullptr);
    if (saved == nullptr) kept->attention = {};
    const Tensor y_MH = mlp(run, *kept, std::move(h_MH));
    if (saved != nullptr) *saved = std::move(kept);
    return y_MH.view(input.sizes());
  }

  Tensor backward(const UnitCall& call, std::span<const Tensor> params, const Tensor& input,
                  std::unique_ptr<Saved> saved, const Tensor& grad_output,
                  GradSink& sink) override {
    const c10::AutoGradMode no_graph(false);
    const MatmulMode products(options_.matmul);
    const BlockCall run(block(), call, params, input);
    const Tensor x_MH = rows(input);
    if (!saved) saved = forward_again(run, x_MH);
    auto* kept = dynamic_cast<Kept*>(saved.get());
    check(kept != nullptr, "backward is given what this unit saved");
    WeightProducts weights(sink, options_.matmul);
    const Tensor dr_MH = mlp_backward(run, *kept, rows(grad_output), weights);
    const Tensor dx_MH = attention_half_backward(run, *kept, x_MH, dr_MH, weights);
    weights.sums().finish();
    return dx_MH.view(input.sizes());
  }

  [[nodiscard]] bool saved_moves() const override { return true; }
  [[nodiscard]] bool splits_backward() const override { return true; }

  [[nodiscard]] std::optional<std::int64_t> cache_elems(std::int64_t positions) const override {
    if (group_ && group_->sequence()) return std::nullopt;  // a rank has no sample's tokens all
    return KvCache::elems(slices_.kv_heads.count, head_.dim, positions, head_.window);
  }

 private:
  [[nodiscard]] BlockOf block() const { return {options_, layer_, group_.get()}; }

  [[nodiscard]] std::int64_t up_columns() const {
    return slices_.ffn.count * (activation_.gated() ? 2 : 1);
  }

  // q, k, v as [B, heads, S, D] of a fused [N, E].
  AttentionHeads by_head(const BlockCall& run, const Tensor& qkv_NE) const {
    const std::int64_t heads = slices_.heads.count, kv = slices_.kv_heads.count;
    const Tensor all =
        qkv_NE.view({run.batch(), run.seq(), heads + 2 * kv, head_.dim}).transpose(1, 2);
    return {all.narrow(1, 0, heads), all.narrow(1, heads, kv), all.narrow(1, heads + kv, kv),
            all.transpose(1, 2)};
  }

  AttentionInput attention_input(const BlockCall& run, const Tensor& qkv_NE) const {
    const AttentionHeads heads = by_head(run, qkv_NE);
    // Generated text has prompts of any length, and cuDNN makes a plan for each length.
    const bool generates = run.call().cache != nullptr;
    return {.q = heads.q,
            .k = heads.k,
            .v = heads.v,
            .dropout = run.dropout(0, 0),
            .window = head_.window < run.seq() ? head_.window : 0,
            .first_head = slices_.heads.first,
            .documents = run.call().documents,
            .packed = options_.packed_rows,
            .backend = generates ? AttentionBackend::kFlash : options_.attention,
            .deterministic = options_.deterministic,
            .multiprocessors = options_.gpu.multiprocessors};
  }

  AttentionResult attention(const BlockCall& run, const Tensor& qkv_NE) const {
    const AttentionInput in = attention_input(run, qkv_NE);
    AttentionResult result;
    result.out = cached_attention({in.q, in.k, in.v}, run.call(), [&] {
      result = attention_forward(in);
      return result.out;
    });
    return result;
  }

  void turn(const BlockCall& run, const Tensor& qkv_NE, bool back) const {
    if (!llama_) return;
    llama_->rope.turn(qkv_NE, {run.call().first_position, run.seq(), run.call().documents},
                      slices_.heads.count + slices_.kv_heads.count, back);
  }

  // The norm of r. `keeps`: a backward follows.
  Measured attention_half(const BlockCall& run, const Tensor& x_MH, Kept& kept, bool keeps) const {
    Measured h_NH = to_measure(like(x_MH));
    run.norm(at_.norm1, x_MH).forward(h_NH);
    h_NH = run.whole_rows(h_NH);
    kept.qkv_NE = matrix_like(x_MH, h_NH.tensor.size(0),
                              (slices_.heads.count + 2 * slices_.kv_heads.count) * head_.dim);
    run.stack_product(kept.qkv_NE, h_NH, at_.qkv);
    turn(run, kept.qkv_NE, false);
    kept.attention = attention(run, kept.qkv_NE);
    if (!keeps) kept.qkv_NE.reset();
    const bool drops = options_.recompute_attention;
    Measured y_MH =
        end_attention_half(run, x_MH, std::exchange(h_NH, {}).tensor, kept, keeps && !drops);
    if (drops) kept.attention = {};
    if (keeps && drops) kept.up_NU = new_up(run, x_MH);
    return y_MH;
  }

  Tensor new_up(const BlockCall& run, const Tensor& x_MH) const {
    return matrix_like(x_MH, run.batch() * run.seq(), up_columns());
  }

  // h_NH: memory for r, or for the rank's part of the branch. takes_up: kept.up_NU is taken before
  // the norm's output. Both live at once, and the output dies first: its memory then merges with
  // the free memory behind it.
  Measured end_attention_half(const BlockCall& run, const Tensor& x_MH, Tensor h_NH, Kept& kept,
                              bool takes_up) const {
    const Tensor out_NA = tokens(kept.attention.out);
    const DropoutPlace dropout = run.dropout(1, 0);
    if (!group_) {
      kept.r_MH = std::move(h_NH);
      if (takes_up) kept.up_NU = new_up(run, x_MH);
      return normed_residual_linear(kept.r_MH,
                                    {x_MH, out_NA, run[at_.out], run[at_.out_bias], dropout},
                                    run.norm(at_.norm2, kept.r_MH));
    }
    linear(h_NH, out_NA, run[at_.out], {});
    kept.r_MH = run.end_branch(h_NH, {x_MH, run[at_.out_bias], dropout});
    h_NH.reset();
    if (takes_up) kept.up_NU = new_up(run, x_MH);
    Measured y_MH = to_measure(like(kept.r_MH));
    run.norm(at_.norm2, kept.r_MH).forward(y_MH);
    return y_MH;
  }

  // h_MH: the norm's output.
  Tensor mlp(const BlockCall& run, const Kept& kept, Measured h_MH) const {
    const Measured h_NH = run.whole_rows(std::exchange(h_MH, {}));
    const Tensor& y_NH = h_NH.tensor;  // each chunk: h, then y
    const std::int64_t N = y_NH.size(0);
    const std::int64_t step = chunk_rows(y_NH);
    const Measured act = to_measure(matrix_like(y_NH, step, slices_.ffn.count));
    const bool keeps = kept.up_NU.defined();
    const Tensor up = keeps                 ? kept.up_NU
                      : activation_.gated() ? matrix_like(y_NH, step, up_columns())
                                            : act.tensor;
    for (std::int64_t row = 0; row < N; row = next_piece(row, step, N, y_NH.is_meta())) {
      const std::int64_t n = std::min(step, N - row);
      const Tensor y_CH = y_NH.narrow(0, row, n);
      const Measured act_CF = act.narrow(0, n);
      const Tensor up_CU = up.narrow(0, keeps ? row : 0, n);
      run.stack_product(up_CU, h_NH.narrow(row, n), at_.up);
      activation_.forward(act_CF, up_CU);
      if (group_) {
        linear(y_CH, act_CF, run[at_.down], {});
      } else {
        residual_linear(y_CH, {kept.r_MH.narrow(0, row, n), act_CF, run[at_.down],
                               run[at_.down_bias], run.dropout(2, row)});
      }
    }
    if (!group_) return y_NH;
    return run.end_branch(y_NH, {kept.r_MH, run[at_.down_bias], run.dropout(2, 0)});
  }

  // The kept tensors without the block's output: no down projection.
  std::unique_ptr<Kept> forward_again(const BlockCall& run, const Tensor& x_MH) const {
    auto kept = std::make_unique<Kept>();
    const Measured h_NH = run.whole_rows(attention_half(run, x_MH, *kept, true));
    const std::int64_t N = h_NH.tensor.size(0);
    const std::int64_t step = chunk_rows(h_NH.tensor);
    // In the chunks of mlp(): the values of an FP8 product depend on its rows.
    for (std::int64_t row = 0; row < N; row = next_piece(row, step, N, x_MH.is_meta())) {
      const std::int64_t n = std::min(step, N - row);
      run.stack_product(kept->up_NU.narrow(0, row, n), h_NH.narrow(row, n), at_.up);
    }
    return kept;
  }

  // The gradient by kept.up; in the memory of kept.up unless products are deferred.
  Measured back_through_activation(const BlockCall& run, const Kept& kept, const Tensor& d_NH,
                                   WeightProducts& weights, BlockParams::Stack* up) const {
    const Tensor& up_NU = kept.up_NU;
    Measured dup_NU = to_measure(weights.defers() ? like(up_NU) : up_NU);
    const std::int64_t N = d_NH.size(0);
    const std::int64_t step = chunk_rows(d_NH);
    GradTarget down = weights.defers() ? GradTarget{} : weights.sink().target(at_.down);
    const bool sums = takes_gpu_path(up_NU) && !dup_NU.row_maxima.defined();
    const Tensor bias_parts = sums ? start_bias(up, dup_NU.tensor, weights) : Tensor();
    const Measured scratch_CF = to_measure(matrix_like(d_NH, step, slices_.ffn.count));
    for (std::int64_t row = 0; row < N; row = next_piece(row, step, N, d_NH.is_meta())) {
      const std::int64_t n = std::min(step, N - row);
      activation_.backward({.dup = dup_NU.narrow(row, n),
                            .up = up_NU.narrow(0, row, n),
                            .dy = scratch_CF.narrow(0, n),
                            .parts = RowSums::parts_of(bias_parts, row, n)},
                           {d_NH.narrow(0, row, n), run[at_.down], down});
    }
    if (weights.defers()) {
      weights.add([this, d_NH, up_NU](GradSink& sink) { down_weight_gradient(sink, d_NH, up_NU); });
    }
    return dup_NU;
  }

  void down_weight_gradient(GradSink& sink, const Tensor& d_NH, const Tensor& up_NU) const {
    const std::int64_t N = d_NH.size(0);
    const std::int64_t step = chunk_rows(d_NH);
    GradTarget down = sink.target(at_.down);
    if (!down.wanted()) return;
    const Measured scratch_CF = to_measure(matrix_like(d_NH, step, slices_.ffn.count));
    for (std::int64_t row = 0; row < N; row = next_piece(row, step, N, d_NH.is_meta())) {
      const std::int64_t n = std::min(step, N - row);
      const Measured act_CF = scratch_CF.narrow(0, n);
      activation_.forward(act_CF, up_NU.narrow(0, row, n));
      linear_weight_gradient(down, d_NH.narrow(0, row, n), act_CF);
    }
  }

  // The gradient by r.
  Tensor mlp_backward(const BlockCall& run, Kept& kept, const Tensor& dy_MH,
                      WeightProducts& weights) const {
    Measured dup_NU;
    BlockParams::Stack up = at_.up;
    {
      const Tensor dbranch_MH = branch_gradient(dy_MH, run.dropout(2, 0));
      bias_gradient_of(at_.down_bias, dbranch_MH, weights);
      dup_NU = back_through_activation(run, kept, run.whole_rows(dbranch_MH).tensor, weights, &up);
    }
    kept.up_NU.reset();
    BlockNorm in = run.norm(at_.norm2, kept.r_MH);
    in.keep_statistics();
    const Tensor dh_MH = run.back_through_stack(up, in, dup_NU, weights);
    dup_NU = {};
    in.weight_gradient(weights, at_.norm2, dh_MH);
    in.input_gradient(dh_MH, dh_MH, dy_MH);  // dr, in the place of what is done with
    kept.r_MH.reset();
    return dh_MH;
  }

  // dr becomes dx, unless a deferred product still needs it.
  Tensor attention_half_backward(const BlockCall& run, Kept& kept, const Tensor& x_MH,
                                 const Tensor& dr_MH, WeightProducts& weights) const {
    BlockParams::Stack qkv = at_.qkv;
    Tensor dqkv_NE = back_to_heads(run, kept, dr_MH, weights, &qkv);
    turn(run, dqkv_NE, true);
    BlockNorm in = run.norm(at_.norm1, x_MH);
    in.keep_statistics();
    const Tensor dh_MH = run.back_through_stack(qkv, in, dqkv_NE, weights);
    dqkv_NE.reset();
    in.weight_gradient(weights, at_.norm1, dh_MH);
    const Tensor dx_MH = weights.defers() ? dh_MH : dr_MH;
    in.input_gradient(dx_MH, dh_MH, dr_MH);
    return dx_MH;
  }

  // Through the output projection and attention.
  Tensor back_to_heads(const BlockCall& run, Kept& kept, const Tensor& dr_MH,
                       WeightProducts& weights, BlockParams::Stack* qkv) const {
    const AttentionInput in = attention_input(run, kept.qkv_NE);
    if (!kept.attention.out.defined()) kept.attention = attention_forward(in);
    const AttentionResult attention = std::move(kept.attention);
    const Tensor dout = back_through_output(run, attention, dr_MH, weights);
    const Tensor dqkv_NE = like(kept.qkv_NE);
    AttentionHeads grads = by_head(run, dqkv_NE);
    // Turned heads: the bias's gradient is the sum of what is turned back.
    if (!llama_ && attention_sums(in)) grads.parts = start_bias(qkv, dqkv_NE, weights);
    attention_backward(in, attention, dout, grads);
    kept.qkv_NE.reset();
    return dqkv_NE;
  }

  // The gradient by attention's output [B, heads, S, D]; in its place unless products are deferred
  // or attention's backward reads it.
  Tensor back_through_output(const BlockCall& run, const AttentionResult& attention,
                             const Tensor& dr_MH, WeightProducts& weights) const {
    const Tensor dbranch_MH = branch_gradient(dr_MH, run.dropout(1, 0));
    bias_gradient_of(at_.out_bias, dbranch_MH, weights);
    const Tensor d_NH = run.whole_rows(dbranch_MH).tensor;
    const Tensor out_NA = tokens(attention.out);
    const bool in_place = !weights.defers() && !attention_reads_output(attention);
    const Tensor dout_NA = in_place ? out_NA : like(out_NA);
    if (weights.defers()) {
      linear_input_gradient(dout_NA, d_NH, run[at_.out]);
      weights.add([out = at_.out, d_NH, out_NA](GradSink& sink) {
        GradTarget target = sink.target(out);
        linear_weight_gradient(target, d_NH, out_NA);
      });
    } else {
      GradTarget target = weights.sink().target(at_.out);
      linear_gradients(dout_NA, target, {d_NH, out_NA, run[at_.out]});
    }
    if (in_place) return attention.out;
    return dout_NA.view({run.batch(), run.seq(), slices_.heads.count, head_.dim}).transpose(1, 2);
  }

  const ModelOptions options_;
  const std::int64_t layer_;
  const BlockParams at_;
  const ModelSlices slices_;
  const BlockActivation activation_;
  const HeadShape head_;
  const std::shared_ptr<const LlamaConstants> llama_;
  const std::shared_ptr<TensorGroup> group_;
};

}  // namespace

std::unique_ptr<Unit> make_explicit_block(ExplicitBlockParts parts) {
  return std::make_unique<ExplicitBlock>(std::move(parts));
}

}  // namespace sluice
