// The configuration's reference, made from the schema: `sluice explain` and docs/configuration.md.
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "configs/schema.hpp"

namespace sluice {

// A value of the key as YAML that differs from its default, if the rules have one.
[[nodiscard]] std::string example_of(const Key& key);

// "train.clip": the key; "train": its section's keys; "clip": every key of that name; "": the
// sections. Lines of at most 80 columns. Throws ConfigError with the nearest name if no such key
// exists.
[[nodiscard]] std::string explain(std::string_view name);

// The text of docs/configuration.md.
[[nodiscard]] std::string reference_markdown();

}  // namespace sluice
