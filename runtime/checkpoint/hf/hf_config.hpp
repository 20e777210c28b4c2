// config.json of a Hugging Face folder <-> what model to build. Families gpt2, llama, mistral,
// qwen2, with the keys of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters); a key
// that is absent has the default of that family's class there. What we would not compute the same
// is refused with key, value and reason. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model_options.hpp"

namespace sluice {

// Every size filled in, nothing 0 for "default"; vocab is vocab_size, seq is the largest position,
// init_std is initializer_range. Dropout is the run's, not the model's: 0. Throws IoError where the
// file is no config.json, ConfigError with a line for each thing that is refused. `path` is for
// messages.
[[nodiscard]] ModelOptions parse_hf_config(const std::string& path, std::string_view text);
[[nodiscard]] ModelOptions read_hf_config(const std::string& path);

// Ids that generation begins and ends with.
struct HfTokens {
  std::vector<std::int32_t> eos{};
  std::optional<std::int32_t> bos{};
  bool replace =
      false;  // those of the config.json that the model came from are another tokenizer's
};

// The config.json that makes transformers build this model. `carried` is the text of the one it
// came from, or empty: its keys that say nothing of the model's arithmetic (token ids, ...) are
// kept (but for eos and bos where tokens.replace says so), and it may reach further than `seq`.
// Without a token for them eos and bos are null: an absent key is a token of the family's class.
// `dtype_name`: "float32", "bfloat16", "float16". REQUIRES: options.vocab > 0. Throws ConfigError
// where the family has no key for what the model does.
[[nodiscard]] std::string write_hf_config(const ModelOptions& options, std::string_view dtype_name,
                                          const std::string& carried = "",
                                          const HfTokens& tokens = {});

// The tokens that end a text, of a folder's generation_config.json, or of its config.json where
// that has none: eos_token_id, a number or a list. Empty where neither file is there or says.
// Throws IoError where a file is damaged, ConfigError where the key is something else.
[[nodiscard]] std::vector<std::int32_t> read_hf_end_tokens(const std::string& dir);

[[nodiscard]] std::string_view hf_type_name(
    ModelType type);  // "gpt2", ...; model.type says the same

// A key of `model:` that the run gives and that config.json contradicts.
struct HfDisagreement {
  std::string key;   // "model.hidden"
  std::string run;   // "512"
  std::string file;  // "768"
};
// Fills the keys of `run` that it does not give from the file; returns those that disagree.
// `given("model.hidden")`: whether the run's configuration has the key. Of the run alone are
// dropout, init_std and explicit_units; its vocab may be larger (rows are added); its seq defaults
// to all positions of a gpt2, else to the smaller of its default and the model's positions, and may
// exceed those of a rotary model.
[[nodiscard]] std::vector<HfDisagreement> merge_hf_model(
    ModelOptions& run, const ModelOptions& file,
    const std::function<bool(std::string_view)>& given);

}  // namespace sluice
