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

// The word if the text is a placeholder like GBSIZE or "ZERO_STAGE,": capitals, digits and
// underscores, with the comma that an unquoted Hjson text keeps. Words of YAML and JSON in capitals
// are none.
[[nodiscard]] std::optional<std::string_view> placeholder_word(std::string_view text);

}  // namespace sluice::migrate
