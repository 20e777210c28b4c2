// TOML text as a tree of values with their places. The only code that uses toml++. Text is bounded
// (1 MiB; toml++ bounds the depth), so no input can exhaust memory or the stack. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include "configs/migrate/hjson_reader.hpp"

namespace sluice::migrate {

inline constexpr std::size_t kMaxTomlBytes = std::size_t{1} << 20;

// Dates and times become text. Reports the first syntax error.
[[nodiscard]] HjsonDocument read_toml(std::string_view text);

}  // namespace sluice::migrate
