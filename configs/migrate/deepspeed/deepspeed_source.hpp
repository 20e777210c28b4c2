// The text of a DeepSpeed configuration, as --deepspeed_config takes it: a path, or the JSON in
// urlsafe base64. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::migrate {

struct DeepSpeedSource {
  std::string name;  // for places: the path, or "base64"
  std::string text;
};

// Throws IoError for a file that cannot be read, ConfigError for an argument that is neither a file
// nor base64 of UTF-8 text.
[[nodiscard]] DeepSpeedSource load_deepspeed_source(const std::string& argument);

// The bytes of base64 with the alphabet A-Z a-z 0-9 - _ (or + /), padded with '='; nullopt for
// other text.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace sluice::migrate
