#include "runtime/report/run_config_lines.hpp"

#include <algorithm>

#include "runtime/report/blanks.hpp"

namespace sluice {
namespace {

// Where the comment begins: the first "#" behind a blank and outside of quotes; npos: none.
std::size_t comment_of(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '"' && c == '\\') {
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' && i > 0 && text[i - 1] == ' ') {
      return i;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<ConfigLine> parse_config_lines(std::string_view text) {
  std::vector<ConfigLine> lines;
  std::string section;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || without_blanks(line).starts_with("#")) continue;
    const std::string_view name = without_blanks(line.substr(0, colon));
    if (line.front() != ' ') {
      section = name;
      continue;
    }
    const std::string_view rest = line.substr(colon + 1);
    const std::size_t comment = comment_of(rest);
    const bool commented = comment != std::string_view::npos;
    lines.push_back(
        {.key = section + "." + std::string(name),
         .value = std::string(without_blanks(rest.substr(0, comment))),
         .origin = std::string(commented ? without_blanks(rest.substr(comment + 1)) : "")});
  }
  return lines;
}

std::vector<ConfigRow> compare_configs(const std::vector<std::vector<ConfigLine>>& runs) {
  std::vector<ConfigRow> rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const ConfigLine& line : runs[r]) {
      auto row = std::find_if(rows.begin(), rows.end(),
                              [&](const ConfigRow& known) { return known.key == line.key; });
      if (row == rows.end()) {
        rows.push_back({.key = line.key, .of = std::vector<ConfigLine>(runs.size())});
        row = std::prev(rows.end());
      }
      row->of[r] = line;
    }
  }
  for (ConfigRow& row : rows) {
    const std::string* first = nullptr;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      if (runs[r].empty()) continue;
      if (first == nullptr) first = &row.of[r].value;
      row.differs = row.differs || row.of[r].value != *first;
    }
  }
  return rows;
}

}  // namespace sluice
