// Writes config.json for a run's model, and merges a config.json into a run's keys.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_json.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

[[noreturn]] void no_key_for(const ModelOptions& o, const std::string& what) {
  throw ConfigError("a Hugging Face " + std::string(hf_type_name(o.type)) + " has no " + what +
                    ": such a model cannot be exported");
}

void write_gpt2(Json& json, const ModelOptions& o) {
  json["architectures"] = {"GPT2LMHeadModel"};
  json["activation_function"] = "gelu_new";
  json["n_layer"] = o.layers;
  json["n_embd"] = o.hidden;
  json["n_head"] = o.heads;
  json["n_inner"] = o.ffn;
  json["n_positions"] = o.seq;
  json["n_ctx"] = o.seq;
  json["layer_norm_epsilon"] = o.norm_eps;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["add_cross_attention"] = false;
}

void write_rope(Json& json, const ModelOptions& o) {
  json.erase("rope_parameters");
  json["rope_theta"] = o.rope_theta;
  json["rope_scaling"] = nullptr;
  if (o.rope_scaling != RopeScaling::kLlama3) return;
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", o.rope_factor},
                          {"low_freq_factor", o.rope_low_freq_factor},
                          {"high_freq_factor", o.rope_high_freq_factor},
                          {"original_max_position_embeddings", o.rope_original_seq}};
}

void write_tokens(Json& json, const HfTokens& tokens, bool replace) {
  const auto at = json.find("eos_token_id");
  const bool has_eos = at != json.end() && !at->is_null();
  if (replace || (!has_eos && !tokens.eos.empty())) {
    Json eos = tokens.eos.size() == 1 ? Json(tokens.eos.front()) : Json(tokens.eos);
    json["eos_token_id"] = tokens.eos.empty() ? Json() : std::move(eos);
  }
  if (!replace) return;
  json["bos_token_id"] = tokens.bos ? Json(*tokens.bos) : Json();
  json.erase("pad_token_id");
}

AttentionBias family_bias(ModelType type, bool llama_has_them) {
  if (type == ModelType::kQwen2) return AttentionBias::kQkv;
  return type == ModelType::kLlama && llama_has_them ? AttentionBias::kQkvo : AttentionBias::kNone;
}

void write_llama_family(Json& json, const ModelOptions& o) {
  const bool qwen2 = o.type == ModelType::kQwen2;
  const bool mistral = o.type == ModelType::kMistral;
  const bool biased = o.attention_bias == AttentionBias::kQkvo;
  if (o.attention_bias != family_bias(o.type, biased)) {
    no_key_for(o, "such biases (model.attention_bias)");
  }
  if (o.sliding_window > 0 && !mistral) no_key_for(o, "model.sliding_window");
  json["architectures"] = {qwen2     ? "Qwen2ForCausalLM"
                           : mistral ? "MistralForCausalLM"
                                     : "LlamaForCausalLM"};
  json["num_hidden_layers"] = o.layers;
  json["hidden_size"] = o.hidden;
  json["num_attention_heads"] = o.heads;
  json["num_key_value_heads"] = o.kv_heads;
  json["head_dim"] = o.head_dim;
  json["intermediate_size"] = o.ffn;
  const auto carried = json.find("max_position_embeddings");
  const bool reaches_further =
      carried != json.end() && carried->is_number_integer() && carried->get<std::int64_t>() > o.seq;
  if (!reaches_further) json["max_position_embeddings"] = o.seq;
  json["rms_norm_eps"] = o.norm_eps;
  json["hidden_act"] = "silu";
  if (o.type == ModelType::kLlama) {
    json["attention_bias"] = biased;
    json["mlp_bias"] = false;
  }
  if (mistral) json["sliding_window"] = o.sliding_window > 0 ? Json(o.sliding_window) : Json();
  if (qwen2) json["use_sliding_window"] = false;
  json.erase("layer_types");
  write_rope(json, o);
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return Json(value).dump(); }
std::string text_of(ModelType value) { return std::string(hf_type_name(value)); }
std::string text_of(RopeScaling value) { return value == RopeScaling::kLlama3 ? "llama3" : "none"; }
std::string text_of(AttentionBias value) {
  constexpr const char* kNames[] = {"auto", "none", "qkv", "qkvo"};
  return nth(kNames, value);
}

