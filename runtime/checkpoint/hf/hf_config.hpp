// Conversion between config.json of a Hugging Face folder and ModelOptions.
//
// Supports the families gpt2, llama, mistral and qwen2, with the keys of transformers 4
// (rope_theta, rope_scaling) and 5 (rope_parameters). A missing key has the default of the family's
// class in transformers. A setting that Sluice would compute differently is refused with key, value
// and reason. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

// Returns options with every size set; none is 0 for "default". vocab is vocab_size, seq is the
// largest position, init_std is initializer_range. Dropout is 0, because dropout belongs to the
// run. Throws IoError if the text is no config.json, and ConfigError with one line per refused
// setting. `path` is for messages.
[[nodiscard]] ModelOptions parse_hf_config(const std::string& path, std::string_view text);
[[nodiscard]] ModelOptions read_hf_config(const std::string& path);

// The dtype of the weights by `dtype` or `torch_dtype` of a config.json; nullopt if the file names
// none that Sluice has. Throws IoError for a damaged file.
[[nodiscard]] std::optional<DType> read_hf_dtype(const std::string& path);

// Token ids that begin and end a generated text.
struct HfTokens {
  std::vector<std::int32_t> eos{};
  std::optional<std::int32_t> bos{};
  bool replace = false;  // the carried config.json has ids of another tokenizer: replace them
};

// The config.json from which transformers builds this model. `carried`: text of the config.json
// that the model came from, or empty. The carried keys that do not affect the arithmetic (token
// ids, ...) are kept, except eos and bos with tokens.replace. The carried largest position may
// exceed `seq`. Without a token, eos and bos are null, because a missing key means a default of the
// family's class. `dtype_name`: "float32", "bfloat16", "float16". REQUIRES: options.vocab > 0.
// Throws ConfigError if the family has no key for a property of the model.
[[nodiscard]] std::string write_hf_config(const ModelOptions& options, std::string_view dtype_name,
                                          const std::string& carried = "",
                                          const HfTokens& tokens = {});

// The tokens that end a text: eos_token_id (a number or a list) of a folder's
// generation_config.json, else of its config.json. Empty if neither file has the key. Throws
// IoError for a damaged file, and ConfigError if the key has another type.
[[nodiscard]] std::vector<std::int32_t> read_hf_end_tokens(const std::string& dir);

// "gpt2", ...: the same names as in model.type.
[[nodiscard]] std::string_view hf_type_name(ModelType type);

// A key of the `model:` section with another value in config.json.
struct HfDisagreement {
  std::string key;   // "model.hidden"
  std::string run;   // "512"
  std::string file;  // "768"
};
// Sets the keys of `run` that the configuration does not give from `file`, and returns the keys
// that disagree. `given("model.hidden")`: whether the run's configuration has the key. dropout,
// init_std and explicit_units come from the run alone. The run's vocab may be larger; rows are then
// added. The run's seq defaults to all positions of a gpt2, and for other families to the smaller
// of its default and the model's positions. It may exceed the positions of a rotary model.
[[nodiscard]] std::vector<HfDisagreement> merge_hf_model(
    ModelOptions& run, const ModelOptions& file,
    const std::function<bool(std::string_view)>& given);

}  // namespace sluice
