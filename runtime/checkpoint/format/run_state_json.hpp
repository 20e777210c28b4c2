// The run state as an object of the manifest. Only for this folder's *_json sources.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/checkpoint/format/manifest.hpp"

namespace sluice {

// Throws Error for a number that is not finite, because JSON cannot represent it.
[[nodiscard]] nlohmann::ordered_json run_state_to_json(const RunState& run);
[[nodiscard]] RunState run_state_from_json(const nlohmann::json& value, const std::string& path);

}  // namespace sluice
