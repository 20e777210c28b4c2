// Strict reader for JSON files of Hugging Face folders: one object, no duplicate key, bounded size
// and depth. Any input gives a value or an IoError that names the file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace sluice {

struct HfJsonLimits {
  std::int64_t bytes = std::int64_t{4} << 20;
  int depth = 16;
};

// `path` is for messages.
[[nodiscard]] nlohmann::json parse_hf_json(const std::string& path, std::string_view text,
                                           HfJsonLimits limits = {});
[[nodiscard]] nlohmann::json read_hf_json(const std::string& path, HfJsonLimits limits = {});

// A value as text for messages, such as "\"gelu\""; long values are cut.
[[nodiscard]] std::string shown(const nlohmann::json& value);

}  // namespace sluice
