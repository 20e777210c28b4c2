// The settings that a run's numbers depend on, as text. A checkpoint keeps the settings, and a
// resumed run reports changes. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/plan/step_profile.hpp"

namespace sluice {

// For RunState::more: "setting.optimizer.lr" -> "0.003", and so on.
[[nodiscard]] TextMap settings_of(const EngineOptions& options, std::int64_t global_batch);

inline constexpr const char* kDataKey = "data";  // of RunState::more: TrainingData::fingerprint()

// Changes of a run that resumes from `saved` with `now` (settings_of and kDataKey), one per line:
// changed values ("optimizer.lr: 0.003 -> 0.001"), other data, and samples repeated or left out
// because the global batch changed. Empty: no change. Settings missing in `saved` are not compared.
[[nodiscard]] std::vector<std::string> changes_between(const RunState& saved, const TextMap& now);

// Changes of model keys that no shape shows and that training cannot change: type, heads and norm.
// Rotary positions and windows may change, to train a model further on longer samples.
[[nodiscard]] std::vector<std::string> model_changes(const RunState& saved, const TextMap& now);

// `optimizer.type` of these settings. Checkpoints without the setting are of AdamW.
[[nodiscard]] std::string optimizer_of(const TextMap& settings);

// Type of the run's 16-bit matrix products; nullopt if the checkpoint does not have the type.
[[nodiscard]] std::optional<MatmulType> matmul_of(const RunState& saved);

}  // namespace sluice
