#include <ATen/ops/gelu.h>
#include <ATen/ops/native_layer_norm.h>

#include "runtime/model/autograd_unit.hpp"
#include "runtime/model/blocks/gpt2_units.hpp"
#include "runtime/model/math/attention.hpp"
#include "runtime/model/math/biased_linear.hpp"
#include "runtime/model/math/dropout.hpp"
#include "runtime/model/math/kv_cache.hpp"

namespace sluice {
namespace {

class Gpt2Block final : public AutogradUnit {
 public:
  Gpt2Block(const ModelOptions& options, std::int64_t layer) : options_(options), layer_(layer) {}

  [[nodiscard]] std::optional<std::int64_t> cache_elems(std::int64_t positions) const override {
    return KvCache::elems(options_.heads, options_.hidden / options_.heads, positions, 0);
  }

 protected:
  at::Tensor compute(const UnitCall& call, std::span<const at::Tensor> p,
                     const at::Tensor& x_BSH) const override {
    const at::Tensor branch_BSH = attention(call, p, layer_norm(x_BSH, p[0], p[1]));
    const at::Tensor r_BSH = x_BSH.add(dropout(branch_BSH, options_.dropout, call, site(1)));
    const at::Tensor up_BSF = biased_linear(layer_norm(r_BSH, p[6], p[7]), p[8], p[9]);
    const at::Tensor down_BSH = biased_linear(at::gelu(up_BSF, "tanh"), p[10], p[11]);
    return r_BSH.add(dropout(down_BSH, options_.dropout, call, site(2)));
  }

 private:
  // Three places of a block drop out; 0 is the embedding's.
  std::uint64_t site(int place) const { return static_cast<std::uint64_t>(1 + layer_ * 3 + place); }

  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias) const {
    return std::get<0>(
        at::native_layer_norm(x, {options_.hidden}, weight, bias, options_.norm_eps));
  }

  at::Tensor attention(const UnitCall& call, std::span<const at::Tensor> p,
                       const at::Tensor& h_BSH) const {
    const std::int64_t B = h_BSH.size(0);
    const std::int64_t S = h_BSH.size(1);
    const std::int64_t head_dim = options_.hidden / options_.heads;
    const at::Tensor qkv = biased_linear(h_BSH, p[2], p[3])
                               .view({B, S, 3, options_.heads, head_dim})
                               .permute({2, 0, 3, 1, 4});  // [3, B, heads, S, head_dim]
    const at::Tensor q = qkv.select(0, 0), k = qkv.select(0, 1), v = qkv.select(0, 2);
    const at::Tensor out = cached_attention({q, k, v}, call, [&] {
      return causal_attention(q, k, v, options_.dropout, call, site(0), nullptr,
                              options_.packed_rows);
    });
    return biased_linear(out.transpose(1, 2).reshape({B, S, options_.hidden}), p[4], p[5]);
  }

  const ModelOptions options_;
  const std::int64_t layer_;
};

}  // namespace

std::unique_ptr<Unit> make_gpt2_block(const ModelOptions& options, std::int64_t layer) {
  return std::make_unique<Gpt2Block>(options, layer);
}

}  // namespace sluice
