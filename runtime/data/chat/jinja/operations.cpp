// Operators, parameters of calls, and the functions that a template may call.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/data/chat/jinja/builtins.hpp"
#include "runtime/data/chat/jinja/strings.hpp"

namespace sluice::jinja {
namespace {

constexpr std::int64_t kLongestRange = 100'000;
constexpr std::int64_t kLongestText = std::int64_t{64} << 20U;

[[noreturn]] void too_large() { throw RenderError("a number is too large for 64 bits"); }

Value integers(char op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (op == '+' && !__builtin_add_overflow(a, b, &result)) return Value::integer(result);
  if (op == '-' && !__builtin_sub_overflow(a, b, &result)) return Value::integer(result);
  if (op == '*' && !__builtin_mul_overflow(a, b, &result)) return Value::integer(result);
  too_large();
}

// Division that rounds down, as Python's.
Value divided(const std::string& op, const Value& left, const Value& right) {
  const double a = number_of(left), b = number_of(right);
  if (b == 0) throw RenderError("division by zero");
  if (op == "/") return Value::real(a / b);
  if (left.as_real() != nullptr || right.as_real() != nullptr) {
    const double down = std::floor(a / b);
    return Value::real(op == "//" ? down : a - b * down);
  }
  const std::int64_t c = integer_of(left, ""), d = integer_of(right, "");
  if (d == -1) return op == "//" ? integers('-', 0, c) : Value::integer(0);
  std::int64_t down = c / d, rest = c % d;
  if (rest != 0 && (rest < 0) != (d < 0)) {
    --down;
    rest += d;
  }
  return Value::integer(op == "//" ? down : rest);
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
  times = std::max<std::int64_t>(times, 0);
  if (value.width() > 0 && times > kLongestText / value.width()) {
    throw RenderError("a repeated value would be larger than 64 MiB");
  }
  budget.charge(value.width() * times);
  if (const List* list = value.as_list()) {
    std::vector<Value> items;
    for (; times > 0 && !list->items.empty(); --times) {
      items.insert(items.end(), list->items.begin(), list->items.end());
    }
    return Value::list(std::move(items), list->tuple);
  }
  std::string text;
  for (; times > 0 && !value.as_text()->empty(); --times) text += *value.as_text();
  return Value::text(std::move(text));
}

Value sum_of(const Value& left, const Value& right, Budget& budget) {
  budget.charge(left.width() + right.width());
  if (left.is_text() && right.is_text()) {
    if (left.width() + right.width() > kLongestText) {
      throw RenderError("a string would be longer than 64 MiB");
    }
    return Value::text(*left.as_text() + *right.as_text());
  }
  const List *a = left.as_list(), *b = right.as_list();
  if (a == nullptr || b == nullptr || a->tuple != b->tuple) {
    throw RenderError("cannot add " + right.kind() + " to " + left.kind());
  }
  std::vector<Value> items = a->items;
  items.insert(items.end(), b->items.begin(), b->items.end());
  return Value::list(std::move(items), a->tuple);
}

bool can_repeat(const Value& value, const Value& times) {
  return (value.is_text() || value.as_list() != nullptr) && is_number(times) &&
         times.as_real() == nullptr;
}

Value make_range(const Arguments& arguments, Budget& budget) {
  const Parameters given("range", arguments, {"start", "stop", "step"});
  const bool one = !given.has(1);
  const std::int64_t start = one ? 0 : given.integer(0, 0);
  const std::int64_t stop = integer_of(given.get(one ? 0 : 1), "range");
  const std::int64_t step = given.integer(2, 1);
  if (step == 0) throw RenderError("range: the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    budget.charge();
    items.push_back(Value::integer(i));
    if (static_cast<std::int64_t>(items.size()) > kLongestRange) {
      throw RenderError("range: more than 100000 numbers");
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

Dict dict_from(const char* what, const Arguments& arguments) {
  if (arguments.values.size() > 1)
    throw RenderError(std::string(what) + " takes one object at most");
  Dict dict;
  if (!arguments.values.empty()) {
    if (arguments.values[0].as_dict() == nullptr) {
      throw RenderError(std::string(what) + " expects an object or named values");
    }
    dict = *arguments.values[0].as_dict();
  }
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return dict;
}

std::string time_text(const std::tm& now, const std::string& format) {
  std::array<char, 512> buffer{};
  if (format.size() > 128) throw RenderError("strftime_now: the format is too long");
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now);
  return {buffer.data(), size};
}

}  // namespace

Parameters::Parameters(std::string_view what, const Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : what_(what), names_(names.begin(), names.end()), bound_(names.size()) {
  if (arguments.values.size() > names_.size()) throw RenderError(what_ + ": too many arguments");
  std::copy(arguments.values.begin(), arguments.values.end(), bound_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) throw RenderError(what_ + ": no argument is called '" + name + "'");
    bound_[static_cast<std::size_t>(at - names_.begin())] = value;
  }
}

const Value* Parameters::find(std::size_t index) const {
  const std::optional<Value>& value = bound_[index];
  return value ? &*value : nullptr;
}

Value Parameters::get(std::size_t index) const {
  const Value* const value = find(index);
  if (!value) throw RenderError(what_ + ": the argument '" + names_[index] + "' is missing");
  return *value;
}

std::string Parameters::text(std::size_t index) const {
  const Value value = get(index);
  if (!value.is_text()) {
    throw RenderError(what_ + ": '" + names_[index] + "' must be a string, not " + value.kind());
  }
  return *value.as_text();
}

std::int64_t Parameters::integer(std::size_t index, std::int64_t standard) const {
  const Value* const value = find(index);
  if (!value || value->is_none()) return standard;
  return integer_of(*value, what_ + ": '" + names_[index] + "'");
}

bool Parameters::truth(std::size_t index, bool standard) const {
  const Value* const value = find(index);
  return value ? is_true(*value) : standard;
}

Value binary(const std::string& op, const Value& left, const Value& right, Budget& budget) {
  if (op == "~") {
    return sum_of(Value::text(to_text(left)), Value::text(to_text(right)), budget);
  }
  if (left.is_undefined() || right.is_undefined()) {
    throw RenderError("'" + op + "' of " + (left.is_undefined() ? left : right).kind());
  }
  if (op == "*" && can_repeat(left, right)) return repeated(left, integer_of(right, ""), budget);
  if (op == "*" && can_repeat(right, left)) return repeated(right, integer_of(left, ""), budget);
  if (op == "+" && !(is_number(left) && is_number(right))) return sum_of(left, right, budget);
  if (!is_number(left) || !is_number(right)) {
    throw RenderError("'" + op + "' of " + left.kind() + " and " + right.kind());
  }
  if (op == "/" || op == "//" || op == "%") return divided(op, left, right);
  if (left.as_real() == nullptr && right.as_real() == nullptr) {
    return integers(op[0], integer_of(left, ""), integer_of(right, ""));
  }
  const double a = number_of(left), b = number_of(right);
  return Value::real(op == "+" ? a + b : op == "-" ? a - b : a * b);
}

Value slice(const Value& input, const std::optional<std::int64_t>& first,
            const std::optional<std::int64_t>& last, std::int64_t step, Budget& budget) {
  if (!input.is_text() && input.as_list() == nullptr) {
    throw RenderError("a slice of " + input.kind());
  }
  if (step == 0) throw RenderError("a slice's step is 0");
  budget.charge(input.width());
  const std::vector<Value> elements = elements_of(input);
  const auto size = static_cast<std::int64_t>(elements.size());
  const auto place = [&](std::int64_t index) {
    if (index < 0) index += size;
    return step > 0 ? std::clamp<std::int64_t>(index, 0, size)
                    : std::clamp<std::int64_t>(index, -1, size - 1);
  };
  const std::int64_t from = first ? place(*first) : step > 0 ? 0 : size - 1;
  const std::int64_t to = last ? place(*last) : step > 0 ? size : -1;
  step = std::clamp<std::int64_t>(step, -size - 1, size + 1);
  std::vector<Value> taken;
  std::string text;
  for (std::int64_t i = from; step > 0 ? i < to : i > to; i += step) {
    const Value& element = elements[static_cast<std::size_t>(i)];
    if (input.is_text()) {
      text += *element.as_text();
    } else {
      taken.push_back(element);
    }
  }
  return input.is_text() ? Value::text(std::move(text))
                         : Value::list(std::move(taken), input.as_list()->tuple);
}

std::vector<Dict::Item> functions(const std::tm& now, Budget& budget) {
  const auto make = [](const std::string& name, std::function<Value(const Arguments&)> call) {
    return Dict::Item(name, Value::callable({std::move(call)}));
  };
  return {
      make("raise_exception",
           [](const Arguments& arguments) -> Value {
             const Parameters given("raise_exception", arguments, {"message"});
             throw RaisedError(to_text(given.get(0)));
           }),
      make("strftime_now",
           [now](const Arguments& arguments) {
             const Parameters given("strftime_now", arguments, {"format"});
             return Value::text(time_text(now, given.text(0)));
           }),
      make("range", [&budget](const Arguments& a) { return make_range(a, budget); }),
      make("dict", [](const Arguments& a) { return Value::dict(dict_from("dict", a)); }),
      make("namespace",
           [](const Arguments& arguments) {
             auto space = std::make_shared<Namespace>();
             space->attributes = dict_from("namespace", arguments);
             (void)Value::dict(space->attributes);  // checks the values
             return Value::space(std::move(space));
           }),
  };
}

}  // namespace sluice::jinja
