#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "runtime/data/chat/jinja/builtins.hpp"
#include "runtime/data/chat/jinja/strings.hpp"

namespace sluice::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&, Budget&);

Value text_of(std::string_view text) { return Value::text(std::string(text)); }

// "a.b.0" from an element.
Value path_of(const Value& element, const Value& path, Budget& budget) {
  if (!path.is_text()) return item_of(element, path, budget);
  Value value = element;
  std::string_view left = *path.as_text();
  for (;;) {
    const std::size_t dot = left.find('.');
    const std::string part(left.substr(0, dot));
    std::int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number =
        !part.empty() && read.ec == std::errc() && read.ptr == part.data() + part.size();
    value = item_of(value, number ? Value::integer(index) : Value::text(part), budget);
    if (dot == left.npos) return value;
    left.remove_prefix(dot + 1);
  }
}

Arguments behind(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.values.erase(rest.values.begin(), rest.values.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

std::string first_text(const Arguments& arguments, std::size_t index, std::string_view what) {
  if (arguments.values.size() > index && arguments.values[index].is_text()) {
    return *arguments.values[index].as_text();
  }
  throw RenderError(std::string(what) + " expects a name as argument " + std::to_string(index + 1));
}

Value trim(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("trim", arguments, {"chars"});
  return text_of(strip(to_text(input), given.text(0, ""), true, true));
}

Value tojson(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("tojson", arguments,
                         {"ensure_ascii", "indent", "separators", "sort_keys"});
  budget.charge(input.weight());
  JsonStyle style{.sort_keys = given.truth(3, false), .ascii = given.truth(0, false)};
  if (given.has(1) && !given.get(1).is_none()) {
    style.indent = std::clamp<std::int64_t>(given.integer(1, 0), 0, 64);
    style.item_separator = ",";
  }
  const Value separators = given.get(2, Value::none());
  if (const List* list = separators.as_list()) {
    if (list->items.size() != 2) throw RenderError("tojson: separators are two strings");
    style.item_separator = to_text(list->items[0]);
    style.key_separator = to_text(list->items[1]);
  }
  std::string out = to_json(input, style);
  budget.charge(static_cast<std::int64_t>(out.size()));
  return Value::text(std::move(out));
}

Value length(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("length", arguments, {});
  if (const std::string* text = input.as_text()) return Value::integer(length_of(*text));
  if (input.as_list() == nullptr && input.as_dict() == nullptr && !input.is_undefined()) {
    throw RenderError(input.kind() + " has no length");
  }
  return Value::integer(input.width());
}

Value standard(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("default", arguments, {"default_value", "boolean"});
  const bool missing = input.is_undefined() || (given.truth(1, false) && !is_true(input));
  return missing ? given.get(0, Value::text("")) : input;
}

Value title(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("title", arguments, {});
  const std::string text = to_text(input);
  std::string out, word;
  for (const std::string_view character : characters_of(text)) {
    const bool between = character.size() == 1 &&
                         std::string_view("- \t\n\r\f\v({[<").find(character[0]) != character.npos;
    if (!between) {
      word += character;
      continue;
    }
    out += capitalized(word);
    word.clear();
    out += character;
  }
  return Value::text(out + capitalized(word));
}

Value join(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("join", arguments, {"d", "attribute"});
  const std::string between = given.text(0, "");
  std::string out;
  bool first = true;
  for (const Value& element : elements_of(input)) {
    if (!std::exchange(first, false)) out += between;
    out += to_text(given.has(1) ? path_of(element, given.get(1), budget) : element);
    budget.charge(element.weight());
  }
  budget.charge(static_cast<std::int64_t>(out.size()));
  return Value::text(std::move(out));
}

Value map(const Value& input, const Arguments& arguments, Budget& budget) {
  std::vector<Value> results;
  const bool by_attribute = arguments.values.empty();
  const Parameters given("map", by_attribute ? arguments : Arguments{}, {"attribute", "default"});
  for (const Value& element : is_true(input) ? elements_of(input) : std::vector<Value>{}) {
    budget.charge();
    if (by_attribute) {
      Value value = path_of(element, given.get(0), budget);
      results.push_back(value.is_undefined() ? given.get(1, value) : value);
    } else {
      results.push_back(
          apply_filter(first_text(arguments, 0, "map"), element, behind(arguments, 1), budget));
    }
  }
  return Value::list(std::move(results));
}

template <bool kWanted, bool kByAttribute>
Value choose(const Value& input, const Arguments& arguments, Budget& budget) {
  constexpr std::size_t kTestAt = kByAttribute ? 1 : 0;
  const std::string what = kByAttribute ? "selectattr" : "select";
  const std::string path = kByAttribute ? first_text(arguments, 0, what) : "";
  const bool tested = arguments.values.size() > kTestAt;
  std::vector<Value> results;
  for (const Value& element : is_true(input) ? elements_of(input) : std::vector<Value>{}) {
    budget.charge();
    const Value value = kByAttribute ? path_of(element, Value::text(path), budget) : element;
    const bool chosen = tested ? apply_test(first_text(arguments, kTestAt, what), value,
                                            behind(arguments, kTestAt + 1), budget)
                               : is_true(value);
    if (chosen == kWanted) results.push_back(element);
  }
  return Value::list(std::move(results));
}

Value pair_of(const Value& key, const Value& value) { return Value::list({key, value}, true); }

Value items(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("items", arguments, {});
  std::vector<Value> pairs;
  budget.charge(input.width());
  if (const Dict* dict = input.as_dict()) {
    for (const auto& [key, value] : dict->items()) {
      pairs.push_back(pair_of(Value::text(key), value));
    }
  } else if (!input.is_undefined()) {
    throw RenderError("items expects an object, not " + input.kind());
  }
  return Value::list(std::move(pairs));
}

// The order of sort and dictsort: letters of both cases are equal unless `exact`.
bool sorts_before(const Value& left, const Value& right, bool exact) {
  if (exact || !left.is_text() || !right.is_text()) return less(left, right);
  return to_lower(*left.as_text()) < to_lower(*right.as_text());
}

template <typename Key>
Value sorted(std::vector<Value> values, bool exact, bool backwards, Budget& budget, Key&& key) {
  std::stable_sort(values.begin(), values.end(), [&](const Value& left, const Value& right) {
    const Value a = key(left), b = key(right);
    budget.charge(std::min(a.weight(), b.weight()));
    return backwards ? sorts_before(b, a, exact) : sorts_before(a, b, exact);
  });
  return Value::list(std::move(values));
}

Value dictsort(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given.text(1, "key");
  if (by != "key" && by != "value") throw RenderError("dictsort: by is 'key' or 'value'");
  if (input.as_dict() == nullptr) throw RenderError("dictsort expects an object");
  const Value pairs = items(input, {}, budget);
  return sorted(pairs.as_list()->items, given.truth(0, false), given.truth(2, false), budget,
                [&](const Value& pair) { return pair.as_list()->items[by == "key" ? 0 : 1]; });
}

Value sort(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  return sorted(elements_of(input), given.truth(1, false), given.truth(0, false), budget,
                [&](const Value& element) {
                  return given.has(2) ? path_of(element, given.get(2), budget) : element;
                });
}

Value replace(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  std::string out =
      replaced(to_text(input), to_text(given.get(0)), to_text(given.get(1)), given.integer(2, -1));
  budget.charge(static_cast<std::int64_t>(out.size()));
  return Value::text(std::move(out));
}

template <bool kLast>
Value end_element(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(kLast ? "last" : "first", arguments, {});
  const std::vector<Value> elements = elements_of(input);
  if (elements.empty()) return Value::undefined(kLast ? "last" : "first");
  return kLast ? elements.back() : elements.front();
}

Value reverse(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("reverse", arguments, {});
  std::vector<Value> elements = elements_of(input);
  std::reverse(elements.begin(), elements.end());
  if (!input.is_text()) return Value::list(std::move(elements));
  std::string out;
  for (const Value& element : elements) out += *element.as_text();
  return Value::text(std::move(out));
}

Value unique(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("unique", arguments, {"case_sensitive"});
  std::vector<Value> results;
  for (const Value& element : elements_of(input)) {
    const bool known = std::any_of(results.begin(), results.end(), [&](const Value& other) {
      budget.charge(std::min(element.weight(), other.weight()));
      if (given.truth(0, false) || !element.is_text() || !other.is_text()) {
        return equal(element, other);
      }
      return to_lower(*element.as_text()) == to_lower(*other.as_text());
    });
    if (!known) results.push_back(element);
  }
  return Value::list(std::move(results));
}

// The number that a text is, with spaces around it; nothing for another text.
std::optional<double> number_in(const std::string& text, bool plus) {
  std::string digits(strip(text, "", true, true));
  if (plus && digits.starts_with('+')) digits.erase(0, 1);
  double number = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, number);
  if (digits.empty() || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

Value integer(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("int", arguments, {"default"});
  if (const double* real = input.as_real()) {
    if (std::fabs(*real) < 9e18) return Value::integer(static_cast<std::int64_t>(*real));
  } else if (is_number(input)) {
    return Value::integer(integer_of(input, "int"));
  } else if (const std::string* text = input.as_text()) {
    const std::optional<double> number = number_in(*text, true);
    if (number && std::fabs(*number) < 9e15) {
      return Value::integer(static_cast<std::int64_t>(*number));
    }
  }
  return given.get(0, Value::integer(0));
}

Value real(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("float", arguments, {"default"});
  if (is_number(input)) return Value::real(number_of(input));
  if (const std::string* text = input.as_text()) {
    if (const std::optional<double> number = number_in(*text, false)) return Value::real(*number);
  }
  return given.get(0, Value::real(0));
}

Value rounded(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("round", arguments, {"precision", "method"});
  const double scale = std::pow(10.0, static_cast<double>(given.integer(0, 0)));
  const std::string method = given.text(1, "common");
  const double value = number_of(input) * scale;
  const double result = method == "ceil"    ? std::ceil(value)
                        : method == "floor" ? std::floor(value)
                                            : std::nearbyint(value);
  return Value::real(result / scale);
}

Value absolute(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("abs", arguments, {});
  if (input.as_real() != nullptr) return Value::real(std::fabs(number_of(input)));
  const std::int64_t value = integer_of(input, "abs");
  if (value == INT64_MIN) throw RenderError("abs: the number is too large");
  return Value::integer(value < 0 ? -value : value);
}

Value sum(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("sum", arguments, {"attribute", "start"});
  Value total = given.get(1, Value::integer(0));
  for (const Value& element : elements_of(input)) {
    total =
        binary("+", total, given.has(0) ? path_of(element, given.get(0), budget) : element, budget);
  }
  return total;
}

Value indent(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  const Value width = given.get(0, Value::integer(4));
  const std::string before = width.is_text()
                                 ? *width.as_text()
                                 : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                   integer_of(width, "indent's width"), 0, 256)),
                                               ' ');
  const bool blank = given.truth(2, false);
  const std::string text = to_text(input);
  std::string out = given.truth(1, false) ? before : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    const bool empty = i + 1 == text.size() || text[i + 1] == '\n';
    if (text[i] == '\n' && (blank || !empty)) out += before;
  }
  budget.charge(static_cast<std::int64_t>(out.size()));
  return Value::text(std::move(out));
}

