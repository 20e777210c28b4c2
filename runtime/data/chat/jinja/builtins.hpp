// Filters, tests, methods and functions of the language.
#pragma once

#include <ctime>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/budget.hpp"
#include "runtime/data/chat/jinja/value.hpp"

namespace sluice::jinja {

// Arguments bound to the names of parameters. Throws RenderError for one too many or an unknown
// one.
class Parameters {
 public:
  Parameters(std::string_view what, const Arguments& arguments,
             std::initializer_list<std::string_view> names);
  [[nodiscard]] bool has(std::size_t index) const { return bound_[index].has_value(); }
  [[nodiscard]] Value get(std::size_t index) const;  // throws RenderError if it is missing
  [[nodiscard]] Value get(std::size_t index, Value standard) const {
    return bound_[index].value_or(std::move(standard));
  }
  [[nodiscard]] std::string text(std::size_t index) const;  // throws RenderError if no string
  [[nodiscard]] std::string text(std::size_t index, std::string standard) const {
    return has(index) ? text(index) : std::move(standard);
  }
  [[nodiscard]] std::int64_t integer(std::size_t index, std::int64_t standard) const;
  [[nodiscard]] bool truth(std::size_t index, bool standard) const;

 private:
  [[nodiscard]] const Value* find(std::size_t index) const;  // nullptr if it is missing

  std::string what_;
  std::vector<std::string> names_;
  std::vector<std::optional<Value>> bound_;
};

// input|name(arguments). Throws RenderError if the filter is unknown.
[[nodiscard]] Value apply_filter(const std::string& name, const Value& input,
                                 const Arguments& arguments, Budget& budget);
// input is name(arguments).
[[nodiscard]] bool apply_test(const std::string& name, const Value& input,
                              const Arguments& arguments, Budget& budget);
// input.name and input[key]: a value, a method, or undefined. Throws RenderError for an undefined
// input.
[[nodiscard]] Value attribute_of(const Value& input, const std::string& name, Budget& budget);
[[nodiscard]] Value item_of(const Value& input, const Value& key, Budget& budget);
// The method `name` of a string, a list or an object; undefined if the type has none.
[[nodiscard]] Value method_of(const Value& input, const std::string& name, Budget& budget);

// left op right for + - * / // % ~.
[[nodiscard]] Value binary(const std::string& op, const Value& left, const Value& right,
                           Budget& budget);
[[nodiscard]] Value slice(const Value& input, const std::optional<std::int64_t>& first,
                          const std::optional<std::int64_t>& last, std::int64_t step,
                          Budget& budget);

// The functions that a template may call. `now` is the time of strftime_now.
[[nodiscard]] std::vector<Dict::Item> functions(const std::tm& now, Budget& budget);

}  // namespace sluice::jinja
