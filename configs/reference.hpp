// The configuration's reference, made from the schema: `sluice explain` and docs/configuration.md.
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "configs/schema.hpp"

namespace sluice {

// A value of the key that differs from its default where the rules have one, as YAML.
[[nodiscard]] std::string example_of(const Key& key);

// "train.clip": the key; "train": its section's keys; "clip": every key of that name; "": the
// sections. Lines of at most 80 columns. Throws ConfigError with the nearest name where there is no
// such key.
[[nodiscard]] std::string explain(std::string_view name);

// docs/configuration.md.
[[nodiscard]] std::string reference_markdown();

}  // namespace sluice
