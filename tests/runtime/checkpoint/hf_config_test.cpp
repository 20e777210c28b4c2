// config.json of four families, with old and new keys: what is read, what is refused and how.
#include "runtime/checkpoint/hf/hf_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "runtime/checkpoint/hf/hf_json.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;

Json llama() {
  return Json::parse(R"({"model_type": "llama", "vocab_size": 37, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 32})");
}
Json gpt2() {
  return Json::parse(R"({"model_type": "gpt2", "vocab_size": 37, "n_embd": 16, "n_layer": 2,
    "n_head": 2, "n_positions": 24})");
}
Json of_type(const char* type) {
  Json json = llama();
  json["model_type"] = type;
  return json;
}
Json with(Json json, const std::string& key, Json value) {
  json[key] = std::move(value);
  return json;
}
ModelOptions read(const Json& json) { return parse_hf_config("c.json", json.dump()); }
ModelOptions golden(const std::string& family) {
  return read_hf_config(SLUICE_SOURCE_DIR "/tests/golden/hf/" + family + "/config.json");
}
std::string refusal(const std::string& text) {
  try {
    (void)parse_hf_config("c.json", text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
std::string refusal(const Json& json) { return refusal(json.dump()); }

TEST(HfConfig, Gpt2) {
  const ModelOptions o = golden("gpt2");
  EXPECT_EQ(o.type, ModelType::kGpt2);
  EXPECT_EQ(o.layers, 2);
  EXPECT_EQ(o.hidden, 16);
  EXPECT_EQ(o.heads, 2);
  EXPECT_EQ(o.kv_heads, 2);
  EXPECT_EQ(o.head_dim, 8);
  EXPECT_EQ(o.ffn, 64);
  EXPECT_EQ(o.vocab, 37);
  EXPECT_EQ(o.seq, 24);
  EXPECT_EQ(o.norm_eps, 1e-5);
  EXPECT_TRUE(o.tie_embeddings);
  EXPECT_EQ(o.dropout, 0);
  EXPECT_EQ(o.attention_bias, AttentionBias::kQkvo);
}

TEST(HfConfig, LlamaWithLlama3Positions) {
  const ModelOptions o = golden("llama");
  EXPECT_EQ(o.kv_heads, 2);
  EXPECT_EQ(o.head_dim, 4);
  EXPECT_FALSE(o.tie_embeddings);
  EXPECT_EQ(o.norm_eps, 1e-6);
  EXPECT_EQ(o.rope_theta, 500);
  EXPECT_EQ(o.rope_scaling, RopeScaling::kLlama3);
  EXPECT_EQ(o.rope_factor, 4);
  EXPECT_EQ(o.rope_low_freq_factor, 1);
  EXPECT_EQ(o.rope_high_freq_factor, 2);
  EXPECT_EQ(o.rope_original_seq, 12);
  EXPECT_EQ(o.attention_bias, AttentionBias::kNone);
}

TEST(HfConfig, MistralAndQwen2) {
  EXPECT_EQ(golden("mistral").sliding_window, 4);
  EXPECT_EQ(golden("mistral").head_dim, 6);
  const ModelOptions qwen2 = golden("qwen2");
  EXPECT_TRUE(qwen2.tie_embeddings);
  EXPECT_EQ(qwen2.attention_bias, AttentionBias::kQkv);
  EXPECT_EQ(qwen2.kv_heads, 1);
  EXPECT_EQ(qwen2.rope_theta, 10000);
}

TEST(HfConfig, AbsentKeysHaveTheDefaultsOfTheirFamily) {
  EXPECT_EQ(read(llama()).kv_heads, 4);
  EXPECT_EQ(read(llama()).norm_eps, 1e-6);
  EXPECT_EQ(read(llama()).rope_theta, 10000);
  EXPECT_EQ(read(with(of_type("mistral"), "num_attention_heads", 8)).kv_heads, 8);
  EXPECT_EQ(read(with(of_type("mistral"), "num_key_value_heads", nullptr)).kv_heads, 4);
  EXPECT_EQ(read(with(of_type("mistral"), "num_key_value_heads", 2)).sliding_window, 4096);
  Json unbounded = with(of_type("mistral"), "num_key_value_heads", 2);
  unbounded["sliding_window"] = nullptr;
  EXPECT_EQ(read(unbounded).sliding_window, 0);
  EXPECT_EQ(read(with(gpt2(), "n_inner", 20)).ffn, 20);
  EXPECT_EQ(read(with(gpt2(), "initializer_range", 0)).init_std, 0);
  EXPECT_FALSE(read(with(gpt2(), "tie_word_embeddings", false)).tie_embeddings);
}

TEST(HfConfig, OldAndNewRotaryKeysSayTheSame) {
  const Json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  Json oldest = with(with(llama(), "rope_theta", 5e5), "rope_scaling", scaling);
  oldest["rope_scaling"]["type"] = "llama3";
  Json old = with(with(llama(), "rope_theta", 5e5), "rope_scaling", scaling);
  old["rope_scaling"]["rope_type"] = "llama3";
  Json newer = with(llama(), "rope_parameters", scaling);
  newer["rope_parameters"]["rope_type"] = "llama3";
  newer["rope_parameters"]["rope_theta"] = 5e5;
  for (const Json& json : {oldest, old, newer}) {
    const ModelOptions o = read(json);
    EXPECT_EQ(o.rope_scaling, RopeScaling::kLlama3);
    EXPECT_EQ(o.rope_theta, 5e5);
    EXPECT_EQ(o.rope_factor, 8);
    EXPECT_EQ(o.rope_original_seq, 8192);
  }
}

TEST(HfConfig, Qwen2WindowsThatNoLayerHas) {
  Json json = with(with(of_type("qwen2"), "use_sliding_window", true), "num_key_value_heads", 4);
  EXPECT_EQ(read(with(json, "max_window_layers", 2)).sliding_window, 0);
  EXPECT_EQ(read(json).sliding_window, 0);  // from layer 28 on
  EXPECT_EQ(refusal(with(json, "max_window_layers", 1)),
            "c.json: use_sliding_window: true: layers from max_window_layers on have a window, a "
            "qwen2 in Sluice has none");
}

struct Refused {
  Json json;
  const char* message;
};

TEST(HfConfig, WhatIsNotComputedTheSameIsRefused) {
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  const Json by_layer = {{"full_attention", Json::object()}};
  const Refused rows[] = {
      {with(llama(), "model_type", "mamba"),
       "c.json: model_type: \"mamba\": expected gpt2, llama, mistral or qwen2"},
      {with(gpt2(), "activation_function", "gelu"),
       "c.json: activation_function: \"gelu\": Sluice computes a gpt2 with the tanh form of GELU "
       "(gelu_new) only"},
      {with(gpt2(), "scale_attn_by_inverse_layer_idx", true),
       "c.json: scale_attn_by_inverse_layer_idx: true: attention in Sluice is not scaled by the "
       "layer"},
      {with(gpt2(), "is_causal", false),
       "c.json: is_causal: false: attention in Sluice is causal, a token sees no later one; train "
       "the model elsewhere, or write true"},
      {with(of_type("qwen2"), "is_causal", false),
       "c.json: is_causal: false: attention in Sluice is causal, a token sees no later one; train "
       "the model elsewhere, or write true"},
      {with(gpt2(), "n_head", 3), "c.json: n_head: 3: does not divide the hidden size of 16"},
      {with(llama(), "hidden_act", "gelu"),
       "c.json: hidden_act: \"gelu\": Sluice computes the feed-forward part as SwiGLU (silu) only"},
      {with(llama(), "mlp_bias", true),
       "c.json: mlp_bias: true: the feed-forward part in Sluice has no biases"},
      {with(of_type("mistral"), "attention_bias", true),
       "c.json: attention_bias: true: a mistral has no biases"},
      {with(llama(), "rope_scaling", yarn),
       "c.json: rope_scaling: {\"factor\":4.0,\"rope_type\":\"yarn\"}: rotary positions of type "
       "\"yarn\" are not built in; default and llama3 are"},
      {with(llama(), "rope_parameters", by_layer),
       "c.json: rope_parameters: {\"full_attention\":{}}: positions differ by layer, which "
       "Sluice does not compute"},
      {with(llama(), "partial_rotary_factor", 0.5),
       "c.json: partial_rotary_factor: 0.5: Sluice rotates the whole head"},
      {with(llama(), "head_dim", 5),
       "c.json: head_dim: 5: rotary positions need heads of even width"},
      {with(llama(), "num_key_value_heads", 3),
       "c.json: num_key_value_heads: 3: does not divide the 4 heads"},
      {with(llama(), "quantization_config", {{"bits", 4}}),
       "c.json: quantization_config: {\"bits\":4}: weights are read as fp32, bf16 or fp16 only"},
      {with(llama(), "vocab_size", -1),
       "c.json: vocab_size: -1: is no whole number from 1 to 2147483647"},
      {with(llama(), "hidden_size", "16"),
       "c.json: hidden_size: \"16\": is no whole number from 1 to 2147483647"},
      {with(llama(), "rms_norm_eps", 0), "c.json: rms_norm_eps: 0: is no number above 0"},
      {with(llama(), "initializer_range", -1),
       "c.json: initializer_range: -1: is no number from 0 on"},
      {with(with(with(llama(), "num_hidden_layers", 65536), "hidden_size", 16384),
            "intermediate_size", 2147483647),
       "c.json: num_hidden_layers: 65536: times the other sizes is more than any machine holds"},
      {with(gpt2(), "n_embd", 1 << 30),
       "c.json: n_embd: 1073741824: makes n_inner larger than any layer can be"},

      {with(llama(), "intermediate_size", nullptr), "c.json: intermediate_size: is missing"},
      {with(llama(), "tie_word_embeddings", 1),
       "c.json: tie_word_embeddings: 1: is neither true nor false"},
  };
  for (const Refused& row : rows) EXPECT_EQ(refusal(row.json), row.message);
}

TEST(HfConfig, TokensThatEndAText) {
  const std::string dir = ::testing::TempDir() + "hf-end-tokens-" + std::to_string(::getpid());
  fs::create_directories(dir);
  const auto with_files = [&](const std::string& generation, const std::string& config) {
    std::ofstream(dir + "/generation_config.json") << generation;
    std::ofstream(dir + "/config.json") << config;
    return read_hf_end_tokens(dir);
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(read_hf_end_tokens(dir), Ids());
  EXPECT_EQ(with_files(R"({"eos_token_id": [128001, 8, -1]})", R"({"eos_token_id": 2})"),
            (Ids{128001, 8}));
  EXPECT_EQ(with_files("{}", R"({"eos_token_id": 2})"), Ids{2});
  EXPECT_EQ(with_files(R"({"eos_token_id": null})", "{}"), Ids());
  for (const char* wrong : {"2.5", "\"2\"", "[[2]]", "2147483648", "-2", "true"}) {
    EXPECT_THROW((void)with_files("{}", std::string(R"({"eos_token_id": )") + wrong + "}"),
                 ConfigError)
        << wrong;
  }
  EXPECT_THROW((void)with_files("{", "{}"), IoError);
  fs::remove_all(dir);
}

TEST(HfConfig, BrokenFiles) {
  EXPECT_THAT(refusal(std::string("{")), HasSubstr("c.json is not valid JSON"));
  EXPECT_EQ(refusal(std::string("[]")), "c.json is not a JSON object");
  EXPECT_EQ(refusal(std::string(R"({"a": 1, "a": 2})")),
            "c.json: the key \"a\" stands twice in one object");
  EXPECT_EQ(refusal(std::string(R"({"a": )") + std::string(40, '[') + std::string(40, ']') + "}"),
            "c.json: nested deeper than 16 levels");
  EXPECT_EQ(refusal(std::string("{}\0{", 4)), "c.json is not valid JSON: it holds a NUL byte");
  EXPECT_EQ(refusal(std::string(std::size_t{5} << 20, ' ')), "c.json is larger than 4194304 bytes");
}

// What is written is read back as the same model, whatever it was carried from.
TEST(HfConfig, WrittenAndReadAgain) {
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2"}) {
    const ModelOptions o = golden(family);
    const std::string carried = R"({"eos_token_id": 2, "dtype": "float32", "layer_types": []})";
    for (const std::string& from : {std::string(), carried}) {
      const std::string text = write_hf_config(o, "bfloat16", from);
      const ModelOptions again = parse_hf_config("again", text);
      EXPECT_EQ(write_hf_config(again, "bfloat16", from), text) << family;
      EXPECT_EQ(again.rope_scaling, o.rope_scaling);
      EXPECT_EQ(again.seq, o.seq);
      EXPECT_EQ(again.sliding_window, o.sliding_window);
      EXPECT_EQ(again.tie_embeddings, o.tie_embeddings);
      EXPECT_EQ(Json::parse(text)["eos_token_id"].is_null(), from.empty());
    }
  }
}

TEST(HfConfig, ModelsThatNoFamilyHasAreNotWritten) {
  ModelOptions o = golden("llama");
  o.attention_bias = AttentionBias::kQkv;
  EXPECT_THROW((void)write_hf_config(o, "float32"), ConfigError);
  o.attention_bias = AttentionBias::kQkvo;
  EXPECT_TRUE(Json::parse(write_hf_config(o, "float32"))["attention_bias"]);
}

TEST(HfConfig, ACarriedConfigMayReachFurther) {
  ModelOptions o = golden("llama");
  o.seq = 8;
  const Json carried = {{"max_position_embeddings", 32}};
  EXPECT_EQ(Json::parse(write_hf_config(o, "float32", carried.dump()))["max_position_embeddings"],
            32);
  EXPECT_EQ(Json::parse(write_hf_config(o, "float32"))["max_position_embeddings"], 8);
}

std::vector<HfDisagreement> merged(ModelOptions& run, const ModelOptions& file,
                                   const std::vector<std::string>& given) {
  return merge_hf_model(run, file, [&](std::string_view key) {
    return std::find(given.begin(), given.end(), key) != given.end();
  });
}

TEST(HfMerge, KeysThatAreNotGivenComeFromTheFile) {
  ModelOptions run;
  run.dropout = 0.1;
  EXPECT_TRUE(merged(run, golden("mistral"), {"model.dropout"}).empty());
  EXPECT_EQ(run.type, ModelType::kMistral);
  EXPECT_EQ(run.hidden, 16);
  EXPECT_EQ(run.head_dim, 6);
  EXPECT_EQ(run.sliding_window, 4);
  EXPECT_EQ(run.vocab, 37);
  EXPECT_EQ(run.seq, 32);
  EXPECT_EQ(run.dropout, 0.1);
  EXPECT_FALSE(run.tie_embeddings);
}

TEST(HfMerge, GivenKeysMustAgree) {
  ModelOptions run;
  run.hidden = 32;
  run.layers = 2;
  run.vocab = 20;
  run.seq = 100;
  const auto found =
      merged(run, golden("gpt2"), {"model.hidden", "model.layers", "model.vocab", "model.seq"});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].key, "model.hidden");
  EXPECT_EQ(found[0].run, "32");
  EXPECT_EQ(found[0].file, "16");
  EXPECT_EQ(found[1].key, "model.vocab");
  EXPECT_EQ(found[2].key, "model.seq");
}

TEST(HfMerge, VocabularyMayGrowAndSamplesMayBeShorter) {
  ModelOptions run;
  run.vocab = 64;
  run.seq = 8;
  EXPECT_TRUE(merged(run, golden("gpt2"), {"model.vocab", "model.seq"}).empty());
  EXPECT_EQ(run.vocab, 64);
  EXPECT_EQ(run.seq, 8);
}

}  // namespace
}  // namespace sluice
