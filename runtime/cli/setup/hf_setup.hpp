// `model.from`: a run that starts from a Hugging Face folder.
#pragma once

#include <memory>

#include "configs/reader.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"
#include "runtime/engine/initial_weights.hpp"

namespace sluice {

// Fills open keys from the folder's config.json: the model's keys, and data.tokenizer with the
// folder's own. Does nothing if model.from is empty. Throws ConfigError with both values if a given
// key differs from the folder; IoError.
// `resume`: of `sluice train`; if the folder is missing, the error says how the run resumes
// without. `reads_data`: text needs a tokenizer; a plan knows the vocabulary without one.
void settle_model_from(LoadedConfig& config, const std::string& resume = "never",
                       bool reads_data = true);

// Whether a run in fp32 starts from weights of 16 bits. REQUIRES: settle_model_from() was called.
[[nodiscard]] bool widens_weights(const RunConfig& run);

// The tokenizer's file in such a folder; empty if it has none.
[[nodiscard]] std::string hf_tokenizer_of(const std::string& dir);

// The reason why a folder without config.json is no model, with the remedy: an adapter, or a name
// of the Hugging Face hub. Empty where neither is the case.
[[nodiscard]] std::string why_no_model(const std::string& dir);
// The same, and "there is no DIR/config.json; ..." where neither is the case.
[[nodiscard]] std::string missing_model(const std::string& dir);

// The folder's weights, every tensor checked by name and shape; null if model.from is empty.
// REQUIRES: settle_model_from() was called, the vocabulary is known.
[[nodiscard]] std::shared_ptr<const HfWeights> open_model_from(const RunConfig& run);
// Initial weights of an engine; null: fresh weights.
[[nodiscard]] InitialWeights initial_weights(std::shared_ptr<const HfWeights> weights);
// The same for a run that may resume: opens the folder of model.from when the engine first asks, so
// that a restored run needs none of its weights. `logs`: logs what is taken from the folder.
[[nodiscard]] InitialWeights first_weights(const RunConfig& run, bool logs);
// Logs, once a run, what is taken from the folder.
void log_model_from(const RunConfig& run, const HfWeights& weights);

}  // namespace sluice
