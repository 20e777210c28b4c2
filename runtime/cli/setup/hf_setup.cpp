#include "runtime/cli/setup/hf_setup.hpp"

#include <filesystem>
#include <string_view>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "configs/schema.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Origin place_of(const std::string& file) {
  Origin origin;
  origin.text = file;
  return origin;
}

// Records the folder as the origin of keys that it filled.
void note_origins(LoadedConfig& config, const RunConfig& before, const std::string& source) {
  for (const Key& key : find_section("model")->keys) {
    if (key.get(config.run) == key.get(before)) continue;
    config.origins.insert_or_assign(key.path(), place_of(source));
  }
}

void settle_tokenizer(LoadedConfig& config, const std::string& dir, bool reads_data) {
  DataOptions& data = config.run.data;
  if (config.given("data.tokenizer")) return;
  if (const std::string path = hf_tokenizer_of(dir); !path.empty()) {
    data.tokenizer = path;
    config.origins.insert_or_assign("data.tokenizer", place_of(dir));
    return;
  }
  if (!reads_data || !reads_text(data)) return;  // tokens need none
  throw ConfigError(config.place("model.from") + ": model.from: " + dir +
                    " has no tokenizer.json, vocab.json or tokenizer.model, so that text cannot be "
                    "made into this model's tokens; put them there, or give data.tokenizer (--set "
                    "data.tokenizer=FOLDER)");
}

std::string config_of(const std::string& dir) { return (fs::path(dir) / "config.json").string(); }

// The 16-bit dtype of the weights that a run in fp32 starts from.
std::optional<DType> widened_dtype(const RunConfig& run) {
  if (run.model.from.empty() || run.train.dtype != DType::kFloat32) return std::nullopt;
  const std::optional<DType> stored = read_hf_dtype(config_of(run.model.from));
  return stored && size_of(*stored) == 2 ? stored : std::nullopt;
}

// Weights of 16 bits that a run widens because nobody chose its dtype.
void note_dtype(LoadedConfig& config) {
  const std::optional<DType> stored = widened_dtype(config.run);
  if (!stored || config.given("train.dtype")) return;
  const std::string name(name_of(*stored));
  config.notes.push_back("model.from: the weights are " + name +
                         " and train.dtype is fp32: --set train.dtype=" + name +
                         " halves activations and multiplies in " + name + ", with fp32 masters");
}

// Rotary positions beyond those of the folder's model. Learned ones are refused.
void note_positions(LoadedConfig& config, const ModelOptions& file, const std::string& source) {
  const ModelOptions& model = config.run.model;
  if (model.type == ModelType::kGpt2 || model.seq <= file.seq) return;
  config.notes.push_back("model.seq: " + std::to_string(model.seq) + " is more than the " +
                         std::to_string(file.seq) + " positions (max_position_embeddings) of " +
                         source + ": the model was not trained on the positions beyond");
}

// Every key of the model is in the run's config.yaml, and the weights are in its checkpoints.
std::string advice_without_folder(const LoadedConfig& config, const std::string& resume) {
  const fs::path resolved = fs::path(config.run.output.dir) / "config.yaml";
  if (resume == "never" || !is_file(resolved)) return "";
  return ". A resume reads only config.json and the tokenizer's files there: put them back, or "
         "resume without the folder: sluice train " +
         resolved.string() + " --resume " + resume +
         " --set 'model.from=\"\"' --set data.tokenizer=FOLDER, with a copy of the tokenizer's "
         "files, which lie in the folder of each checkpoint";
}

}  // namespace

std::string hf_tokenizer_of(const std::string& dir) {
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"}) {
    const fs::path path = fs::path(dir) / name;
    if (is_file(path)) return path.string();
  }
  return "";
}

std::string why_no_model(const std::string& dir) {
  const fs::path path(dir);
  if (is_file(path / "adapter_config.json")) {
    return dir + " is an adapter (adapter_config.json), not a model: merge it into its model first";
  }
  // org/name, and nothing of that name here.
  const std::size_t slash = dir.find('/');
  const bool is_name = slash != std::string::npos && slash > 0 && slash + 1 < dir.size() &&
                       dir.find('/', slash + 1) == std::string::npos && dir[0] != '.';
  std::error_code ignored;
  if (!is_name || fs::exists(path.parent_path(), ignored)) return "";
  return "there is no folder " + dir + ", and Sluice downloads nothing: `hf download " + dir +
         " --local-dir DIR`, then name DIR";
}

std::string missing_model(const std::string& dir) {
  std::string why = why_no_model(dir);
  if (!why.empty()) return why;
  return "there is no " + config_of(dir) + "; expected a Hugging Face folder";
}

void settle_model_from(LoadedConfig& config, const std::string& resume, bool reads_data) {
  const std::string& dir = config.run.model.from;
  if (dir.empty()) return;
  const std::string source = config_of(dir);
  if (!is_file(source)) {
    throw IoError(config.place("model.from") + ": model.from: " + missing_model(dir) +
                      advice_without_folder(config, resume),
                  source);
  }
  const ModelOptions file = read_hf_config(source);
  const RunConfig before = config.run;
  const auto given = [&config](std::string_view key) { return config.given(key); };
  std::string lines;
  for (const HfDisagreement& found : merge_hf_model(config.run.model, file, given)) {
    lines += (lines.empty() ? "" : "\n") + config.place(found.key) + ": " + found.key + ": " +
             found.run + " is not the " + found.file + " of " + source + "; leave it out";
  }
  if (!lines.empty()) throw ConfigError(lines);
  note_origins(config, before, source);
  settle_tokenizer(config, dir, reads_data);
  note_dtype(config);
  note_positions(config, file, source);
}

bool widens_weights(const RunConfig& run) { return widened_dtype(run).has_value(); }

std::shared_ptr<const HfWeights> open_model_from(const RunConfig& run) {
  const std::string& dir = run.model.from;
  if (dir.empty()) return nullptr;
  return std::make_shared<const HfWeights>(
      dir, read_hf_config((fs::path(dir) / "config.json").string()), make_model_spec(run.model));
}

InitialWeights initial_weights(std::shared_ptr<const HfWeights> weights) {
  if (!weights) return {};
  return [weights = std::move(weights)](const std::string& name, std::int64_t begin,
                                        std::span<float> values) {
    return weights->read(name, begin, values);
  };
}

InitialWeights first_weights(const RunConfig& run, bool logs) {
  if (run.model.from.empty()) return {};
  return [run, logs, weights = std::shared_ptr<const HfWeights>()](
             const std::string& name, std::int64_t begin, std::span<float> values) mutable {
    if (!weights) {
      weights = open_model_from(run);
      if (logs) log_model_from(run, *weights);
    }
    return weights->read(name, begin, values);
  };
}

void log_model_from(const RunConfig& run, const HfWeights& weights) {
  log_info("weights from " + run.model.from + ": " + std::to_string(weights.placements().size()) +
           " parameters, stored in " + std::string(name_of(weights.dtype())));
  for (const std::string& note : weights.notes()) log_warning(note);
}

}  // namespace sluice
