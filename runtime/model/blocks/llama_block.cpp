#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

#include "base/index.hpp"
#include "runtime/model/autograd_unit.hpp"
#include "runtime/model/blocks/llama_units.hpp"
#include "runtime/model/math/biased_linear.hpp"
#include "runtime/model/math/dropout.hpp"
#include "runtime/model/math/kv_cache.hpp"
#include "runtime/model/math/rms_norm.hpp"

namespace sluice {
namespace {

class LlamaBlock final : public AutogradUnit {
 public:
  LlamaBlock(const ModelOptions& options, std::int64_t layer,
             std::shared_ptr<const LlamaConstants> shared)
      : options_(options),
        at_(llama_block_params(options)),
        layer_(layer),
        shared_(std::move(shared)) {}

  [[nodiscard]] std::optional<std::int64_t> cache_elems(std::int64_t positions) const override {
    return KvCache::elems(options_.kv_heads, options_.head_dim, positions, options_.sliding_window);
  }

 protected:
  at::Tensor compute(const UnitCall& call, std::span<const at::Tensor> p,
                     const at::Tensor& x_BSH) const override {
    const at::Tensor branch_BSH = attention(call, p, norm(x_BSH, p, at_.input_norm));
    const at::Tensor r_BSH = x_BSH.add(dropout(branch_BSH, options_.dropout, call, site(1)));
    const at::Tensor h_BSH = norm(r_BSH, p, at_.post_norm);
    const at::Tensor gate_BSF = at::silu(linear(h_BSH, p, at_.gate));
    const at::Tensor down_BSH = linear(gate_BSF.mul(linear(h_BSH, p, at_.up)), p, at_.down);
    return r_BSH.add(dropout(down_BSH, options_.dropout, call, site(2)));
  }

 private:
  using Params = std::span<const at::Tensor>;

  // Three places of a block drop out; 0 is the embedding's.
  std::uint64_t site(int place) const { return static_cast<std::uint64_t>(1 + layer_ * 3 + place); }

  static const at::Tensor& param(Params p, int index) { return nth(p, index); }

  at::Tensor norm(const at::Tensor& x, Params p, int weight) const {
    return rms_norm(x, param(p, weight), options_.norm_eps);
  }

  static at::Tensor linear(const at::Tensor& x, Params p, int weight, int bias = -1) {
    if (bias < 0) return at::linear(x, param(p, weight));
    return biased_linear(x, param(p, weight), param(p, bias));
  }

  at::Tensor by_head(const at::Tensor& x_BSE, std::int64_t heads) const {
    return x_BSE.view({x_BSE.size(0), x_BSE.size(1), heads, options_.head_dim});
  }

  // [B, S, heads, D] -> [B, heads, S, D] over the memory that causal_attention takes without a
  // copy.
  at::Tensor rotate(const at::Tensor& x_BSND, const RopeTable::Angles& angles) const {
    if (options_.heads != options_.kv_heads) {
      return RopeTable::apply(x_BSND.transpose(1, 2), 2, angles);
    }
    return RopeTable::apply(x_BSND, 1, angles).transpose(1, 2);
  }

  RopeTable::Angles angles(const UnitCall& call, const at::Tensor& x_BSH) const {
    const RopeTable::Positions positions{call.first_position, x_BSH.size(1), call.documents};
    if (!options_.packed_rows) return shared_->rope.angles(positions, x_BSH.device());
    check_documents(call, x_BSH.size(0), x_BSH.size(1));
    return shared_->rope.packed_angles(positions, x_BSH.size(0), x_BSH.device());
  }

  at::Tensor attention(const UnitCall& call, Params p, const at::Tensor& h_BSH) const {
    const RopeTable::Angles turn = angles(call, h_BSH);
    const at::Tensor q = rotate(by_head(linear(h_BSH, p, at_.q, at_.q_bias), options_.heads), turn);
    const at::Tensor k =
        rotate(by_head(linear(h_BSH, p, at_.k, at_.k_bias), options_.kv_heads), turn);
    const at::Tensor v =
        by_head(linear(h_BSH, p, at_.v, at_.v_bias), options_.kv_heads).transpose(1, 2);
    const at::Tensor out = cached_attention({q, k, v}, call, [&] {
      return causal_attention(q, k, v, options_.dropout, call, site(0), shared_->window.get(),
                              options_.packed_rows);
    });
    return linear(out.transpose(1, 2).reshape({h_BSH.size(0), h_BSH.size(1), -1}), p, at_.o,
                  at_.o_bias);
  }

  const ModelOptions options_;
  const LlamaBlockParams at_;
  const std::int64_t layer_;
  const std::shared_ptr<const LlamaConstants> shared_;
};

}  // namespace

LlamaConstants::LlamaConstants(const ModelOptions& options, bool dry) : rope(options, dry) {
  if (options.sliding_window > 0 && options.sliding_window < options.seq) {
    window = std::make_unique<const WindowMask>(options.sliding_window);
  }
}

std::unique_ptr<Unit> make_llama_block(const ModelOptions& options, std::int64_t layer,
                                       std::shared_ptr<const LlamaConstants> shared) {
  return std::make_unique<LlamaBlock>(options, layer, std::move(shared));
}

}  // namespace sluice
