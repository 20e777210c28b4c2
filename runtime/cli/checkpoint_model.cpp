#include "runtime/cli/checkpoint_model.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/setup/weights_setup.hpp"

namespace sluice {
namespace {

template <std::size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Keys that do not change the trained model's computation.
constexpr std::array<std::string_view, 4> kOwn{"dropout", "init_std", "explicit_units", "from"};
// Their "auto" is no value of its own: the checkpoint's holds.
constexpr std::array<std::string_view, 6> kAutomatic{"kv_heads", "head_dim", "ffn",
                                                     "vocab",    "norm_eps", "attention_bias"};
// Without effect if positions are not stretched.
constexpr std::array<std::string_view, 4> kStretching{"rope_factor", "rope_low_freq_factor",
                                                      "rope_high_freq_factor", "rope_original_seq"};
// A run may have others than the folder that it starts from.
constexpr std::array<std::string_view, 2> kNotOfFolder{"vocab", "seq"};

std::string join(const std::string& path, const std::string& key, const std::string& value,
                 const std::string& place, const std::string& stored) {
  return key + " is " + value + " (" + place + ") and " + stored + " in checkpoint " + path + "\n";
}

class Comparison {
 public:
  Comparison(const LoadedConfig& config, const Written& written, const Checkpoint& checkpoint,
             const ModelOptions& stored)
      : config_(config), written_(written), checkpoint_(checkpoint) {
    asked_.model = config.run.model;
    stored_.model = with_defaults(stored);
    const std::string& from = asked_.model.from;
    folder_file_ = join_path(from, "config.json");
    if (from.empty() || !written("model.from") || !exists(folder_file_)) return;
    folder_.emplace();
    folder_->model = read_hf_config(folder_file_);
  }

  // A line for each key that says something else.
  [[nodiscard]] std::string differences() const {
    std::string lines;
    for (const Key& key : find_section("model")->keys) lines += difference(key);
    return lines;
  }

 private:
  [[nodiscard]] bool is_free(const Key& key) const {
    if (is_one_of(key.name, kOwn)) return true;
    if (key.name == "seq") return stored_.model.type != ModelType::kGpt2;
    return is_one_of(key.name, kStretching) && stored_.model.rope_scaling == RopeScaling::kNone;
  }

  [[nodiscard]] std::string difference(const Key& key) const {
    if (is_free(key)) return "";
    const Value asked = key.get(asked_);
    const bool automatic = is_one_of(key.name, kAutomatic) && asked == key.get(RunConfig());
    if (written_(key.path()) && !automatic) {
      return compare(key, asked, config_.place(key.path()));
    }
    if (!folder_ || is_one_of(key.name, kNotOfFolder)) return "";
    return compare(key, key.get(*folder_), folder_file_);
  }

  [[nodiscard]] std::string compare(const Key& key, const Value& value,
                                    const std::string& place) const {
    const Value stored = key.get(stored_);
    if (value == stored) return "";
    return join(checkpoint_.path(), key.path(), write_value(key.rules, value), place,
                write_value(key.rules, stored));
  }

  const LoadedConfig& config_;
  const Written& written_;
  const Checkpoint& checkpoint_;
  RunConfig asked_, stored_;
  std::string folder_file_;
  std::optional<RunConfig> folder_;
};

}  // namespace

bool take_model(LoadedConfig& config, const Written& written, const Checkpoint& checkpoint) {
  const std::string& text = checkpoint.manifest().run.config;
  if (text.empty()) return false;
  const std::string source = join_path(checkpoint.path(), kManifestName);
  ModelOptions stored = load_config_text(source, text, {}).run.model;
  if (stored.vocab == 0) stored.vocab = stored_vocab(checkpoint);
  const std::string lines = Comparison(config, written, checkpoint, stored).differences();
  if (!lines.empty()) {
    throw ConfigError(lines +
                      "a checkpoint is used as the model that it was trained as: leave these keys "
                      "out, or say the same");
  }
  if (written("model.seq")) stored.seq = config.run.model.seq;
  if (written("model.explicit_units")) stored.explicit_units = config.run.model.explicit_units;
  config.run.model = stored;
  Origin origin;
  origin.text = source;
  for (const Key& key : find_section("model")->keys) {
    if (!written(key.path())) config.origins.insert_or_assign(key.path(), origin);
  }
  return true;
}

}  // namespace sluice
