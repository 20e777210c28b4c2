#include "configs/migrate/template_check.hpp"

#include <algorithm>
#include <array>

#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

struct Marks {
  std::string_view open;
  std::string_view close;
};

constexpr std::array kMarks{Marks{"{{", "}}"}, Marks{"{%", "%}"}, Marks{"${", "}"},
                            Marks{"<%", "%>"}, Marks{"%%", "%%"}};

bool is_comment(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return false;
  line.remove_prefix(first);
  return line.starts_with("#") || line.starts_with("//");
}

std::optional<Placeholder> find_in_line(std::string_view line) {
  std::optional<Placeholder> first;
  for (const Marks& marks : kMarks) {
    const std::size_t at = line.find(marks.open);
    if (at == std::string_view::npos) continue;
    const std::size_t close = line.find(marks.close, at + marks.open.size());
    if (close == std::string_view::npos || close == at + marks.open.size()) continue;
    if (!first || at < first->at) {
      first = Placeholder{at, line.substr(at, close + marks.close.size() - at)};
    }
  }
  return first;
}

}  // namespace

std::optional<Placeholder> find_placeholder(std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end - begin);
    if (!is_comment(line)) {
      if (auto found = find_in_line(line)) {
        found->at += begin;
        return found;
      }
    }
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  return std::nullopt;
}

std::optional<std::string_view> placeholder_word(std::string_view text) {
  constexpr std::array<std::string_view, 10> kValues{"TRUE", "FALSE", "NONE", "NULL", "AUTO",
                                                     "ON",   "OFF",   "YES",  "NO",   "INF"};
  if (text.ends_with(",")) text.remove_suffix(1);
  if (text.size() < 2 || text.front() < 'A' || text.front() > 'Z') return std::nullopt;
  const bool is_word = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  const bool is_value = std::find(kValues.begin(), kValues.end(), text) != kValues.end();
  return is_word && !is_value ? std::optional(text) : std::nullopt;
}

std::string placeholder_message(const Placeholder& placeholder) {
  return "the file is a template: " + in_quotes(placeholder.text) +
         " is a placeholder; fill the template in first, then migrate the result";
}

}  // namespace sluice::migrate
