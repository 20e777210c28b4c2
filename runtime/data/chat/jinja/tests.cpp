#include <map>

#include "runtime/data/chat/jinja/builtins.hpp"
#include "runtime/data/chat/jinja/strings.hpp"

namespace sluice::jinja {
namespace {

using Test = bool (*)(const Value& input, const Value& argument);

bool is_integer(const Value& value, const Value&) { return value.as_integer() != nullptr; }

std::int64_t rest_of(const Value& input, std::int64_t divisor) {
  if (divisor == 0) throw RenderError("division by zero");
  return divisor == -1 ? 0 : integer_of(input, "a tested number") % divisor;
}

bool is_sequence(const Value& input, const Value&) {
  return input.is_text() || input.as_list() != nullptr || input.as_dict() != nullptr ||
         input.is_undefined();
}

bool is_same(const Value& input, const Value& other) {
  const bool numbers = is_number(input) && is_number(other);
  const bool one_kind = (input.as_bool() != nullptr) == (other.as_bool() != nullptr) &&
                        (input.as_real() != nullptr) == (other.as_real() != nullptr);
  return (!numbers || one_kind) && equal(input, other);
}

struct Rule {
  Test test;
  bool has_argument = false;
};

const std::map<std::string_view, Rule>& rules() {
  static const auto equals = [](const Value& a, const Value& b) { return equal(a, b); };
  static const auto differs = [](const Value& a, const Value& b) { return !equal(a, b); };
  static const auto lower_than = [](const Value& a, const Value& b) { return less(a, b); };
  static const auto greater = [](const Value& a, const Value& b) { return less(b, a); };
  static const auto at_most = [](const Value& a, const Value& b) { return !less(b, a); };
  static const auto at_least = [](const Value& a, const Value& b) { return !less(a, b); };
  static const std::map<std::string_view, Rule> kRules{
      {"defined", {[](const Value& v, const Value&) { return !v.is_undefined(); }}},
      {"undefined", {[](const Value& v, const Value&) { return v.is_undefined(); }}},
      {"none", {[](const Value& v, const Value&) { return v.is_none(); }}},
      {"string", {[](const Value& v, const Value&) { return v.is_text(); }}},
      {"mapping", {[](const Value& v, const Value&) { return v.as_dict() != nullptr; }}},
      {"sequence", {is_sequence}},
      {"iterable", {is_sequence}},
      {"number", {[](const Value& v, const Value&) { return is_number(v); }}},
      {"integer", {is_integer}},
      {"float", {[](const Value& v, const Value&) { return v.as_real() != nullptr; }}},
      {"boolean", {[](const Value& v, const Value&) { return v.as_bool() != nullptr; }}},
      {"true", {[](const Value& v, const Value&) { return v.as_bool() && *v.as_bool(); }}},
      {"false", {[](const Value& v, const Value&) { return v.as_bool() && !*v.as_bool(); }}},
      {"callable", {[](const Value& v, const Value&) { return v.as_callable() != nullptr; }}},
      {"odd", {[](const Value& v, const Value&) { return rest_of(v, 2) != 0; }}},
      {"even", {[](const Value& v, const Value&) { return rest_of(v, 2) == 0; }}},
      {"lower", {[](const Value& v, const Value&) {
         return to_text(v) == to_lower(to_text(v)) && to_text(v) != to_upper(to_text(v));
       }}},
      {"upper", {[](const Value& v, const Value&) {
         return to_text(v) == to_upper(to_text(v)) && to_text(v) != to_lower(to_text(v));
       }}},
      {"divisibleby",
       {[](const Value& v, const Value& by) {
          return rest_of(v, integer_of(by, "a divisor")) == 0;
        },
        true}},
      {"sameas", {is_same, true}},
      {"in", {[](const Value& v, const Value& all) { return contains(all, v); }, true}},
      {"eq", {equals, true}},
      {"equalto", {equals, true}},
      {"==", {equals, true}},
      {"ne", {differs, true}},
      {"!=", {differs, true}},
      {"lt", {lower_than, true}},
      {"lessthan", {lower_than, true}},
      {"<", {lower_than, true}},
      {"gt", {greater, true}},
      {"greaterthan", {greater, true}},
      {">", {greater, true}},
      {"le", {at_most, true}},
      {"<=", {at_most, true}},
      {"ge", {at_least, true}},
      {">=", {at_least, true}},
  };
  return kRules;
}

}  // namespace

bool apply_test(const std::string& name, const Value& input, const Arguments& arguments,
                Budget& budget) {
  const auto found = rules().find(name);
  if (found == rules().end()) {
    throw RenderError("the test '" + name + "' is unknown or not supported");
  }
  const std::size_t wanted = found->second.has_argument ? 1 : 0;
  if (arguments.values.size() != wanted || !arguments.named.empty()) {
    throw RenderError("the test '" + name + "' takes " +
                      (wanted == 1 ? "one argument" : "no arguments"));
  }
  if (wanted == 0) {
    budget.charge(name == "lower" || name == "upper" ? input.weight() : 0);
    return found->second.test(input, Value());
  }
  budget.charge(input.weight() + arguments.values[0].weight());
  return found->second.test(input, arguments.values[0]);
}

}  // namespace sluice::jinja
