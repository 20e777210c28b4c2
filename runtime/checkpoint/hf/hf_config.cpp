#include "runtime/checkpoint/hf/hf_config.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/hf/hf_json.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostDim = 2147483647;  // the limit of the configuration as well
constexpr std::int64_t kMostLayers = 65536;

// The keys of one object of the file. Collects all mistakes, so that one message names them all.
class Keys {
 public:
  Keys(const std::string& path, std::string prefix, const Json& object,
       std::vector<std::string>& problems)
      : path_(path), prefix_(std::move(prefix)), object_(object), problems_(problems) {}

  // nullptr if the key is missing or null.
  [[nodiscard]] const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] bool has(const char* key) const { return object_.contains(key); }
  [[nodiscard]] Keys inside(const char* key) const {
    return {path_, prefix_ + key + ".", *find(key), problems_};
  }

  void refuse(const char* key, const std::string& reason) const {
    const Json* value = find(key);
    problems_.push_back(path_ + ": " + prefix_ + key + ": " +
                        (value != nullptr ? shown(*value) + ": " : "") + reason);
  }

  // A whole number from 1 to `most`. A missing key gives `fallback`; without a fallback it is a
  // mistake.
  [[nodiscard]] std::int64_t count(const char* key, std::optional<std::int64_t> fallback = {},
                                   std::int64_t most = kMostDim) const {
    const Json* value = find(key);
    if (value == nullptr) {
      if (!fallback) refuse(key, "is missing");
      return fallback.value_or(1);
    }
    const bool whole = value->is_number_integer() &&
                       (!value->is_number_unsigned() || value->get<std::uint64_t>() <= kMostDim);
    if (whole && value->get<std::int64_t>() >= 1 && value->get<std::int64_t>() <= most) {
      return value->get<std::int64_t>();
    }
    refuse(key, format_text("is no whole number from 1 to {}", most));
    return fallback.value_or(1);
  }

  // A number above 0; with may_be_zero, a number of at least 0.
  [[nodiscard]] double number(const char* key, std::optional<double> fallback = {},
                              bool may_be_zero = false) const {
    const Json* value = find(key);
    if (value == nullptr) {
      if (!fallback) refuse(key, "is missing");
      return fallback.value_or(1);
    }
    const double held = value->is_number() ? value->get<double>() : -1;
    if (std::isfinite(held) && (held > 0 || (may_be_zero && held == 0))) return held;
    refuse(key, may_be_zero ? "is no number from 0 on" : "is no number above 0");
    return fallback.value_or(1);
  }

  [[nodiscard]] bool flag(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    refuse(key, "is neither true nor false");
    return fallback;
  }

  [[nodiscard]] std::string word(const char* key, const std::string& fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_string()) return value->get<std::string>();
    refuse(key, "is no text");
    return fallback;
  }

  // Refuses every value but `ours`, the only one that Sluice computes and the default of the key.
  void only(const char* key, bool ours, const char* reason) const {
    if (flag(key, ours) != ours) refuse(key, reason);
  }

 private:
  const std::string& path_;
  std::string prefix_;
  const Json& object_;
  std::vector<std::string>& problems_;
};

void read_gpt2(const Keys& keys, ModelOptions& o) {
  o.layers = keys.count("n_layer", {}, kMostLayers);
  o.hidden = keys.count("n_embd");
  o.heads = keys.count("n_head");
  o.ffn = keys.count("n_inner", 4 * o.hidden);
  if (o.ffn > kMostDim) keys.refuse("n_embd", "makes n_inner larger than any layer can be");
  o.seq = keys.count("n_positions", keys.count("n_ctx", 1024));
  o.norm_eps = keys.number("layer_norm_epsilon", 1e-5);
  o.tie_embeddings = keys.flag("tie_word_embeddings", true);
  o.kv_heads = o.heads;
  const std::string activation = keys.word("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    keys.refuse("activation_function",
                "Sluice computes a gpt2 with the tanh form of GELU (gelu_new) only");
  }
  keys.only("scale_attn_weights", true,
            "attention in Sluice divides by the root of the head's width");
  keys.only("scale_attn_by_inverse_layer_idx", false,
            "attention in Sluice is not scaled by the layer");
  keys.only("add_cross_attention", false, "a gpt2 in Sluice has no cross-attention");
}

void read_llama3_scaling(const Keys& scaling, ModelOptions& o) {
  o.rope_scaling = RopeScaling::kLlama3;
  o.rope_factor = scaling.number("factor");
  o.rope_low_freq_factor = scaling.number("low_freq_factor");
  o.rope_high_freq_factor = scaling.number("high_freq_factor");
  o.rope_original_seq = scaling.count("original_max_position_embeddings");
  if (scaling.find("factor") != nullptr && o.rope_factor < 1) {
    scaling.refuse("factor", "is below 1");
  }
  if (o.rope_low_freq_factor >= o.rope_high_freq_factor) {
    scaling.refuse("high_freq_factor", "is not above low_freq_factor");
  }
}