class Merge {
 public:
  Merge(ModelOptions& run, const ModelOptions& file,
        const std::function<bool(std::string_view)>& given)
      : run_(run), file_(file), given_(given) {}

  // `automatic`: the value of a key that was given as auto.
  template <class T>
  void agree(const char* key, T ModelOptions::*field, T automatic) {
    if (run_.*field == automatic) {
      run_.*field = file_.*field;
      return;
    }
    agree(key, field);
  }
  template <class T>
  void agree(const char* key, T ModelOptions::*field) {
    if (!given_(key)) {
      run_.*field = file_.*field;
    } else if (run_.*field != file_.*field) {
      disagree(key, field);
    }
  }
  template <class T>
  void disagree(const char* key, T ModelOptions::*field) {
    found_.push_back({key, text_of(run_.*field), text_of(file_.*field)});
  }
  [[nodiscard]] std::vector<HfDisagreement> found() { return std::move(found_); }

 private:
  ModelOptions& run_;
  const ModelOptions& file_;
  const std::function<bool(std::string_view)>& given_;
  std::vector<HfDisagreement> found_;
};

}  // namespace

ModelOptions read_hf_config(const std::string& path) {
  return parse_hf_config(path, read_text(local_file_system(), path, HfJsonLimits().bytes));
}

std::string write_hf_config(const ModelOptions& given, std::string_view dtype_name,
                            const std::string& carried, const HfTokens& tokens) {
  const ModelOptions o = with_defaults(given);
  check(o.vocab > 0, "the vocabulary is known before a model is exported");
  Json json = Json::object();
  if (!carried.empty()) json = parse_hf_json("config.json", carried);
  json.erase("dtype");
  json.erase("_name_or_path");
  json["model_type"] = hf_type_name(o.type);
  json["vocab_size"] = o.vocab;
  json["tie_word_embeddings"] = o.tie_embeddings;
  json["initializer_range"] = o.init_std;
  json["torch_dtype"] = dtype_name;
  write_tokens(json, tokens, carried.empty() || tokens.replace);
  if (o.type == ModelType::kGpt2) {
    write_gpt2(json, o);
  } else {
    write_llama_family(json, o);
  }
  return json.dump(2) + "\n";
}

std::vector<HfDisagreement> merge_hf_model(ModelOptions& run, const ModelOptions& file,
                                           const std::function<bool(std::string_view)>& given) {
  using O = ModelOptions;
  Merge merge(run, file, given);
  merge.agree("model.type", &O::type);
  merge.agree("model.layers", &O::layers);
  merge.agree("model.hidden", &O::hidden);
  merge.agree("model.heads", &O::heads);
  merge.agree("model.kv_heads", &O::kv_heads, std::int64_t{0});
  merge.agree("model.head_dim", &O::head_dim, std::int64_t{0});
  merge.agree("model.ffn", &O::ffn, std::int64_t{0});
  merge.agree("model.tie_embeddings", &O::tie_embeddings);
  merge.agree("model.norm_eps", &O::norm_eps, 0.0);
  merge.agree("model.attention_bias", &O::attention_bias, AttentionBias::kAuto);
  merge.agree("model.sliding_window", &O::sliding_window);
  merge.agree("model.rope_theta", &O::rope_theta);
  merge.agree("model.rope_scaling", &O::rope_scaling);
  if (file.rope_scaling == RopeScaling::kLlama3) {
    merge.agree("model.rope_factor", &O::rope_factor);
    merge.agree("model.rope_low_freq_factor", &O::rope_low_freq_factor);
    merge.agree("model.rope_high_freq_factor", &O::rope_high_freq_factor);
    merge.agree("model.rope_original_seq", &O::rope_original_seq);
  }
  if (run.vocab == 0) run.vocab = file.vocab;
  if (run.vocab < file.vocab) merge.disagree("model.vocab", &O::vocab);
  const bool learned = file.type == ModelType::kGpt2;
  if (!given("model.seq")) run.seq = learned ? file.seq : std::min(O{}.seq, file.seq);
  if (learned && run.seq > file.seq) merge.disagree("model.seq", &O::seq);
  if (!given("model.init_std")) run.init_std = file.init_std;
  return merge.found();
}

}  // namespace sluice
