// Rules between keys: what DeepSpeed refuses or ignores because of another key, deprecated keys,
// and the batch sizes. Only for this folder. Pure function of its arguments.
#pragma once

#include "configs/migrate/deepspeed/deepspeed_config.hpp"

namespace sluice::migrate {

// REQUIRES: the walk has filled `config`.
void apply_deepspeed_rules(const HjsonNode& root, const ParseOptions& options,
                           DeepSpeedConfig& config);

// The batch sizes and their mistakes (deepspeed_batch.cpp).
void apply_batch_rule(const ParseOptions& options, DeepSpeedConfig& config);

// Rules between keys of sections: precision, ZeRO, offload (deepspeed_section_rules.cpp).
void apply_section_rules(DeepSpeedConfig& config);

// Findings of keys without effect because of another key's value (idle_deepspeed_keys.cpp).
void mark_idle_keys(DeepSpeedConfig& config);

// Adds a mistake at a key that the file gives, or at the start of the file.
void add_mistake(DeepSpeedConfig& config, std::string_view path, std::string what);

// The value if the configuration has a number, a flag or text there.
[[nodiscard]] std::optional<std::int64_t> count_of(const DeepSpeedConfig& config,
                                                   std::string_view path);
[[nodiscard]] bool is_on(const DeepSpeedConfig& config, std::string_view path);
[[nodiscard]] std::string_view text_of(const DeepSpeedConfig& config, std::string_view path);
[[nodiscard]] std::int64_t stage_of(const DeepSpeedConfig& config);  // 0: no ZeRO
// "fp32", "fp16" or "bf16".
[[nodiscard]] std::string_view model_dtype(const DeepSpeedConfig& config);

}  // namespace sluice::migrate
