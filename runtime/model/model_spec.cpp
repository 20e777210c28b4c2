#include "runtime/model/model_spec.hpp"

#include <cmath>

#include "kernels/base/error.hpp"

namespace sluice {
namespace {

ParamSpec matrix(std::string name, std::int64_t out, std::int64_t in, double init_std) {
  return {{std::move(name), {out, in}, true}, Init::kNormal, init_std};
}

ParamSpec vector_of(std::string name, std::int64_t n, Init init) {
  return {{std::move(name), {n}, false}, init, 0};
}

// In the order Gpt2Block takes them.
ParamGroup gpt2_block(const ModelOptions& o, std::int64_t layer) {
  const std::string prefix = "h." + std::to_string(layer) + ".";
  // The projections into the residual stream: their sum over the depth keeps the stream's variance.
  const double residual_std = o.init_std / std::sqrt(2.0 * static_cast<double>(o.layers));
  ParamGroup group{prefix.substr(0, prefix.size() - 1), {}};
  group.params = {vector_of(prefix + "ln_1.weight", o.hidden, Init::kOnes),
                  vector_of(prefix + "ln_1.bias", o.hidden, Init::kZeros),
                  matrix(prefix + "attn.c_attn.weight", 3 * o.hidden, o.hidden, o.init_std),
                  vector_of(prefix + "attn.c_attn.bias", 3 * o.hidden, Init::kZeros),
                  matrix(prefix + "attn.c_proj.weight", o.hidden, o.hidden, residual_std),
                  vector_of(prefix + "attn.c_proj.bias", o.hidden, Init::kZeros),
                  vector_of(prefix + "ln_2.weight", o.hidden, Init::kOnes),
                  vector_of(prefix + "ln_2.bias", o.hidden, Init::kZeros),
                  matrix(prefix + "mlp.c_fc.weight", o.ffn, o.hidden, o.init_std),
                  vector_of(prefix + "mlp.c_fc.bias", o.ffn, Init::kZeros),
                  matrix(prefix + "mlp.c_proj.weight", o.hidden, o.ffn, residual_std),
                  vector_of(prefix + "mlp.c_proj.bias", o.hidden, Init::kZeros)};
  return group;
}

UnitSpec unit_of_group(UnitKind kind, const ParamGroup& group, int index) {
  UnitSpec unit{group.name, kind, {}};
  for (int i = 0; i < static_cast<int>(group.params.size()); ++i) unit.params.push_back({index, i});
  return unit;
}

ModelSpec gpt2_spec(const ModelOptions& o) {
  ModelSpec spec{o, {}, {}};
  spec.groups.push_back({"wte", {matrix("wte.weight", o.vocab, o.hidden, o.init_std)}});
  spec.groups.push_back({"wpe", {matrix("wpe.weight", o.seq, o.hidden, o.init_std)}});
  spec.units.push_back({"embedding", UnitKind::kEmbedding, {{0, 0}, {1, 0}}});
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    spec.groups.push_back(gpt2_block(o, layer));
    spec.units.push_back(unit_of_group(UnitKind::kBlock, spec.groups.back(),
                                       static_cast<int>(spec.groups.size()) - 1));
  }
  ParamGroup head{"head",
                  {vector_of("ln_f.weight", o.hidden, Init::kOnes),
                   vector_of("ln_f.bias", o.hidden, Init::kZeros)}};
  const int head_group = static_cast<int>(spec.groups.size());
  ParamRef classifier{0, 0};
  if (!o.tie_embeddings) {
    head.params.push_back(matrix("lm_head.weight", o.vocab, o.hidden, o.init_std));
    classifier = {head_group, 2};
  }
  spec.groups.push_back(std::move(head));
  spec.units.push_back(
      {"head", UnitKind::kLossHead, {{head_group, 0}, {head_group, 1}, classifier}});
  return spec;
}

}  // namespace

std::int64_t ModelSpec::param_count() const {
  std::int64_t count = 0;
  for (const ParamGroup& group : groups) {
    for (const ParamSpec& param : group.params) {
      std::int64_t elems = 1;
      for (const std::int64_t dim : param.tensor.shape) elems *= dim;
      count += elems;
    }
  }
  return count;
}

double ModelSpec::forward_flops_per_sample(const UnitSpec& unit) const {
  if (unit.kind == UnitKind::kEmbedding) return 0;
  const auto seq = static_cast<double>(options.seq);
  double flops = 0;
  for (const ParamRef& ref : unit.params) {
    const auto& shape = groups[static_cast<std::size_t>(ref.group)]
                            .params[static_cast<std::size_t>(ref.index)]
                            .tensor.shape;
    if (shape.size() == 2) {
      flops += 2 * seq * static_cast<double>(shape[0]) * static_cast<double>(shape[1]);
    }
  }
  // Scores and their product with the values: 2 x 2 x seq^2 x hidden, half of it under the mask.
  if (unit.kind == UnitKind::kBlock) flops += 2 * seq * seq * static_cast<double>(options.hidden);
  return flops;
}

ModelSpec make_model_spec(const ModelOptions& given) {
  ModelOptions options = given;
  check(options.vocab > 0, "vocab is known before the model is made");
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  if (options.ffn == 0) options.ffn = 4 * options.hidden;
  if (options.type != ModelType::kGpt2) {
    throw ConfigError("model.type: only gpt2 can be trained by this version");
  }
  return gpt2_spec(options);
}

}  // namespace sluice