template <std::string (*kChange)(std::string_view)>
Value changed(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("the filter", arguments, {});
  return Value::text(kChange(to_text(input)));
}

Value string(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given("string", arguments, {});
  budget.charge(input.weight());
  return input.is_text() ? input : Value::text(to_text(input));
}

Value list(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given("list", arguments, {});
  return Value::list(elements_of(input));
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> kFilters{
      {"abs", absolute},
      {"capitalize", changed<capitalized>},
      {"count", length},
      {"d", standard},
      {"default", standard},
      {"dictsort", dictsort},
      {"first", end_element<false>},
      {"float", real},
      {"indent", indent},
      {"int", integer},
      {"items", items},
      {"join", join},
      {"last", end_element<true>},
      {"length", length},
      {"list", list},
      {"lower", changed<to_lower>},
      {"map", map},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"replace", replace},
      {"reverse", reverse},
      {"round", rounded},
      {"safe", string},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"sort", sort},
      {"string", string},
      {"sum", sum},
      {"title", title},
      {"tojson", tojson},
      {"trim", trim},
      {"unique", unique},
      {"upper", changed<to_upper>},
  };
  return kFilters;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments,
                   Budget& budget) {
  const Budget::Level level(budget);
  budget.charge(input.width());
  const auto found = filters().find(name);
  if (found == filters().end()) {
    throw RenderError("the filter '" + name + "' is unknown or not supported");
  }
  return found->second(input, arguments, budget);
}

}  // namespace sluice::jinja
