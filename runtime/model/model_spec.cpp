#include "runtime/model/model_spec.hpp"

#include <cmath>

#include "kernels/base/error.hpp"
#include "runtime/model/llama_params.hpp"

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

std::string bias_of(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string("weight").size()) + "bias";
}

// In the order of llama_block_params().
ParamGroup llama_block(const ModelOptions& o, std::int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const double residual_std = o.init_std / std::sqrt(2.0 * static_cast<double>(o.layers));
  const std::int64_t q = o.heads * o.head_dim;
  const std::int64_t kv = o.kv_heads * o.head_dim;
  ParamGroup group{"layers." + std::to_string(layer), {}};
  const auto add = [&](const std::string& name, std::int64_t out, std::int64_t in, double std) {
    group.params.push_back(matrix(prefix + name, out, in, std));
  };
  const auto add_norm = [&](const std::string& name) {
    group.params.push_back(vector_of(prefix + name, o.hidden, Init::kOnes));
  };
  const auto add_bias = [&](const ParamSpec& weight) {
    group.params.push_back(
        vector_of(bias_of(weight.tensor.name), weight.tensor.shape[0], Init::kZeros));
  };
  add_norm("input_layernorm.weight");
  add("self_attn.q_proj.weight", q, o.hidden, o.init_std);
  add("self_attn.k_proj.weight", kv, o.hidden, o.init_std);
  add("self_attn.v_proj.weight", kv, o.hidden, o.init_std);
  if (o.attention_bias != AttentionBias::kNone) {
    for (std::size_t i : {1U, 2U, 3U}) add_bias(ParamSpec(group.params[i]));
  }
  add("self_attn.o_proj.weight", o.hidden, q, residual_std);
  if (o.attention_bias == AttentionBias::kQkvo) add_bias(ParamSpec(group.params.back()));
  add_norm("post_attention_layernorm.weight");
  add("mlp.gate_proj.weight", o.ffn, o.hidden, o.init_std);
  add("mlp.up_proj.weight", o.ffn, o.hidden, o.init_std);
  add("mlp.down_proj.weight", o.hidden, o.ffn, residual_std);
  return group;
}

UnitSpec unit_of_group(UnitKind kind, const ParamGroup& group, int index) {
  UnitSpec unit{group.name, kind, {}};
  for (int i = 0; i < static_cast<int>(group.params.size()); ++i) unit.params.push_back({index, i});
  return unit;
}

// The groups of the embedding are there already; `head` has the norm's parameters.
void add_blocks_and_head(ModelSpec& spec, ParamGroup (*block)(const ModelOptions&, std::int64_t),
                         ParamGroup head) {
  const ModelOptions& o = spec.options;
  const auto next = [&spec] { return static_cast<int>(spec.groups.size()); };
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    spec.groups.push_back(block(o, layer));
    spec.units.push_back(unit_of_group(UnitKind::kBlock, spec.groups.back(), next() - 1));
  }
  if (!o.tie_embeddings) {
    head.params.push_back(matrix("lm_head.weight", o.vocab, o.hidden, o.init_std));
  }
  spec.units.push_back(unit_of_group(UnitKind::kLossHead, head, next()));
  if (o.tie_embeddings) spec.units.back().params.push_back({0, 0});
  spec.groups.push_back(std::move(head));
}

ModelSpec gpt2_spec(const ModelOptions& o) {
  ModelSpec spec{o, {}, {}};
  spec.groups.push_back({"wte", {matrix("wte.weight", o.vocab, o.hidden, o.init_std)}});
  spec.groups.push_back({"wpe", {matrix("wpe.weight", o.seq, o.hidden, o.init_std)}});
  spec.units.push_back({"embedding", UnitKind::kEmbedding, {{0, 0}, {1, 0}}});
  add_blocks_and_head(spec, gpt2_block,
                      {"head",
                       {vector_of("ln_f.weight", o.hidden, Init::kOnes),
                        vector_of("ln_f.bias", o.hidden, Init::kZeros)}});
  return spec;
}

ModelSpec llama_spec(const ModelOptions& o) {
  ModelSpec spec{o, {}, {}};
  spec.groups.push_back(
      {"embed_tokens", {matrix("model.embed_tokens.weight", o.vocab, o.hidden, o.init_std)}});
  spec.units.push_back({"embedding", UnitKind::kEmbedding, {{0, 0}}});
  add_blocks_and_head(spec, llama_block,
                      {"head", {vector_of("model.norm.weight", o.hidden, Init::kOnes)}});
  return spec;
}

bool has_window(const ModelOptions& o) { return o.sliding_window > 0 && o.sliding_window < o.seq; }

// Pairs of a query and a key it sees, to the leading order.
double attention_pairs(const ModelOptions& o) {
  const auto seq = static_cast<double>(o.seq);
  if (!has_window(o)) return seq * seq / 2;
  const auto window = static_cast<double>(o.sliding_window);
  return window * seq - window * window / 2;
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
  return flops + attention_flops_per_sample(unit);
}

double ModelSpec::attention_flops_per_sample(const UnitSpec& unit) const {
  if (unit.kind != UnitKind::kBlock) return 0;
  return 2 * 2 * attention_pairs(options) * static_cast<double>(options.heads) *
         static_cast<double>(options.head_dim);
}

std::int64_t ModelSpec::constant_bytes() const {
  if (options.type == ModelType::kGpt2) return 0;
  const std::int64_t tables = 2 * options.seq * (options.head_dim / 2) * 4;
  return tables + (has_window(options) ? window_mask_bytes(options.sliding_window) : 0);
}

LlamaBlockParams llama_block_params(const ModelOptions& o) {
  LlamaBlockParams at;
  int next = at.v + 1;
  if (o.attention_bias != AttentionBias::kNone) {
    at.q_bias = next++;
    at.k_bias = next++;
    at.v_bias = next++;
  }
  at.o = next++;
  if (o.attention_bias == AttentionBias::kQkvo) at.o_bias = next++;
  at.post_norm = next++;
  at.gate = next++;
  at.up = next++;
  at.down = next++;
  at.count = next;
  return at;
}

ModelSpec make_model_spec(const ModelOptions& given) {
  const ModelOptions options = with_defaults(given);
  check(options.vocab > 0, "vocab is known before the model is made");
  return options.type == ModelType::kGpt2 ? gpt2_spec(options) : llama_spec(options);
}

}  // namespace sluice
