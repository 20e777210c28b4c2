// The section `model` of the schema.
#include "configs/schema_table.hpp"

namespace sluice::schema_table {

Section model_section() {
  using O = ModelOptions;
  return SectionMaker("model", &RunConfig::model, "The model to train.")
      .key("type", &O::type, one_of({"gpt2", "llama", "mistral", "qwen2"}), "Architecture.")
      .key("layers", &O::layers, count(1), "Transformer blocks.")
      .key("hidden", &O::hidden, count(1), "Width of the residual stream.")
      .key("heads", &O::heads, count(1), "Attention heads.")
      .key("kv_heads", &O::kv_heads, count(0).or_word("auto"),
           "Key and value heads; auto: as many as heads.")
      .when("model.type is not gpt2")
      .example("8")
      .key("head_dim", &O::head_dim, count(0).or_word("auto"),
           "Width of an attention head; auto: hidden / heads. Not for gpt2.")
      .when("model.type is not gpt2")
      .example("128")
      .key("ffn", &O::ffn, count(0).or_word("auto"),
           "Width inside the feed-forward part; auto: 4 x hidden of a gpt2, else 8/3 x hidden "
           "rounded "
           "up to a multiple of 64.")
      .example("11008")
      .key("vocab", &O::vocab, count(0).or_word("auto"),
           "Size of the vocabulary; auto: what the tokenizer has.")
      .example("50304")
      .key("seq", &O::seq, count(1), "Tokens of one sample.")
      .key("tie_embeddings", &O::tie_embeddings, boolean(),
           "Whether the output head is the token embedding.")
      .key("explicit_units", &O::explicit_units, boolean(),
           "Blocks with a written-out backward; false: libtorch's autograd.")
      .key("dropout", &O::dropout, number(kBelowOne), "Embedding, attention and residual dropout.")
      .example("0.1")
      .key("norm_eps", &O::norm_eps, number(kAboveZero).or_word("auto"),
           "Added to the variance in a norm; auto: 1e-5, or 1e-6 of a qwen2.")
      .example("1e-6")
      .key("init_std", &O::init_std, number(kAtLeastZero), "Standard deviation of initial weights.")
      .key("attention_bias", &O::attention_bias, one_of({"auto", "none", "qkv", "qkvo"}),
           "Which projections of attention have biases; auto: qkv of a qwen2, all of a gpt2, else "
           "none.")
      .when("model.type is not gpt2")
      .key("sliding_window", &O::sliding_window, count(0).or_word("none"),
           "mistral: keys that a query sees, itself included; none: all before it.")
      .when("model.type is mistral")
      .example("4096")
      .key("rope_theta", &O::rope_theta, number(kAboveZero),
           "Base of the rotary frequencies. Not for gpt2, as all rope_ keys.")
      .when("model.type is not gpt2")
      .example("5e5")
      .key("rope_scaling", &O::rope_scaling, one_of({"none", "llama3"}),
           "Scaling of rotary frequencies for long samples.")
      .when("model.type is not gpt2")
      .key("rope_factor", &O::rope_factor, number({.min = 1}),
           "llama3: what slow frequencies are divided by.")
      .when("model.rope_scaling is llama3")
      .key("rope_low_freq_factor", &O::rope_low_freq_factor, number(kAboveZero),
           "llama3: turns over rope_original_seq below which a frequency is slow.")
      .when("model.rope_scaling is llama3")
      .key("rope_high_freq_factor", &O::rope_high_freq_factor, number(kAboveZero),
           "llama3: turns over rope_original_seq above which a frequency is kept.")
      .when("model.rope_scaling is llama3")
      .key("rope_original_seq", &O::rope_original_seq, count(1),
           "llama3: tokens of a sample before the stretching.")
      .when("model.rope_scaling is llama3")
      .key("from", &O::from, path(),
           "A Hugging Face folder to start from: its config.json fills in the model's other keys; "
           "empty: fresh weights.")
      .example("hf/gpt2");
}

}  // namespace sluice::schema_table
