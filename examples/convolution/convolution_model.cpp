#include "convolution_model.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "runtime/model/autograd_unit.hpp"
#include "runtime/model/blocks/gpt2_units.hpp"

namespace convolution {
namespace {

using sluice::ParamSpec;

// x [B, S, H] -> x + conv(x) * sigmoid(gate(x)): an autograd unit says its forward and no more.
class ConvolutionBlock final : public sluice::AutogradUnit {
 public:
  explicit ConvolutionBlock(std::int64_t width) : width_(width) {}

 protected:
  at::Tensor compute(const sluice::UnitCall& /*call*/, std::span<const at::Tensor> p,
                     const at::Tensor& x) const override {
    const std::int64_t seq = x.size(1);
    const at::Tensor nothing = at::zeros({x.size(0), width_ - 1, x.size(2)}, x.options());
    const at::Tensor padded = at::cat({nothing, x}, 1);
    std::vector<at::Tensor> taps;  // the token itself last
    for (std::int64_t w = 0; w < width_; ++w) taps.push_back(padded.narrow(1, w, seq));
    const at::Tensor window = at::cat(taps, 2);  // [B, S, width x H]
    const at::Tensor gate = at::linear(window, p[2], p[3]).sigmoid();
    return x.add(at::linear(window, p[0], p[1]).mul(gate));
  }

 private:
  const std::int64_t width_;
};

ParamSpec matrix(const std::string& name, std::int64_t out, std::int64_t in) {
  return {{name, {out, in}, true}, sluice::Init::kNormal, 0.05};
}
ParamSpec bias(const std::string& name, std::int64_t n) {
  return {{name, {n}, false}, sluice::Init::kZeros, 0};
}

}  // namespace

sluice::Model make_model(const Options& o) {
  sluice::ModelOptions sizes;
  sizes.layers = o.layers;
  sizes.hidden = o.hidden;
  sizes.heads = 1;
  sizes.vocab = o.vocab;
  sizes.seq = o.seq;
  sluice::Model model{{sizes, {}, {}}, {}, nullptr};
  sluice::ModelSpec& spec = model.spec;

  // Embedding and loss head are the library's; the table is shared between them.
  spec.groups.push_back({"table", {matrix("table", o.vocab, o.hidden)}});
  spec.groups.push_back({"positions", {matrix("positions", o.seq, o.hidden)}});
  spec.units.push_back({"embedding", sluice::UnitKind::kEmbedding, {{0, 0}, {1, 0}}});
  model.units.push_back(sluice::make_token_embedding(sizes));

  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const std::string name = "conv." + std::to_string(layer);
    const int group = static_cast<int>(spec.groups.size());
    spec.groups.push_back(
        {name,
         {matrix(name + ".weight", o.hidden, o.width * o.hidden), bias(name + ".bias", o.hidden),
          matrix(name + ".gate.weight", o.hidden, o.width * o.hidden),
          bias(name + ".gate.bias", o.hidden)}});
    spec.units.push_back(
        {name, sluice::UnitKind::kBlock, {{group, 0}, {group, 1}, {group, 2}, {group, 3}}});
    model.units.push_back(std::make_unique<ConvolutionBlock>(o.width));
  }

  const int head = static_cast<int>(spec.groups.size());
  spec.groups.push_back({"head",
                         {{{"norm.weight", {o.hidden}, false}, sluice::Init::kOnes, 0},
                          bias("norm.bias", o.hidden)}});
  spec.units.push_back({"head", sluice::UnitKind::kLossHead, {{head, 0}, {head, 1}, {0, 0}}});
  model.head = sluice::make_layer_norm_head(sizes);
  return model;
}

}  // namespace convolution