// `key`: rope_scaling (transformers 4) or rope_parameters (5).
void read_rope_object(const Keys& keys, const char* key, ModelOptions& o) {
  const Json* object = keys.find(key);
  if (object == nullptr) return;
  if (!object->is_object()) return keys.refuse(key, "is no object");
  const Keys scaling = keys.inside(key);
  for (const char* layers : {"full_attention", "sliding_attention"}) {
    if (scaling.has(layers))
      return keys.refuse(key, "positions differ by layer, which Sluice does not compute");
  }
  const std::string type = scaling.word("rope_type", scaling.word("type", "default"));
  if (type == "llama3") {
    read_llama3_scaling(scaling, o);
  } else if (type != "default") {
    keys.refuse(key, "rotary positions of type " + shown(Json(type)) +
                         " are not built in; default and llama3 are");
  }
  if (scaling.number("partial_rotary_factor", 1) != 1) {
    scaling.refuse("partial_rotary_factor", "Sluice rotates the whole head");
  }
  if (scaling.find("rope_theta") == nullptr) return;
  const double theta = scaling.number("rope_theta");
  if (keys.find("rope_theta") != nullptr && keys.number("rope_theta") != theta) {
    scaling.refuse("rope_theta", "and rope_theta beside it is " + shown(*keys.find("rope_theta")));
  }
  o.rope_theta = theta;
}

void read_rope(const Keys& keys, ModelOptions& o) {
  o.rope_theta = keys.number("rope_theta", 10000);
  if (keys.number("partial_rotary_factor", 1) != 1) {
    keys.refuse("partial_rotary_factor", "Sluice rotates the whole head");
  }
  if (keys.find("rope_scaling") != nullptr && keys.find("rope_parameters") != nullptr &&
      *keys.find("rope_scaling") != *keys.find("rope_parameters")) {
    return keys.refuse("rope_parameters", "differs from rope_scaling beside it");
  }
  read_rope_object(keys, "rope_scaling", o);
  if (keys.find("rope_scaling") == nullptr) read_rope_object(keys, "rope_parameters", o);
}

// Refuses a list of layer kinds that contains another kind than `kind`.
void check_layer_types(const Keys& keys, const ModelOptions& o, const std::string& kind) {
  const Json* types = keys.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<std::int64_t>(types->size()) != o.layers) {
    return keys.refuse("layer_types", "is no list of one kind for each layer");
  }
  for (const Json& type : *types) {
    if (type != kind)
      return keys.refuse("layer_types", "Sluice computes all layers as \"" + kind + "\"");
  }
}

void read_window(const Keys& keys, ModelOptions& o) {
  if (o.type == ModelType::kMistral) {
    // null means no window; a missing key means the default of the class.
    if (!keys.has("sliding_window")) o.sliding_window = 4096;
    if (keys.find("sliding_window") != nullptr) o.sliding_window = keys.count("sliding_window");
    check_layer_types(keys, o, o.sliding_window > 0 ? "sliding_attention" : "full_attention");
    return;
  }
  if (o.type != ModelType::kQwen2) return;
  check_layer_types(keys, o, "full_attention");
  const Json* first = keys.find("max_window_layers");
  const bool none_slides = keys.find("layer_types") != nullptr ||
                           (first != nullptr && first->is_number_integer() && *first >= o.layers) ||
                           (first == nullptr && o.layers <= 28);
  if (keys.flag("use_sliding_window", false) && !none_slides) {
    keys.refuse("use_sliding_window",
                "layers from max_window_layers on have a window, a qwen2 in Sluice has none");
  }
}

void read_biases(const Keys& keys, ModelOptions& o) {
  switch (o.type) {
    case ModelType::kLlama:
      o.attention_bias =
          keys.flag("attention_bias", false) ? AttentionBias::kQkvo : AttentionBias::kNone;
      break;
    case ModelType::kQwen2:
      o.attention_bias = AttentionBias::kQkv;
      keys.only("attention_bias", true, "a qwen2 has biases on q, k and v");
      break;
    default:
      o.attention_bias = AttentionBias::kNone;
      keys.only("attention_bias", false, "a mistral has no biases");
  }
  keys.only("mlp_bias", false, "the feed-forward part in Sluice has no biases");
}

void read_llama_family(const Keys& keys, ModelOptions& o) {
  o.layers = keys.count("num_hidden_layers", {}, kMostLayers);
  o.hidden = keys.count("hidden_size");
  o.heads = keys.count("num_attention_heads");
  // null means as many as heads; a missing key means the default of the class.
  const bool absent = !keys.has("num_key_value_heads");
  o.kv_heads = absent && o.type == ModelType::kMistral ? 8
               : absent && o.type == ModelType::kQwen2 ? 32
                                                       : o.heads;
  o.kv_heads = keys.count("num_key_value_heads", o.kv_heads);
  o.ffn = keys.count("intermediate_size");
  o.seq = keys.count("max_position_embeddings");
  o.norm_eps = keys.number("rms_norm_eps", 1e-6);
  o.tie_embeddings = keys.flag("tie_word_embeddings", false);
  const std::string activation = keys.word("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    keys.refuse("hidden_act", "Sluice computes the feed-forward part as SwiGLU (silu) only");
  }
  read_rope(keys, o);
  read_window(keys, o);
  read_biases(keys, o);
}

