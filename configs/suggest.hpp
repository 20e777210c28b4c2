// The name that the user most likely meant. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice {

// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into
// `b`; letter case is ignored.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `names` (the first of several) if it is near enough: at most a third of the longer
// name's letters differ; one or two differences always pass in a word of four letters or more.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view name,
                                                      const std::vector<std::string_view>& names);

}  // namespace sluice
