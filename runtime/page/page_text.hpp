// Text of an HTML page. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

// For text between tags and in attributes: & < > " '
[[nodiscard]] std::string escape_html(const std::string& text);
// JSON for a script element: the text cannot end the element.
[[nodiscard]] std::string escape_json_for_html(const std::string& json);
// `text` with each place replaced. One pass: filled-in text is not searched for places.
[[nodiscard]] std::string fill_page(
    std::string_view text, const std::vector<std::pair<std::string_view, std::string>>& places);

}  // namespace sluice