void read_head_width(const Keys& keys, ModelOptions& o) {
  const char* heads = o.type == ModelType::kGpt2 ? "n_head" : "num_attention_heads";
  const bool given = o.type != ModelType::kGpt2 && keys.find("head_dim") != nullptr;
  if (!given && o.hidden % o.heads != 0) {
    keys.refuse(heads, format_text("does not divide the hidden size of {}", o.hidden));
  }
  o.head_dim = given ? keys.count("head_dim") : std::max<std::int64_t>(1, o.hidden / o.heads);
  if (o.type == ModelType::kGpt2) return;
  if (o.head_dim % 2 != 0) {
    keys.refuse(given ? "head_dim" : heads, "rotary positions need heads of even width");
  }
  if (o.heads % o.kv_heads != 0) {
    keys.refuse("num_key_value_heads", format_text("does not divide the {} heads", o.heads));
  }
}

// Checks that a few times each of these products, in bytes, fits 63 bits. Later computations with
// these sizes need no overflow check.
void check_products(const Keys& keys, const ModelOptions& o) {
  const bool gpt2 = o.type == ModelType::kGpt2;
  const char* layers = gpt2 ? "n_layer" : "num_hidden_layers";
  const struct {
    const char* key;
    std::array<std::int64_t, 4> factors;
  } products[] = {{layers, {o.layers, o.hidden, o.heads, o.head_dim}},
                  {layers, {o.layers, o.hidden, o.ffn, 1}},
                  {"vocab_size", {o.vocab, o.hidden, 1, 1}},
                  {gpt2 ? "n_positions" : "max_position_embeddings", {o.seq, o.hidden, 1, 1}}};
  for (const auto& product : products) {
    std::int64_t bytes = 256;  // master weights, moments and gradients of up to 16 matrices
    bool fits = true;
    for (const std::int64_t factor : product.factors) {
      fits = fits && !__builtin_mul_overflow(bytes, factor, &bytes);
    }
    if (!fits) keys.refuse(product.key, "times the other sizes is more than any machine holds");
  }
}

std::optional<ModelType> type_of(const Json& config) {
  const Json type = config.value("model_type", Json());
  for (const ModelType known :
       {ModelType::kGpt2, ModelType::kLlama, ModelType::kMistral, ModelType::kQwen2}) {
    if (type == hf_type_name(known)) return known;
  }
  return {};
}

}  // namespace

std::string_view hf_type_name(ModelType type) {
  switch (type) {
    case ModelType::kGpt2:
      return "gpt2";
    case ModelType::kLlama:
      return "llama";
    case ModelType::kMistral:
      return "mistral";
    case ModelType::kQwen2:
      break;
  }
  return "qwen2";
}

ModelOptions parse_hf_config(const std::string& path, std::string_view text) {
  const Json config = parse_hf_json(path, text);
  std::vector<std::string> problems;
  const Keys keys(path, "", config, problems);
  ModelOptions options;
  if (const auto type = type_of(config)) {
    options.type = *type;
    options.vocab = keys.count("vocab_size");
    options.init_std = keys.number("initializer_range", 0.02, true);
    if (options.type == ModelType::kGpt2) {
      options.attention_bias = AttentionBias::kQkvo;
      read_gpt2(keys, options);
    } else {
      read_llama_family(keys, options);
    }
    keys.only("is_causal", true,
              "attention in Sluice is causal, a token sees no later one; train the model "
              "elsewhere, or write true");
    if (problems.empty()) read_head_width(keys, options);
    if (problems.empty()) check_products(keys, options);
  } else {
    keys.refuse("model_type", "expected gpt2, llama, mistral or qwen2");
  }
  if (keys.find("quantization_config") != nullptr) {
    keys.refuse("quantization_config", "weights are read as fp32, bf16 or fp16 only");
  }
  std::string lines;
  for (const std::string& problem : problems) lines += (lines.empty() ? "" : "\n") + problem;
  if (!lines.empty()) throw ConfigError(lines);
  return options;
}

std::optional<DType> read_hf_dtype(const std::string& path) {
  const Json object = read_hf_json(path);
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) continue;
    const auto& name = found->get_ref<const std::string&>();
    if (name == "bfloat16") return DType::kBFloat16;
    if (name == "float16") return DType::kFloat16;
    if (name == "float32") return DType::kFloat32;
  }
  return std::nullopt;
}

}  // namespace sluice
