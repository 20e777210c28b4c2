// The name somebody most likely meant. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, letters
// compared without case.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `names` (the first of several), if it is near enough to be worth naming: at most a
// third of the longer one's letters differ, and one or two differences always pass in a word of
// four.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view name,
                                                      const std::vector<std::string_view>& names);

}  // namespace sluice
