// Values of a filter's options: what the user gave, else the default.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/data/corpus/filters/filter.hpp"

namespace sluice {

class FilterOptions {
 public:
  // Throws ConfigError if `spec` has an option that `kind` lacks.
  FilterOptions(const FilterKind& kind, const FilterSpec& spec);
  // Nothing: off.
  [[nodiscard]] std::optional<double> number(std::string_view name) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
  [[nodiscard]] bool flag(std::string_view name) const;  // on, off
  [[nodiscard]] std::vector<std::string> list(std::string_view name) const;
  // A value that is none of `words`.
  [[noreturn]] void refuse(std::string_view name, const std::string& wanted) const;

 private:
  [[nodiscard]] const std::string& value(std::string_view name) const;

  std::string filter_;
  std::map<std::string, std::string, std::less<>> values_;
};

// A rule's limit; an absent limit is never passed.
[[nodiscard]] inline bool below(double value, const std::optional<double>& limit) {
  return limit && value < *limit;
}
[[nodiscard]] inline bool above(double value, const std::optional<double>& limit) {
  return limit && value > *limit;
}

}  // namespace sluice
