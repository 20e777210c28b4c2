// Converts the arguments of a Megatron run to ModelOptions.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "runtime/checkpoint/import/import_source.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

class Arguments {
 public:
  Arguments(const PickleTree& tree, const PickleValue& args, const std::string& file)
      : tree_(tree), args_(args), file_(file) {}

  [[nodiscard]] std::int64_t size(std::string_view key, std::int64_t otherwise = 0) const {
    const PickleValue* const value = find(key);
    if (value == nullptr || value->kind == Kind::kNone) return otherwise;
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    if (value->kind != Kind::kInt || value->number < 0 || value->number > kMost) {
      throw CheckpointError("args." + std::string(key) + " is " + kind_text(*value) +
                                " or out of range; a size is expected",
                            file_, "", value->at);
    }
    return value->number;
  }
  [[nodiscard]] double real(std::string_view key, double otherwise) const {
    const PickleValue* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->kind == Kind::kFloat) return value->real;
    return value->kind == Kind::kInt ? static_cast<double>(value->number) : otherwise;
  }
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const {
    const PickleValue* const value = find(key);
    return value == nullptr || value->kind != Kind::kBool ? otherwise : value->number != 0;
  }
  [[nodiscard]] std::string text(std::string_view key, const std::string& otherwise) const {
    const PickleValue* const value = find(key);
    return value == nullptr || value->kind != Kind::kText ? otherwise : value->text;
  }
  // True if the argument exists and is not None.
  [[nodiscard]] bool given(std::string_view key) const {
    const PickleValue* const value = find(key);
    return value != nullptr && value->kind != Kind::kNone;
  }
  void refuse_if(bool wrong, const std::string& what) {
    if (wrong) refused_ += (refused_.empty() ? "" : "\n") + file_ + ": args." + what;
  }
  void finish() const {
    if (!refused_.empty()) throw ConfigError(refused_);
  }

 private:
  [[nodiscard]] const PickleValue* find(std::string_view key) const {
    return tree_.find(args_, key);
  }
  const PickleTree& tree_;
  const PickleValue& args_;
  const std::string& file_;
  std::string refused_;
};

// Refuses settings of all families under which the same tensors would give other logits.
void refuse_what_is_not_built(Arguments& args) {
  args.refuse_if(args.flag("apply_layernorm_1p", false),
                 "apply_layernorm_1p: true: the norms' weights are stored less 1");
  args.refuse_if(args.flag("apply_residual_connection_post_layernorm", false),
                 "apply_residual_connection_post_layernorm: true: residuals begin before the norm "
                 "here");
  args.refuse_if(args.given("window_size"),
                 "window_size: windows are not taken over; give a --config with "
                 "model.sliding_window");
  args.refuse_if(args.given("rotary_seq_len_interpolation_factor") &&
                     args.real("rotary_seq_len_interpolation_factor", 1) != 1,
                 "rotary_seq_len_interpolation_factor: positions are not interpolated in Sluice");
  args.refuse_if(args.text("softmax_type", "vanilla") != "vanilla",
                 "softmax_type: attention in Sluice is the plain softmax");
  args.refuse_if(args.size("num_experts") > 0, "num_experts: experts are not built in Sluice");
}

void read_gpt2(Arguments& args) {
  args.refuse_if(
      args.text("normalization", "LayerNorm") != "LayerNorm" || args.flag("swiglu", false),
      "normalization and swiglu: learned positions come with LayerNorm and GELU in Sluice");
  args.refuse_if(!args.flag("add_bias_linear", true),
                 "add_bias_linear: false: a gpt2 has biases in Sluice");
  args.refuse_if(
      !args.flag("bias_gelu_fusion", true),
      "bias_gelu_fusion: false: that is the exact GELU; a gpt2's is the tanh one in Sluice");
  args.refuse_if(args.flag("squared_relu", false), "squared_relu: true: not GELU");
}

void read_llama(Arguments& args, ModelOptions& model) {
  model.type = args.flag("add_qkv_bias", false) ? ModelType::kQwen2 : ModelType::kLlama;
  args.refuse_if(
      args.text("normalization", "LayerNorm") != "RMSNorm" || !args.flag("swiglu", false),
      "normalization and swiglu: rotary positions come with RMSNorm and SwiGLU in Sluice");
  args.refuse_if(args.flag("add_bias_linear", true),
                 "add_bias_linear: true: a llama has no such biases in Sluice");
  args.refuse_if(args.flag("rotary_interleaved", false),
                 "rotary_interleaved: true: halves are rotated in Sluice, not pairs");
  args.refuse_if(args.real("rotary_percent", 1) != 1, "rotary_percent: not 1");
  model.rope_theta = args.real("rotary_base", 10000);
  if (args.flag("use_rope_scaling", false)) {
    model.rope_scaling = RopeScaling::kLlama3;
    model.rope_factor = args.real("rope_scaling_factor", 8);
  }
}

}  // namespace

ModelOptions megatron_model(const PickleTree& tree, const PickleValue& namespace_,
                            const std::string& file) {
  Arguments args(tree, namespace_, file);
  ModelOptions model;
  model.layers = args.size("num_layers", args.size("encoder_num_layers"));
  model.hidden = args.size("hidden_size");
  model.heads = args.size("num_attention_heads");
  if (model.layers == 0 || model.hidden == 0 || model.heads == 0) {
    throw CheckpointError("args lacks num_layers, hidden_size or num_attention_heads", file, "",
                          namespace_.at);
  }
  model.kv_heads = args.flag("group_query_attention", false)
                       ? args.size("num_query_groups", model.heads)
                       : args.size("num_key_value_heads", model.heads);
  model.head_dim = args.size("kv_channels", model.hidden / model.heads);
  model.ffn = args.size("ffn_hidden_size", 4 * model.hidden);
  model.vocab = args.size("vocab_size");
  model.seq = args.size("max_position_embeddings", args.size("seq_length", 1024));
  model.tie_embeddings = !args.flag("untie_embeddings_and_output_weights", false);
  model.norm_eps = args.real("norm_epsilon", args.real("layernorm_epsilon", 1e-5));
  model.init_std = args.real("init_method_std", 0.02);
  const std::string positions = args.text("position_embedding_type", "learned_absolute");
  if (positions == "learned_absolute" && !args.flag("use_rotary_position_embeddings", false)) {
    read_gpt2(args);
  } else {
    args.refuse_if(
        positions != "rope" && positions != "rotary" && positions != "learned_absolute",
        "position_embedding_type: " + positions + ": learned_absolute and rope are built");
    read_llama(args, model);
  }
  refuse_what_is_not_built(args);
  args.finish();
  return model;
}

}  // namespace sluice
