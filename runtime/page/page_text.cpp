#include "runtime/page/page_text.hpp"

#include <algorithm>
#include <array>

namespace sluice {

std::string fill_page(std::string_view text,
                      const std::vector<std::pair<std::string_view, std::string>>& places) {
  std::string filled;
  while (!text.empty()) {
    std::size_t first = text.size();
    const std::pair<std::string_view, std::string>* next = nullptr;
    for (const auto& place : places) {
      const std::size_t at = text.find(place.first);
      if (at < first) {
        first = at;
        next = &place;
      }
    }
    filled += text.substr(0, first);
    if (next == nullptr) break;
    filled += next->second;
    text.remove_prefix(first + next->first.size());
  }
  return filled;
}

std::string escape_html(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// These characters occur only in JSON strings.
std::string escape_json_for_html(const std::string& json) {
  constexpr std::array<std::pair<char, const char*>, 3> kEscapes{
      {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}}};
  std::string escaped;
  escaped.reserve(json.size());
  for (const char c : json) {
    const auto* found = std::find_if(kEscapes.begin(), kEscapes.end(),
                                     [c](const auto& escape) { return escape.first == c; });
    if (found == kEscapes.end()) {
      escaped += c;
    } else {
      escaped += found->second;
    }
  }
  return escaped;
}

}  // namespace sluice
