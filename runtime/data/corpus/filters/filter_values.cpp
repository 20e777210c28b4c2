#include "runtime/data/corpus/filters/filter_values.hpp"

#include <charconv>

#include "base/error.hpp"

namespace sluice {
namespace {

std::string names_of(const FilterKind& kind) {
  std::string names;
  for (const FilterOption& option : kind.options) {
    names += (names.empty() ? "" : ", ") + std::string(option.name);
  }
  return names;
}

}  // namespace

FilterOptions::FilterOptions(const FilterKind& kind, const FilterSpec& spec) : filter_(kind.name) {
  for (const FilterOption& option : kind.options) {
    values_.emplace(option.name, option.standard);
  }
  for (const auto& [name, value] : spec.options) {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      throw ConfigError("filter " + filter_ + " has no option '" + name +
                        "'; its options: " + (kind.options.empty() ? "none" : names_of(kind)));
    }
    found->second = value;
  }
}

const std::string& FilterOptions::value(std::string_view name) const {
  const auto found = values_.find(name);
  check(found != values_.end(), "a filter asks for an option that it does not list");
  return found->second;
}

void FilterOptions::refuse(std::string_view name, const std::string& wanted) const {
  throw ConfigError("filter " + filter_ + ": " + std::string(name) + "=" + value(name) +
                    " is not " + wanted);
}

std::optional<double> FilterOptions::number(std::string_view name) const {
  const std::string& text = value(name);
  if (text == "off") return std::nullopt;
  double result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size() || !(result >= 0)) {
    refuse(name, "a number from 0 or 'off'");
  }
  return result;
}

std::optional<std::string> FilterOptions::text(std::string_view name) const {
  const std::string& text = value(name);
  if (text == "off" || text.empty()) return std::nullopt;
  return text;
}

bool FilterOptions::flag(std::string_view name) const {
  const std::string& text = value(name);
  if (text != "on" && text != "off") refuse(name, "'on' or 'off'");
  return text == "on";
}

std::vector<std::string> FilterOptions::list(std::string_view name) const {
  std::vector<std::string> items;
  const std::string& text = value(name);
  if (text == "off") return items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('|', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace sluice
