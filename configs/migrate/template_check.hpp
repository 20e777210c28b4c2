// Placeholders of templates in a configuration: the file has to be rendered before DeepSpeed reads
// it. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::migrate {

struct Placeholder {
  std::size_t at;         // byte
  std::string_view text;  // {{ x }}, {% if %}, ${X}, <% x %>, %%X%%
};

// The first placeholder outside comments that start a line; one line long.
[[nodiscard]] std::optional<Placeholder> find_placeholder(std::string_view text);

// "cause; remedy".
[[nodiscard]] std::string placeholder_message(const Placeholder& placeholder);

}  // namespace sluice::migrate
