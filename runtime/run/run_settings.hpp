// What the numbers of a run depend on, as text: a checkpoint keeps it, and a run that goes on says
// what it does otherwise. Pure; thread-safe.
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

// What a run that goes on from `saved` with `now` (settings_of and kDataKey) does differently, a
// line each: values that changed ("optimizer.lr: 0.003 -> 0.001"), other data, samples that come
// again or never because the global batch changed. Empty where nothing did. What `saved` does not
// have is not compared.
[[nodiscard]] std::vector<std::string> changes_between(const RunState& saved, const TextMap& now);

// Of these, the keys of the model that no shape shows and that training cannot change: type, heads
// and norm. Rotary positions and windows may change: they are how a model is trained on for longer
// samples.
[[nodiscard]] std::vector<std::string> model_changes(const RunState& saved, const TextMap& now);

// `optimizer.type` of these settings. Checkpoints without the setting are of AdamW.
[[nodiscard]] std::string optimizer_of(const TextMap& settings);

// What the run multiplied its 16-bit matrices in; nullopt where the checkpoint does not say.
[[nodiscard]] std::optional<MatmulType> matmul_of(const RunState& saved);

}  // namespace sluice
