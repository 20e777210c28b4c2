// Models as tables: parameters by Hugging Face's names, sizes of published models, operations.
#include "runtime/model/model_spec.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "runtime/model/blocks/llama_units.hpp"

namespace sluice::testing {
namespace {

ModelOptions llama3_8b() {
  ModelOptions o{.layers = 32, .hidden = 4096, .heads = 32, .vocab = 128256, .seq = 8192};
  o.type = ModelType::kLlama;
  o.kv_heads = 8;
  o.ffn = 14336;
  o.tie_embeddings = false;
  return o;
}

std::vector<std::string> names_of(const ModelSpec& spec, std::size_t unit) {
  std::vector<std::string> names;
  for (const ParamRef& ref : spec.units[unit].params) {
    names.push_back(spec.groups[static_cast<std::size_t>(ref.group)]
                        .params[static_cast<std::size_t>(ref.index)]
                        .tensor.name);
  }
  return names;
}

TEST(ModelSpec, CountsThePublishedParameters) {
  EXPECT_EQ(make_model_spec(llama3_8b()).param_count(), 8'030'261'248);  // Llama 3 8B
  ModelOptions mistral = llama3_8b();
  mistral.type = ModelType::kMistral;
  mistral.vocab = 32000;
  EXPECT_EQ(make_model_spec(mistral).param_count(), 7'241'732'096);  // Mistral 7B v0.1
  ModelOptions qwen{.layers = 24, .hidden = 896, .heads = 14, .vocab = 151936, .seq = 1024};
  qwen.type = ModelType::kQwen2;
  qwen.kv_heads = 2;
  qwen.ffn = 4864;
  EXPECT_EQ(make_model_spec(qwen).param_count(), 494'032'768);  // Qwen2 0.5B
  ModelOptions gpt2;
  gpt2.vocab = 50257;
  EXPECT_EQ(make_model_spec(gpt2).param_count(), 124'439'808);
}

TEST(ModelSpec, ABlockTakesItsParametersInTheOrderOfTheIndex) {
  for (const AttentionBias bias :
       {AttentionBias::kNone, AttentionBias::kQkv, AttentionBias::kQkvo}) {
    ModelOptions options = llama3_8b();
    options.attention_bias = bias;
    const ModelSpec spec = make_model_spec(options);
    const LlamaBlockParams at = llama_block_params(spec.options);
    const std::vector<std::string> names = names_of(spec, 2);
    const std::string prefix = "model.layers.1.";
    ASSERT_EQ(names.size(), static_cast<std::size_t>(at.count));
    const auto expect = [&](int index, const std::string& name) {
      if (index < 0) return;
      EXPECT_EQ(names[static_cast<std::size_t>(index)], prefix + name);
    };
    expect(at.input_norm, "input_layernorm.weight");
    expect(at.q, "self_attn.q_proj.weight");
    expect(at.k, "self_attn.k_proj.weight");
    expect(at.v, "self_attn.v_proj.weight");
    expect(at.q_bias, "self_attn.q_proj.bias");
    expect(at.k_bias, "self_attn.k_proj.bias");
    expect(at.v_bias, "self_attn.v_proj.bias");
    expect(at.o, "self_attn.o_proj.weight");
    expect(at.o_bias, "self_attn.o_proj.bias");
    expect(at.post_norm, "post_attention_layernorm.weight");
    expect(at.gate, "mlp.gate_proj.weight");
    expect(at.up, "mlp.up_proj.weight");
    expect(at.down, "mlp.down_proj.weight");
    EXPECT_EQ(at.q_bias >= 0, bias != AttentionBias::kNone);
    EXPECT_EQ(at.o_bias >= 0, bias == AttentionBias::kQkvo);
  }
}

TEST(ModelSpec, CountsOperationsOfProductsAndOfAttentionUnderItsMask) {
  ModelOptions o{.layers = 1, .hidden = 12, .heads = 3, .vocab = 50, .seq = 10};
  o.type = ModelType::kMistral;
  o.kv_heads = 1;
  o.head_dim = 6;  // wider in sum than hidden
  o.ffn = 20;
  const ModelSpec spec = make_model_spec(o);
  const double per_token = 12 * 18 + 2 * 12 * 6 + 18 * 12 + 3 * 12 * 20;
  EXPECT_EQ(spec.forward_flops_per_sample(spec.units[0]), 0);
  EXPECT_EQ(spec.forward_flops_per_sample(spec.units[1]), 2 * 10 * per_token + 4 * 50 * 18);
  EXPECT_EQ(spec.forward_flops_per_sample(spec.units[2]), 2 * 10 * 12 * 50);
  o.sliding_window = 4;
  const ModelSpec windowed = make_model_spec(o);
  EXPECT_EQ(windowed.forward_flops_per_sample(windowed.units[1]),
            2 * 10 * per_token + 4 * (4 * 10 - 8) * 18);
  // Rotary tables of 10 x 3 and a band of 32 x 35.
  EXPECT_EQ(windowed.constant_bytes(), (2 * 10 * 3 + 32 * 35) * 4);
}

TEST(ModelSpec, FillsInWhatATypeHasByDefault) {
  ModelOptions o{.hidden = 4096, .heads = 32, .vocab = 100};
  EXPECT_EQ(make_model_spec(o).options.ffn, 16384);
  EXPECT_EQ(make_model_spec(o).options.norm_eps, 1e-5);
  o.type = ModelType::kQwen2;
  const ModelOptions filled = make_model_spec(o).options;
  EXPECT_EQ(filled.ffn, 10944);  // 10922.7, to a multiple of 64
  EXPECT_EQ(filled.norm_eps, 1e-6);
  EXPECT_EQ(filled.attention_bias, AttentionBias::kQkv);
  EXPECT_EQ(filled.head_dim, 128);
  EXPECT_EQ(filled.kv_heads, 32);
  o.vocab = 0;
  EXPECT_THROW((void)make_model_spec(o), Error);
}

}  // namespace
}  // namespace sluice::testing
