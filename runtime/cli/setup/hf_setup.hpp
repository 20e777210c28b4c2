// `model.from`: a run that starts from a Hugging Face folder.
#pragma once

#include <memory>

#include "configs/reader.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"
#include "runtime/engine/initial_weights.hpp"

namespace sluice {

// Fills what the run leaves open from the folder's config.json: the model's keys, and
// data.tokenizer with the folder's own. Nothing happens where model.from is empty. Throws
// ConfigError where a key that was given says something else than the folder, naming both; IoError.
void settle_model_from(LoadedConfig& config);

// The tokenizer's file in such a folder; empty: there is none.
[[nodiscard]] std::string hf_tokenizer_of(const std::string& dir);

// The folder's weights, every tensor checked by name and shape; null where model.from is empty.
// REQUIRES: settle_model_from(), the vocabulary is known.
[[nodiscard]] std::shared_ptr<const HfWeights> open_model_from(const RunConfig& run);
// What an engine starts with; null: fresh weights.
[[nodiscard]] InitialWeights initial_weights(std::shared_ptr<const HfWeights> weights);
// Once a run: what is taken and what is not.
void log_model_from(const RunConfig& run, const HfWeights& weights);

}  // namespace sluice
